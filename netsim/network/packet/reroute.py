"""Routes after a link has failed or returned: when they change, which paths flows take then, and who can no longer be reached."""

import numpy as np

from netsim.config.network import Network
from netsim.errors import InputError
from netsim.kernels import routing
from netsim.kernels.packet import layout as k
from netsim.kernels.structs import Array, Routes, Topology
from netsim.network.packet.footprint import whole_paths
from netsim.units import format_time
from topologies.faults import with_rates
from topologies.tables import equal_cost, paths


def convergences(rate: Array, changes: list[tuple[int, int, float]], after_ps: int) -> list[int]:
    """Return when routing has converged: `after_ps` after each change that kills or revives a link; `rate` bytes/s at first."""
    rate, times = rate.copy(), set()
    for t, link, new in changes:
        if (new > 0) != (rate[link] > 0):
            times.add(t + after_ps)
        rate[link] = new
    return sorted(times)


def recovery(network: Network) -> int:
    """Return how packets that a failure has lost are sent again.

    Where packets of a flow take several paths, go-back-N would take every one that is overtaken for lost, and a lossless network has no
    other losses: receivers keep what is early, and senders go back after the timeout.
    """
    if network.recovery.mode == "selective":
        return k.SELECTIVE
    return k.GO_BACK_N if network.spreading == "flow" else k.TIMEOUTS


def routes_at(topology: Topology, routes: Routes, rate: Array) -> Routes:
    """Return the routes that are left at these rates."""
    return equal_cost(with_rates(topology, np.arange(rate.size), rate), routes.mode, routes.seed)


def new_paths(
    topology: Topology, routes: Routes, src: Array, dst: Array, qp: Array
) -> tuple[Array, tuple[Array, Array], tuple[Array, Array]]:
    """Return (mask of pairs that have a way there and back, and of those (ptr, links) out and back)."""
    lengths = [np.diff(routing.paths(topology, routes, a, b, qp)[0]) for a, b in ((src, dst), (dst, src))]
    reached = (lengths[0] > 0) & (lengths[1] > 0)
    return reached, *whole_paths(topology, routes, src[reached], dst[reached], qp[reached])


def refuse(topology: Topology, routes: Routes, src: Array, dst: Array, since_ps: int) -> None:
    """Raise `InputError` with the first of the pairs that have no way, since the time at which the last link failed."""
    try:
        for a, b in ((src, dst), (dst, src)):
            paths(topology, routes, a, b, np.zeros(src.size, np.int64))
    except InputError as error:
        raise InputError([f"{line}, from {format_time(since_ps)} on" for line in error.lines]) from None
