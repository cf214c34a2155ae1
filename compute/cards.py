"""Device cards by name or path, outside of run files: for the command line, scripts and tests."""

from pathlib import Path

from netsim.config import load_section
from netsim.config.compute import DeviceCard
from netsim.errors import InputError, did_you_mean

FOLDER = Path(__file__).parent / "devices"


def names() -> list[str]:
    """Names of the shipped cards."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def card(name: str) -> DeviceCard:
    """The shipped card of that name, or the one in the file at that path."""
    path = FOLDER / f"{name}.yaml"
    if not path.is_file():
        path = Path(name)
    if not path.is_file():
        raise InputError(f"device: expected a YAML file or one of {', '.join(names())}; got '{name}'{did_you_mean(name, names())}")
    return load_section(path, DeviceCard)
