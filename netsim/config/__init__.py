"""Configuration: one frozen dataclass per section of a run file, and the loader that checks them all at once."""

from typing import TYPE_CHECKING, Any

from netsim.config.load import from_data, load, load_section
from netsim.config.places import placed, places
from netsim.config.resolve import config_hash, dump, resolved

if TYPE_CHECKING:
    from netsim.config.run import Run as Run

__all__ = ["Run", "config_hash", "dump", "from_data", "load", "load_section", "placed", "places", "resolved"]


def __getattr__(name: str) -> Any:
    """Import `Run`, and with it every section, only when it is asked for."""
    if name == "Run":
        from netsim.config.run import Run

        return Run
    raise AttributeError(f"module 'netsim.config' has no attribute {name!r}")
