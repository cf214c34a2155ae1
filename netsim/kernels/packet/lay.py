"""Open queue pairs and start what runs on them."""

import numpy as np
from numba import njit

from netsim.kernels.packet import cc as hooks
from netsim.kernels.packet import layout as K
from netsim.kernels.packet.calls import ended, gpu_event
from netsim.kernels.packet.port import flow_event, wake_port
from netsim.kernels.packet.tables import Tables
from netsim.kernels.structs import Array


@njit(cache=True)
def packets(nbytes: int, payload: int) -> int:
    """Return how many packets carry `nbytes`; one that carries nothing where there are none."""
    return max(1, -(-nbytes // payload))


@njit(cache=True)
def open_paths(
    s: Tables, cc: tuple, first: int, ahead_ptr: Array, ahead: Array, back_ptr: Array, back: Array, nbytes: Array,
    message: Array, messages: Array, edge: Array, gpu: Array, to_gpu: Array, group: Array, whole: Array,
) -> None:  # fmt: skip
    """Fill the rows of flows `first` onwards: paths, sizes, counters. Messages of `whole` flows travel as they are, others in packets."""
    port, payload, header = s.port, s.scal[K.PAYLOAD], s.scal[K.MTU] - s.scal[K.PAYLOAD]
    for i in range(nbytes.size):
        f = first + i
        x, r, p = f << K.TX, f << K.RX, f << K.PATH_SHIFT
        for h in range(16):
            s.path[p + h] = -1
            s.tx[x + h] = s.tx[x + 16 + h] = s.rx[r + h] = 0
        n, m = ahead_ptr[i + 1] - ahead_ptr[i], back_ptr[i + 1] - back_ptr[i]
        for h in range(n):
            s.path[p + h] = ahead[ahead_ptr[i] + h]
        for h in range(m):
            s.path[p + 8 + h] = back[back_ptr[i] + h]
        full, last = message[i], nbytes[i] - message[i] * max(0, messages[i] - 1)
        if whole[i]:
            s.size[(f << 2) + 1], s.size[(f << 2) + 2] = full, last
            s.tx[x + K.PER_MESSAGE] = s.tx[x + K.LAST_MESSAGE] = 1
        else:
            s.tx[x + K.PER_MESSAGE], s.tx[x + K.LAST_MESSAGE] = packets(full, payload), packets(last, payload)
            s.size[(f << 2) + 1] = header + full - payload * (s.tx[x + K.PER_MESSAGE] - 1)
            s.size[(f << 2) + 2] = header + last - payload * (s.tx[x + K.LAST_MESSAGE] - 1)
        s.tx[x + K.MESSAGES] = messages[i]
        s.tx[x + K.LEFT] = s.rx[r + K.RX_LEFT] = s.tx[x + K.LAST_MESSAGE] if messages[i] == 1 else s.tx[x + K.PER_MESSAGE]
        s.tx[x + K.NEXT_READY] = -1
        s.tx[x + K.TX_EDGE] = s.rx[r + K.RX_EDGE] = edge[i]
        s.rx[r + K.RX_GPU], s.rx[r + K.TO_GPU], s.rx[r + K.RX_GROUP] = gpu[i], to_gpu[i], group[i]
        s.rx[r + K.LAST_CNP], s.rx[r + K.END] = -K.NEVER, -1
        u = np.int64(s.path[p])
        s.tx[x + K.UPLINK] = u
        s.rx[r + K.RX_LAST] = s.path[p + n - 1] if n > 0 else -1
        s.rx[r + K.RX_UPLINK] = np.int64(s.path[p + 8])
        if whole[i] or n == 0:
            continue
        way, round_trip = 0, 0
        for h in range(m):
            way += port[(s.path[p + 8 + h] << K.PORT) + K.LATENCY] + port[(s.path[p + 8 + h] << K.PORT) + K.SER_CONTROL]
        for h in range(n):
            round_trip += port[(s.path[p + h] << K.PORT) + K.LATENCY] + port[(s.path[p + h] << K.PORT) + K.SER]
        s.tx[x + K.RETURN] = way
        hooks.start(cc, s.cc, f, 1e12 / s.ps_per_byte[u], way + round_trip, n, s.scal[K.MTU])


@njit(cache=True)
def open_flows(s: Tables, first: int, t: Array) -> None:
    """Let the message of plain flow `first + i` leave at `t[i]`, where its NIC is played here."""
    for i in range(t.size):
        f = first + i
        u = s.tx[(f << K.TX) + K.UPLINK]
        if s.mine[s.link_src[u]] == 0:
            continue
        flow_event(s, u, K.EV_MESSAGE, f, t[i])
        wake_port(s, u, t[i])


@njit(cache=True)
def begin(s: Tables, c: int, t: int) -> None:
    """Start call `c`, whose edges are laid out, at `t`: reset its counters and let the edges go that wait for nothing.

    Where a call is played in parts, each has the edges that end at its own GPUs to wait for, and starts those that begin there.
    """
    edge, first = s.edge, s.call[(c << K.CALL) + K.CALL_EDGE_0]
    left = 0
    for e in range(first, first + s.call[(c << K.CALL) + K.CALL_EDGES]):
        o = e << K.EDGE
        edge[o + K.READY_MSGS] = edge[o + K.LANDED_MSGS] = edge[o + K.ARRIVED_MSGS] = edge[o + K.CONSUMED] = 0
        edge[o + K.NEXT_PS], edge[o + K.AWAITED], edge[o + K.ACROSS_MSGS] = 0, -1, 0
        left += edge[o + K.EDGE_MSGS] > 0 and s.mine[edge[o + K.DST_GPU]] != 0
        counters, unneeded = edge[o + K.TOKEN_0], 0
        for d in range(edge[o + K.RDEP_0], edge[o + K.RDEP_1]):
            after = (first + s.rdep_edge[d]) << K.EDGE
            unneeded = max(unneeded, edge[after + K.EDGE_MSGS] - s.rdep_lag[d])
            s.token[counters + s.rdep_token[d]] = 0
        s.token[counters] = unneeded
        for f in range(edge[o + K.FLOW_0], edge[o + K.FLOW_0] + edge[o + K.FLOWS]):
            s.rx[(f << K.RX) + K.RX_MESSAGE] = 0
            s.tx[(f << K.TX) + K.RESENT] = 0
    s.call[(c << K.CALL) + K.EDGES_LEFT] = left
    s.call[(c << K.CALL) + K.LAST_PS] = t
    s.scal[K.INSIDE_CALLS] += s.call[(c << K.CALL) + K.INSIDE]
    s.live[s.scal[K.LIVE_CALLS]] = c
    s.call[(c << K.CALL) + K.PLACE] = s.scal[K.LIVE_CALLS]
    s.call[(c << K.CALL) + K.BOUND] = t
    s.call[(c << K.CALL) + K.BOUND_AT] = -1
    s.scal[K.LIVE_CALLS] += 1
    if left == 0:
        ended(s, c)
    for e in range(first, first + s.call[(c << K.CALL) + K.CALL_EDGES]):
        o, waits = e << K.EDGE, s.mine[s.edge[(e << K.EDGE) + K.SRC_GPU]] == 0
        for d in range(edge[o + K.DEP_0], edge[o + K.DEP_1]):
            waits |= s.dep_lag[d] <= 0
        if not waits and edge[o + K.EDGE_MSGS] > 0:
            gpu_event(s, edge[o + K.SRC_GPU], t, (K.GPU_START << K.GPU_SHIFT) | (e << K.TOKEN_SHIFT))
