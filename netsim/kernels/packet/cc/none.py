"""No congestion control: every queue pair sends at line rate whenever the NIC lets it."""

from typing import NamedTuple

from netsim.kernels.packet import cc as hooks
from netsim.kernels.structs import Array

PARAMETERS: dict[str, tuple[str, str, str]] = {}
ACKS = CNPS = False


class Parameters(NamedTuple):
    """Nothing to set; numba wants one field."""

    unused: float = 0.0


@hooks.implements(Parameters, hooks.start)
def start(cc: Parameters, state: Array, f: int, line: float, base_rtt: int) -> None:
    """Start at line rate."""
    state[16 * f] = state[16 * f + 1] = line


@hooks.implements(Parameters, hooks.notify)
def notify(cc: Parameters, state: Array, f: int, t: int) -> None:
    """Ignore it."""


@hooks.implements(Parameters, hooks.acknowledge)
def acknowledge(cc: Parameters, state: Array, f: int, t: int, rtt: int, nbytes: int, marked: bool, hops: int, telemetry: Array) -> None:
    """Ignore it."""


@hooks.implements(Parameters, hooks.gap)
def gap(cc: Parameters, state: Array, f: int, t: int, nbytes: int) -> int:
    """No gap beyond the packet's own time."""
    return 0


@hooks.implements(Parameters, hooks.window)
def window(cc: Parameters, state: Array, f: int) -> float:
    """No limit."""
    return 1e18
