"""What a section takes: its fields with their types and defaults, and the words of its docstring."""

import dataclasses
import inspect
from typing import Any

from netsim.config import shape
from netsim.config.resolve import plain
from netsim.config.run import Run
from netsim.config.use import LIBRARIES, ready_names
from netsim.errors import InputError, did_you_mean


def section(name: str) -> list[type]:
    """The classes of the section with a dotted name ('' is the run as a whole); several where a `kind` tells them apart."""
    found: list[type] = [Run]
    for depth, part in enumerate(name.split(".") if name else [], 1):
        known = {key: hint for cls in found for key, hint in shape.hints(cls).items() if _inner(hint)}
        if part not in known:
            whole = ".".join(name.split(".")[:depth])
            listed = ", ".join(known) or "there are none inside"
            raise InputError(f"{whole}: expected a section ({listed}); got {part!r}{did_you_mean(part, known)}")
        found = _inner(known[part])
    return found


def _inner(hint: Any) -> list[type]:
    """Sections of a type, also as items of a list or mapping."""
    parts = [hint, *(a for m in shape.members(hint) for a in getattr(shape.bare(m)[0], "__args__", ()))]
    return [s for part in parts for s in shape.sections(part)]


def rows(cls: type) -> list[dict[str, Any]]:
    """One row per field: its key, what it takes, its default (None where it must be given), whether it must, its other names."""
    defaults = {f.name: f for f in dataclasses.fields(cls)}
    found = []
    for key, hint in shape.hints(cls).items():
        f = defaults[shape.attributes(cls)[key]]
        made: Any = f.default_factory
        required = f.default is dataclasses.MISSING and made is dataclasses.MISSING
        value = made() if made is not dataclasses.MISSING else None if required else f.default
        other = [alias for alias, name in shape.aliases(cls).items() if name == key]
        found.append({"field": key, "takes": _takes(hint), "default": plain(value, hint), "required": required, "also": other})
    return found


def _takes(hint: Any) -> str:
    inner = _inner(hint)
    return f"section ({' | '.join(cls.__name__ for cls in inner)})" if inner else shape.describe(hint)


def text(name: str) -> str:
    """Explain the section with a dotted name, for a terminal."""
    parts = []
    for cls in section(name):
        table = rows(cls)
        width = max(len(row["field"]) for row in table)
        lines = [f"{name or 'run file'} ({cls.__name__})", "", inspect.getdoc(cls) or "", ""]
        lines += [f"  {row['field']:{width}}  {row['takes']}{_default(row)}" for row in table]
        ready = ready_names(tuple(name.split(".")))
        lines += ["", f"ready ones, taken with use: {', '.join(ready)}"] if tuple(name.split(".")) in LIBRARIES and ready else []
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _default(row: dict[str, Any]) -> str:
    also = f"; also written {', '.join(row['also'])}" if row["also"] else ""
    if row["required"]:
        return f" (must be given{also})"
    value = row["default"]
    return f" (default: {'none' if value is None else value}{also})" if not isinstance(value, dict) else ""
