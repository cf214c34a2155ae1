"""`use: NAME_OR_PATH` takes a ready YAML file into a section; keys beside it override. `--set a.b=value` overrides both.

A name is looked up in the library of its section, a path (with a slash, or ending in `.yaml`) is relative to the file that names it.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from netsim.config import shape
from netsim.config.source import Document, FieldPath, Place, dotted, parse, read
from netsim.errors import InputError, did_you_mean

LIBRARIES: dict[FieldPath, tuple[str, str]] = {
    ("topology",): ("topologies", "."),
    ("workload", "model"): ("workload", "models"),
    ("compute", "device"): ("compute", "devices"),
}
"""Section -> package and folder of its ready files. The run as a whole may `use` another run file by its path."""

COMMAND_LINE = Place("--set", 0, 0)


def library(section: FieldPath) -> Path | None:
    """Return the folder of the ready files of a section (of the packages as installed; nothing is imported)."""
    package, folder = LIBRARIES.get(section, ("", ""))
    spec = find_spec(package) if package else None
    return Path(spec.submodule_search_locations[0], folder) if spec and spec.submodule_search_locations else None


def ready_names(section: FieldPath) -> list[str]:
    """Names that `use` of a section takes."""
    folder = library(section)
    return sorted(p.stem for p in folder.glob("*.yaml")) if folder else []


def find(name: str, section: FieldPath, beside: Path) -> Path | str:
    """Return the file that `use: name` means in a file of the folder `beside`, or the sentence that says why there is none."""
    folder = library(section)
    if "/" in name or name.endswith((".yaml", ".yml")):
        file = beside / name
        return file if file.is_file() else f"expected a file that exists; got {name!r} (no {_short(file)})"
    if folder is None:
        return f"expected the path of a YAML file; got {name!r}"
    if (folder / f"{name}.yaml").is_file():
        return folder / f"{name}.yaml"
    known = ready_names(section)
    hint = did_you_mean(name, known) or f"; there are {', '.join(known) or 'none'}"
    return f"expected the name of a file in {'/'.join(LIBRARIES[section]).removesuffix('/.')}, or a path; got {name!r}{hint}"


def _short(file: Path) -> str:
    """The path relative to the working directory where it lies below it."""
    whole = Path(os.path.normpath(file.absolute()))
    return str(whole.relative_to(Path.cwd())) if whole.is_relative_to(Path.cwd()) else str(whole)


def merge(base: Any, over: Any) -> Any:
    """Deep merge: mappings key by key, everything else replaced by `over`."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {key: merge(base[key], over[key]) if key in base and key in over else over.get(key, base.get(key)) for key in base | over}


def own_names(doc: Document, data: Any, path: FieldPath, tp: Any) -> None:
    """Rename fields that are written under another of their names (`num_layers`), here and below, so that files merge key by key."""
    section = shape.section_of(tp, data)
    if section is not None and isinstance(data, dict):
        known = shape.aliases(section)
        for alias in [key for key in data if key in known]:
            new = known[alias]
            if new in data:
                doc.blame((*path, alias), f"expected every field once; got it also as {new!r}")
            else:
                here, there = (*path, alias), (*path, new)
                doc.places |= {there + p[len(here) :]: place for p, place in doc.places.items() if p[: len(here)] == here}
                data[new] = data[alias]
            del data[alias]
    for key, inner in list(data.items()) if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        own_names(doc, inner, (*path, key), shape.child(tp, data, key))


def expand(doc: Document, root: FieldPath, broken: set[FieldPath], cls: type) -> None:
    """Resolve every `use` of a document of type `cls` that stands at `root`; sections whose file is missing are added to `broken`."""
    own_names(doc, doc.data, root, cls)
    for section in sorted({(), *LIBRARIES}, key=len):
        if section[: len(root)] == root:
            _expand_section(doc, root, section, broken, cls, ())


def _expand_section(doc: Document, root: FieldPath, section: FieldPath, broken: set[FieldPath], cls: type, seen: tuple[Path, ...]) -> None:
    inner = section[len(root) :]
    here = shape.value_at(doc.data, inner)
    if not isinstance(here, dict) or "use" not in here:
        return
    at_use = (*section, "use")
    name, place = here.pop("use"), doc.places.get(at_use, doc.places[root])
    beside = Path(place.file).parent if place.line else Path()
    found = find(name, section, beside) if isinstance(name, str) else f"expected the name or path of a ready file; got {name!r}"
    if isinstance(found, Path) and found.resolve() in seen:
        found = f"expected a chain of files that ends; got {name!r} again"
    if isinstance(found, str):
        doc.blame(at_use, found)
        broken.add(section)
        return
    base = read(_short(found), section)
    own_names(base, base.data, section, shape.at(cls, doc.data, inner))
    doc.places = base.places | doc.places
    doc.faults += base.faults
    merged = merge(base.data, here)
    if inner:
        shape.value_at(doc.data, inner[:-1])[inner[-1]] = merged
    else:
        doc.data = merged
    if "use" in base.data:
        doc.places[at_use] = base.places[at_use]
        _expand_section(doc, root, section, broken, cls, (*seen, found.resolve()))


def override(doc: Document, root: FieldPath, settings: tuple[str, ...], cls: type) -> None:
    """Apply `a.b.c=value` settings in order; the value is YAML, so `[1, 2]` is a list. Field paths are relative to the document."""
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not all(name.strip().split(".")):
            doc.faults.append((COMMAND_LINE, f"--set {setting}: expected 'section.field=value'; got {setting!r}"))
            continue
        path = root + tuple(int(part) if part.isdecimal() else part for part in name.strip().split("."))
        try:
            value = parse(text.strip(), f"--set {name.strip()}", path, from_set=True)
        except InputError as error:
            doc.faults += [(COMMAND_LINE, line) for line in error.lines]
            continue
        set_at = _assign(doc, root, path, value.data, cls)
        if set_at:
            value.places = {set_at + p[len(path) :]: place for p, place in value.places.items()}
            doc.places = {p: place for p, place in doc.places.items() if p[: len(set_at)] != set_at} | value.places
            doc.faults += value.faults


def _assign(doc: Document, root: FieldPath, path: FieldPath, value: Any, cls: type) -> FieldPath:
    """Set one value, opening mappings on the way, and return its path in own names; () and a fault where a plain value is in the way."""
    target, tp, done = doc.data, cls, root
    for depth, key in enumerate(path[len(root) :], len(root)):
        if isinstance(target, dict):
            section = shape.section_of(tp, target)
            key = next((k for k in target if str(k) == str(key)), shape.aliases(section).get(str(key), key) if section else key)
        elif not (isinstance(target, list) and isinstance(key, int) and key < len(target)):
            there = f"a list of {len(target)}" if isinstance(target, list) else repr(target)
            line = f"--set {dotted(path[len(root) :])}: expected a field of {dotted(done)}; got {there} there"
            doc.faults.append((COMMAND_LINE, line))
            return ()
        tp, done = shape.child(tp, target, key), (*done, key)
        if depth == len(path) - 1:
            target[key] = value
        elif isinstance(target, dict) and target.get(key) is None:
            target[key] = {}
        target = target[key]
    return done
