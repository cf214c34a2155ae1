"""The shape of a section: its fields, their types, and the words for them. One walk over types serves errors, dumps and explanations."""

import dataclasses
import types
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from netsim.config.fields import Unit
from netsim.config.source import FieldPath


@cache
def attributes(cls: type) -> dict[str, str]:
    """Key in a file -> attribute of the section; they differ where the key is a Python keyword (`from`)."""
    known = get_type_hints(cls, include_extras=True)
    settable = [f.name for f in dataclasses.fields(cls) if f.init]
    return {next((i.alias for i in bare(known[name])[1] if isinstance(getattr(i, "alias", None), str)), name): name for name in settable}


@cache
def hints(cls: type) -> dict[str, Any]:
    """Key -> type, with its annotations, of the fields that a file may set."""
    known = get_type_hints(cls, include_extras=True)
    return {key: known[name] for key, name in attributes(cls).items()}


@cache
def aliases(cls: type) -> dict[str, str]:
    """Other names under which a file may write a field -> its name."""
    found: dict[str, str] = {}
    for name, tp in hints(cls).items():
        for info in bare(tp)[1]:
            choices = getattr(info, "validation_alias", None)
            found |= {str(c): name for c in choices.choices} if isinstance(choices, AliasChoices) else {}
    return {alias: name for alias, name in found.items() if alias != name}


def bare(tp: Any) -> tuple[Any, tuple[Any, ...]]:
    """Split `Annotated[T, ...]` into T and its annotations."""
    return (get_args(tp)[0], tp.__metadata__) if get_origin(tp) is Annotated else (tp, ())


def members(tp: Any) -> list[Any]:
    """The alternatives of a union (flat, annotations kept); a list of one for any other type."""
    base, notes = bare(tp)
    if get_origin(base) in (Union, types.UnionType):
        return [m for part in get_args(base) for m in members(part)]
    return [Annotated[base, *notes] if notes else base]


def is_section(tp: Any) -> bool:
    """Whether a type is a section, that is a dataclass."""
    return isinstance(tp, type) and dataclasses.is_dataclass(tp)


def sections(tp: Any) -> list[type]:
    """The dataclasses among the alternatives of a type."""
    return [m for m in (bare(m)[0] for m in members(tp)) if is_section(m)]


def section_of(tp: Any, data: Any) -> type | None:
    """The dataclass that `data` means: the one whose `kind` it names, else the first."""
    candidates = sections(tp)
    kind = data.get("kind") if isinstance(data, dict) else getattr(data, "kind", None)
    named = [c for c in candidates if kind in get_args(bare(hints(c).get("kind"))[0])]
    return next(iter(named or candidates), None)


def child(tp: Any, data: Any, key: str | int) -> Any:
    """Type of the value under `key` of `data`, which has type `tp`; None where there is none."""
    section = section_of(tp, data)
    if section is not None:
        return hints(section).get(str(key))
    for base, args in ((get_origin(m), get_args(m)) for m in (bare(m)[0] for m in members(tp))):
        if base is dict:
            return args[1]
        if base in (tuple, list) and isinstance(key, int):
            return args[key] if base is tuple and Ellipsis not in args and key < len(args) else args[0]
    return None


def at(tp: Any, data: Any, path: FieldPath) -> Any:
    """Type of the value at `path` below `data`; None where the path leaves the known fields."""
    for key in path:
        tp = child(tp, data, key)
        if tp is None:
            return None
        data = value_at(data, (key,))
    return tp


def value_at(data: Any, path: FieldPath) -> Any:
    """The value at `path` of nested mappings and lists; None where there is none."""
    for key in path:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def choices(tp: Any) -> list[str]:
    """The words among the values that a type allows."""
    return [c for m in members(tp) for c in get_args(bare(m)[0]) if get_origin(bare(m)[0]) is Literal and isinstance(c, str)]


def unit(tp: Any) -> Unit | None:
    """The unit of a type, or of the alternative that has one."""
    return next((note for m in members(tp) for note in bare(m)[1] if isinstance(note, Unit)), None)


def describe(tp: Any) -> str:
    """What a value of the type looks like: `a time such as '2 us' or 'auto'`."""
    return " or ".join(dict.fromkeys(_phrases(tp)))


def _phrases(tp: Any) -> Iterator[str]:
    words = choices(tp)
    if words:
        yield ("one of " if len(words) > 2 else "") + (", " if len(words) > 2 else " or ").join(map(repr, words))
    for member in members(tp):
        base, notes = bare(member)
        if get_origin(base) is Literal:
            yield from (repr(c) for c in get_args(base) if not isinstance(c, str))
        elif base is not type(None):
            yield _phrase(base, notes)


def _phrase(base: Any, notes: tuple[Any, ...]) -> str:
    phrase = next((note.phrase for note in notes if isinstance(note, Unit)), None)
    if phrase:
        return phrase
    if is_section(base):
        return f"a section with {', '.join(list(hints(base))[:6])}{', ...' if len(hints(base)) > 6 else ''}"
    if get_origin(base) in (tuple, list):
        args = [a for a in get_args(base) if a is not Ellipsis]
        return "a list of: " + (describe(args[0]) if len(set(map(repr, args))) == 1 else ", ".join(map(describe, args)))
    if get_origin(base) is dict:
        return f"a mapping of keys to {describe(get_args(base)[1])}"
    plain = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(base, "a value")
    return plain + _bounds(notes)


def _bounds(notes: tuple[Any, ...]) -> str:
    """` of at least 1`, ` between 0 and 1`, ` above 0` from pydantic's constraints."""
    limits: dict[str, Any] = {}
    for note in notes:
        for part in note.metadata if isinstance(note, FieldInfo) else [note]:
            limits |= {name: getattr(part, name) for name in ("ge", "gt", "le", "lt") if getattr(part, name, None) is not None}
    low, high = limits.get("ge"), limits.get("le")
    if low is not None and high is not None and high < 2**53:
        return f" between {low} and {high}"
    words = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
    return " and".join(f" {words[name]} {value}" for name, value in limits.items() if name != "le" or value < 2**53)
