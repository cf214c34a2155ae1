"""netsim: a packet- and flow-level network co-simulator for LLM training clusters."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netsim.telemetry.read import open_run as open_run

__version__ = "0.1.0"
__all__ = ["__version__", "open_run"]


def __getattr__(name: str) -> Any:
    """`netsim.open_run` is imported when it is asked for: HDF5 takes its time on every rank."""
    if name == "open_run":
        from netsim.telemetry.read import open_run

        return open_run
    raise AttributeError(f"module 'netsim' has no attribute '{name}'")
