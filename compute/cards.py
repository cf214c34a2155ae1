"""Device cards by name or path, outside of run files: for the command line, scripts and tests."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from netsim.config.compute import DeviceCard
from netsim.errors import InputError, did_you_mean

FOLDER = Path(__file__).parent / "devices"


def names() -> list[str]:
    """Names of the shipped cards."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find(name: str) -> Path:
    """The shipped card of that name, or the file at that path."""
    path = FOLDER / f"{name}.yaml"
    if path.is_file():
        return path
    if Path(name).is_file():
        return Path(name)
    raise InputError(f"device: expected a YAML file or one of {', '.join(names())}; got '{name}'{did_you_mean(name, names())}")


def card(name: str) -> DeviceCard:
    """Read and check a card; `use` in it takes another card as its base."""
    path = find(name)
    try:
        result = TypeAdapter(DeviceCard).validate_python(_content(path))
    except ValidationError as error:
        raise InputError([f"{path}: {'.'.join(map(str, e['loc']))}: {e['msg']}; got {e['input']!r}" for e in error.errors()]) from None
    if wrong := [f"{path}: {field}: {sentence}" for field, sentence in result.problems()]:
        raise InputError(wrong)
    return result


def _content(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise InputError(f"{path}: expected YAML; got {str(error).splitlines()[0]}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a mapping of figures; got {type(content).__name__}")
    if base := content.pop("use", None):
        return _merge(_content(find(str(base))), content)
    return content


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    return base | {k: _merge(base[k], v) if isinstance(v, dict) and isinstance(base.get(k), dict) else v for k, v in over.items()}
