"""From a document to a validated, frozen section: pydantic finds every mistake, this module says it in the user's terms.

Pydantic reports a mistake by its location in the types, which for a union names the alternatives that failed. Here each becomes one
line per field: what the field takes, and what stands there.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from netsim.config import shape
from netsim.config.source import Document, FieldPath
from netsim.errors import InputError, did_you_mean

T = TypeVar("T")


def validate(doc: Document, cls: type[T], root: FieldPath, silent: set[FieldPath]) -> T:
    """Return the section that a document describes, or raise InputError with a line for every mistake, in order of place.

    `root` is the path of the document in the whole configuration. Below the paths in `silent` a file is known to be missing already, and
    nothing more is said.
    """
    mistakes: dict[FieldPath, str] = {}
    result = _checked(cls, doc.data, root, mistakes)
    ruled = [(root, result)] if result is not None else _valid_parts(doc, cls, root, mistakes)
    for path, part in ruled:
        for name, sentence in problems(part):
            mistakes.setdefault(_resolve(doc, root, path, name), sentence)
    told = [(doc.place(path)[1], doc.line(path, s)) for path, s in mistakes.items() if not any(path[: len(b)] == b for b in silent)]
    if told or doc.faults:
        raise InputError(dict.fromkeys(line for _, line in sorted([*doc.faults, *told])))
    assert result is not None
    return result


def forbid_unknown(tp: Any) -> None:
    """Make every section below a type refuse keys that it does not have."""
    for section in shape.sections(tp):
        if "__pydantic_config__" not in vars(section):
            section.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
        for hint in shape.hints(section).values():
            for inner in (hint, *(a for m in shape.members(hint) for a in getattr(shape.bare(m)[0], "__args__", ()))):
                forbid_unknown(inner)


def problems(part: Any) -> Iterator[tuple[str, str]]:
    """Yield (dotted field, sentence) for every rule between fields that a section or one inside it breaks."""
    rules: Callable[[], Iterator[tuple[str, str]]] | None = getattr(part, "problems", None)
    if rules is not None:
        yield from rules()
    if dataclasses.is_dataclass(part):
        for f in dataclasses.fields(part):
            for name, sentence in problems(getattr(part, f.name)):
                yield f"{f.name}.{name}", sentence
    elif isinstance(part, tuple | list | dict):
        for key, inner in part.items() if isinstance(part, dict) else enumerate(part):
            for name, sentence in problems(inner):
                yield f"{key}.{name}", sentence


def _resolve(doc: Document, root: FieldPath, path: FieldPath, name: str) -> FieldPath:
    """Path of a dotted name, with list positions as numbers."""
    found, data = path, shape.value_at(doc.data, path[len(root) :])
    for part in name.split("."):
        key: str | int = int(part) if isinstance(data, list) and part.isdecimal() else part
        found, data = (*found, key), shape.value_at(data, (key,))
    return found


def _checked(tp: Any, data: Any, path: FieldPath, mistakes: dict[FieldPath, str]) -> Any:
    """Validate `data`, which stands at `path`, as `tp`; None, and the mistakes noted, where it is wrong."""
    try:
        return (_adapter(tp) if isinstance(tp, type) else TypeAdapter(tp)).validate_python(data)
    except ValidationError as error:
        for inner, sentence in _sentences(error, tp, data):
            mistakes.setdefault(path + inner, sentence)
        return None


@cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    """Building an adapter takes longer than using it; studies load many runs."""
    forbid_unknown(cls)
    return TypeAdapter(cls)


def _valid_parts(doc: Document, cls: type, root: FieldPath, mistakes: dict[FieldPath, str]) -> list[tuple[FieldPath, Any]]:
    """The fields of a faulty section that are sound by themselves, so that their own rules can be checked too."""
    sound = []
    for name, tp in shape.hints(cls).items():
        path = (*root, name)
        if name in doc.data and shape.sections(tp) and not any(wrong[: len(path)] == path for wrong in mistakes):
            sound.append((path, _checked(tp, doc.data[name], path, {})))
    return sound


def _sentences(error: ValidationError, tp: Any, data: Any) -> Iterator[tuple[FieldPath, str]]:
    """Yield (path, sentence) once per field; of a union that failed in several ways, what it takes as a whole."""
    found: dict[FieldPath, list[Any]] = {}
    for detail in error.errors(include_url=False):
        found.setdefault(_path(detail["loc"], detail["type"], data), []).append(detail)
    for path, details in found.items():
        nested = any(len(other) > len(path) and other[: len(path)] == path for other in found)
        if not (nested and isinstance(shape.value_at(data, path), dict | list)):
            yield path, _sentence(path, details, tp, data)


def _path(loc: tuple[str | int, ...], kind: str, data: Any) -> FieldPath:
    """Keep of pydantic's location what names a key or an item; drop the names of alternatives."""
    path: FieldPath = ()
    for i, part in enumerate(loc):
        last = i == len(loc) - 1
        if (isinstance(data, dict) and part in data) or (isinstance(data, list) and isinstance(part, int)):
            path, data = (*path, part), shape.value_at(data, (part,))
        elif last and kind == "missing":
            path = (*path, part)
    return path


def _sentence(path: FieldPath, details: list[Any], tp: Any, data: Any) -> str:
    first, value = details[0], shape.value_at(data, path)
    if first["type"] == "unexpected_keyword_argument":
        owner = shape.section_of(shape.at(tp, data, path[:-1]), shape.value_at(data, path[:-1]))
        known = [*shape.hints(owner), *shape.aliases(owner)] if owner else []
        listed = f"one of {', '.join(shape.hints(owner))}" if owner and len(shape.hints(owner)) <= 12 else "a known key"
        return f"expected {listed}; got the key {str(path[-1])!r}{did_you_mean(str(path[-1]), known)}"
    if first["type"].startswith("union_tag"):
        kinds = [c for s in shape.sections(shape.at(tp, data, path)) for c in shape.choices(shape.hints(s).get("kind"))]
        kind = value.get("kind") if isinstance(value, dict) else None
        got = f"kind: {kind}" if kind is not None else "no kind"
        return f"expected kind: {' or kind: '.join(kinds)}; got {got}{did_you_mean(str(kind), kinds)}"
    field_type = shape.at(tp, data, path)
    if first["type"] == "missing":
        return f"expected {shape.describe(field_type)}; got nothing"
    if first["type"] == "value_error" and len(details) == 1:
        return f"{first['ctx']['error']!s}; got {show(value)}"
    if field_type is None or "[key]" in first["loc"]:
        return f"expected {first['msg'].removeprefix('Input should be ')}; got {show(value)}"
    hint = did_you_mean(value, shape.choices(field_type)) if isinstance(value, str) else ""
    if isinstance(value, str) and shape.sections(field_type) and len(shape.members(field_type)) == 1:
        hint = f"; did you mean 'use: {value}' below it?"
    return f"expected {shape.describe(field_type)}; got {show(value)}{hint}"


def show(value: Any) -> str:
    """How a value is quoted in an error."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return f"a {'section' if isinstance(value, dict) else 'list'} of {len(value)}"
    return str(value).lower() if isinstance(value, bool) else repr(value)
