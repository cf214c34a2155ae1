"""A lower bound of the time at which the next call completes, so that whoever drives the engine may look away until then.

A call cannot complete before the packets that it has yet to send have left the port that has most of them, nor before anything happens at
all: what has been received up to now has been dealt with, and what is sent from now on takes a link's latency to arrive. Bounds stay valid
as time passes, so each call keeps its own, and only those that are least are computed again.
"""

from numba import njit

from netsim.kernels.packet import layout as k
from netsim.kernels.packet.advance import earliest, first_done
from netsim.kernels.packet.port import transfer
from netsim.kernels.packet.tables import Tables
from netsim.kernels.structs import Array


@njit(cache=True)
def next_completion(s: Tables) -> int:
    """Return the bound, NEVER where no call is under way."""
    now, done, event = s.scal[k.NOW], first_done(s), next_arrival(s)
    while True:
        least, which = done, -1
        for i in range(s.scal[k.LIVE_CALLS]):
            c = s.live[i] << k.CALL
            if s.call[c + k.BOUND] < least:
                least, which = s.call[c + k.BOUND], c
        if which < 0 or s.call[which + k.BOUND_AT] == now:
            return max(least, min(event, done))
        s.call[which + k.BOUND] = max(event, now + unsent_ps(s, which))
        s.call[which + k.BOUND_AT] = now


@njit(cache=True)
def next_arrival(s: Tables) -> int:
    """Return a time before which no message can arrive at a GPU, NEVER where nothing is on its way."""
    n_blocks = (s.scal[k.N_VERTICES] + 31) >> k.BLOCK_SHIFT
    event = min(earliest(s.receive_block, n_blocks), max(s.scal[k.NOW], earliest(s.send_block, n_blocks)) + s.scal[k.LEAST_LATENCY])
    return min(event, k.NEVER)


@njit(cache=True)
def part_bounds(s: Tables, reach: int, found: Array) -> None:
    """Write for each call under way its instance and a time before which the ports played here cannot have sent their share of it; what is
    no further than `reach` away is computed afresh.
    """
    now = s.scal[k.NOW]
    for i in range(s.scal[k.LIVE_CALLS]):
        c = s.live[i] << k.CALL
        if s.call[c + k.BOUND] <= now + reach and s.call[c + k.BOUND_AT] != now:
            s.call[c + k.BOUND], s.call[c + k.BOUND_AT] = now + unsent_ps(s, c), now
        found[2 * i], found[2 * i + 1] = s.call[c + k.INSTANCE], s.call[c + k.BOUND]


@njit(cache=True)
def unsent_ps(s: Tables, c: int) -> int:
    """Return how long the busiest port of a call needs for what it has not sent yet, or its slowest edge at its pace; of those played
    here.
    """
    edge, tx, most, now = s.edge, s.tx, 0, s.scal[k.NOW]
    first, last = s.call[c + k.CALL_EDGE_0], s.call[c + k.CALL_EDGE_0] + s.call[c + k.CALL_EDGES]
    for adding in (False, True):
        for e in range(first, last):
            o = e << k.EDGE
            if s.mine[edge[o + k.SRC_GPU]] == 0:
                continue
            waiting = edge[o + k.EDGE_MSGS] - edge[o + k.READY_MSGS] - 1
            if waiting >= 0 and not adding:
                most = max(most, max(0, edge[o + k.NEXT_PS] - now) + waiting * edge[o + k.GAP_PS] + edge[o + k.COPY_LAST])
            if edge[o + k.SCALE_UP_EDGE] != 0:
                continue
            for f in range(edge[o + k.FLOW_0], edge[o + k.FLOW_0] + edge[o + k.FLOWS]):
                x, u = f << k.TX, tx[(f << k.TX) + k.UPLINK]
                if not adding:
                    s.load[u] = 0
                    continue
                ser, per_byte = s.port[(u << k.PORT) + k.SER], s.ps_per_byte[u]
                if waiting >= 0:
                    s.load[u] += waiting // edge[o + k.QPS] * ((tx[x + k.PER_MESSAGE] - 1) * ser + transfer(s.size[(f << 2) + 1], per_byte))
                    if edge[o + k.QPS] == 1:
                        s.load[u] += (tx[x + k.LAST_MESSAGE] - 1) * ser + transfer(s.size[(f << 2) + 2], per_byte)
                open_ = tx[x + k.AVAIL] - tx[x + k.SENT]
                s.load[u] += (open_ - open_ // tx[x + k.PER_MESSAGE] - 1) * ser if open_ > 1 else 0
                if s.load[u] > 0:
                    most = max(most, s.load[u] + s.port[(u << k.PORT) + k.LATENCY])
    return most
