"""YAML files as plain data that remembers, for every key and list item, the file, line and column where it stands.

The scalars follow the core schema of YAML 1.2: `off`, `no` and `12:30` are text, `1e-3` is a number.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from netsim.errors import InputError, did_you_mean

FieldPath = tuple[str | int, ...]
"""Where a value stands in the configuration: `('topology', 'links', 0, 'rate')`."""


class Place(NamedTuple):
    """Where a value was written; line 0 means the command line's `--set`."""

    file: str
    line: int
    column: int


@dataclass
class Document:
    """Plain data, the place of each key and item, and the mistakes that were found while reading."""

    data: Any
    places: dict[FieldPath, Place]
    faults: list[tuple[Place, str]] = field(default_factory=list)

    def place(self, path: FieldPath) -> tuple[FieldPath, Place]:
        """The longest known part of a path, and its place; a section that only `--set` made stands where its first field was set."""
        below = next((place for other, place in self.places.items() if other[: len(path)] == path and place.line == 0), None)
        if path and path not in self.places and below is not None:
            return path[:-1], below
        known = next((path[:n] for n in range(len(path), -1, -1) if path[:n] in self.places), ())
        return known, self.places.get(known, Place("configuration", 1, 1))

    def blame(self, path: FieldPath, sentence: str) -> None:
        """Note a mistake at `path`."""
        self.faults.append((self.place(path)[1], self.line(path, sentence)))

    def line(self, path: FieldPath, sentence: str) -> str:
        """Return the finished line of one mistake: `file:line:column: field: sentence`."""
        known, place = self.place(path)
        if place.line:
            return f"{place.file}:{place.line}:{place.column}: {dotted(path) + ': ' if path else ''}{sentence}"
        return f"{place.file}: {'' if known == path else dotted(path) + ': '}{sentence}"


def dotted(path: FieldPath) -> str:
    """`('topology', 'links', 0)` -> `'topology.links.0'`."""
    return ".".join(str(p) for p in path)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, Any] = {}


_INT = re.compile(r"[-+]?[0-9][0-9_]*$|0x[0-9a-fA-F]+$")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$")
_BOOL = re.compile(r"(true|True|TRUE|false|False|FALSE)$")
_NULL = re.compile(r"(~|null|Null|NULL|)$")
for _tag, _pattern in (("null", _NULL), ("bool", _BOOL), ("int", _INT), ("float", _FLOAT)):
    _Loader.add_implicit_resolver("tag:yaml.org,2002:" + _tag, _pattern, None)


def _scalar(node: yaml.ScalarNode) -> Any:
    text, tag = node.value, node.tag.rpartition(":")[2]
    if tag == "int":
        return int(text.replace("_", ""), 16 if "x" in text else 10)
    if tag == "float":
        return float(text.replace("_", "").replace(".inf", "inf").replace(".Inf", "inf").replace(".INF", "inf").replace(".nan", "nan"))
    return {"bool": text[:1] in "tT", "null": None}.get(tag, text)


def _unfold(node: yaml.Node, path: FieldPath, place: Place, doc: Document, above: tuple[int, ...] = ()) -> Any:
    """Turn a YAML node into plain data and note the place of every key and item below `path`."""

    def spot(child: yaml.Node) -> Place:
        return place if place.line == 0 else Place(place.file, child.start_mark.line + 1, child.start_mark.column + 1)

    doc.places[path] = place
    if id(node) in above:
        doc.blame(path, "expected a value; got an alias that contains itself")
        return None
    above = (*above, id(node))
    if isinstance(node, yaml.SequenceNode):
        return [_unfold(child, (*path, i), spot(child), doc, above) for i, child in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    mapping: dict[Any, Any] = {}
    for key_node, child in node.value:
        key = _scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else str(key_node.tag)
        here = (*path, key)
        if key in mapping:
            first = doc.places[here].line
            doc.places[here] = spot(key_node)
            doc.blame(here, f"expected every key once; got it again (first in line {first})")
            continue
        mapping[key] = _unfold(child, here, spot(key_node), doc, above)
    return mapping


def parse(text: str, name: str, path: FieldPath = (), from_set: bool = False) -> Document:
    """Parse YAML `text`, called `name` in messages, as the value at `path`; raises InputError where it is no YAML."""
    doc = Document({}, {path: Place(name, 0 if from_set else 1, 1)})
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.composer.ComposerError:
        raise InputError(f"{name}: expected one document; got several (separated by ---) or an unknown alias") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        spot = f":{mark.line + 1}:{mark.column + 1}" if mark and not from_set else ""
        raise InputError(f"{name}{spot}: expected YAML; got a mistake: {error.problem}") from None
    except UnicodeEncodeError:
        raise InputError(f"{name}: expected text in UTF-8; got other bytes") from None
    except yaml.YAMLError as error:
        raise InputError(f"{name}: expected YAML; got a mistake: {str(error).splitlines()[0]}") from None
    doc.data = _unfold(node, path, doc.places[path], doc) if node is not None else None
    return doc


def read(file: str | Path, path: FieldPath = ()) -> Document:
    """Read a YAML file as the value at `path`; an empty file is an empty mapping. Raises InputError naming the file."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        folder = Path(file).parent
        known = [str(p) for p in folder.glob("*.y*ml")] if folder.is_dir() else []
        raise InputError(f"{file}: expected a YAML file; got no such file{did_you_mean(str(file), known)}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: expected text in UTF-8; got other bytes") from None
    except (OSError, ValueError) as error:  # a path that holds a null byte is a ValueError
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(f"{file}: expected a file that can be read; got: {reason}") from None
    doc = parse(text, str(file), path)
    if doc.data is None:
        doc.data = {}
    if not isinstance(doc.data, dict):
        kind = "list" if isinstance(doc.data, list) else "single value"
        raise InputError(doc.line(path, f"expected a mapping of keys to values; got a {kind}"))
    return doc
