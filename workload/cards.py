"""Ready-made model cards in workload/models."""

from pathlib import Path

import yaml
from pydantic import TypeAdapter

from netsim.config.model import Model
from netsim.errors import InputError, did_you_mean

FOLDER = Path(__file__).parent / "models"


def names() -> list[str]:
    """Names of all ready-made cards."""
    return sorted(p.stem for p in FOLDER.glob("*.yaml"))


def load_model(name: str, **changes: object) -> Model:
    """Return a ready-made card, with single figures changed."""
    path = FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise InputError(f"{name}: expected one of {', '.join(names())}{did_you_mean(name, names())}")
    return TypeAdapter(Model).validate_python(yaml.safe_load(path.read_text()) | changes)
