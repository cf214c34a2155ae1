"""No congestion control: every queue pair sends at line rate whenever the NIC lets it."""

from typing import NamedTuple

from netsim.kernels.packet import cc as hooks
from netsim.kernels.structs import Array

PARAMETERS: dict[str, tuple[str, str, str]] = {}
ACKS = CNPS = TELEMETRY = False
STATE = 1


class Parameters(NamedTuple):
    """Nothing to set; numba wants one field."""

    unused: float = 0.0


@hooks.implements(Parameters, hooks.start)
def start(cc: Parameters, state: Array, f: int, line: float, base_rtt: int, hops: int, mtu: int) -> None:
    """Nothing to keep."""


@hooks.implements(Parameters, hooks.notify)
def notify(cc: Parameters, state: Array, f: int, t: int) -> None:
    """Ignore it."""


@hooks.implements(Parameters, hooks.acknowledge)
def acknowledge(
    cc: Parameters, state: Array, f: int, t: int, rtt: int, packets: int, marked: bool, acked: int, sent: int, telemetry: Array, at: int
) -> None:
    """Ignore it."""


@hooks.implements(Parameters, hooks.gap)
def gap(cc: Parameters, state: Array, f: int, t: int, nbytes: int) -> int:
    """No gap beyond the packet's own time."""
    return 0


@hooks.implements(Parameters, hooks.window)
def window(cc: Parameters, state: Array, f: int) -> float:
    """No limit."""
    return 1e18
