"""The resolved configuration: a run with all its defaults, as plain data that loads again to an equal run, and its hash."""

import dataclasses
import hashlib
import json
from typing import Any

from netsim.config import shape


def plain(value: Any, tp: Any = None) -> Any:
    """Turn a section into mappings, lists and scalars; quantities become text with a unit that parses to the same value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = shape.attributes(type(value))
        return {key: plain(getattr(value, names[key]), hint) for key, hint in shape.hints(type(value)).items()}
    if isinstance(value, dict):
        return {key: plain(inner, shape.child(tp, value, key)) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [plain(inner, shape.child(tp, value, i)) for i, inner in enumerate(value)]
    unit = shape.unit(tp) if isinstance(value, int | float) and not isinstance(value, bool) else None
    return unit.write(value) if unit else value


def resolved(run: Any) -> dict[str, Any]:
    """Return a run (or a section) with every default spelt out."""
    data = plain(run)
    assert isinstance(data, dict)
    return data


def config_hash(run: Any) -> str:
    """Return 16 hexadecimal digits that tell two configurations apart; the order of keys does not matter."""
    text = json.dumps(_canonical(resolved(run)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _canonical(data: Any) -> Any:
    """Equal data in equal form: text keys, and 1 for 1.0."""
    if isinstance(data, dict):
        return {str(key): _canonical(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_canonical(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data


def dump(run: Any) -> str:
    """Return the resolved configuration as YAML."""
    import yaml

    return yaml.safe_dump(resolved(run), sort_keys=False, allow_unicode=True, width=140)
