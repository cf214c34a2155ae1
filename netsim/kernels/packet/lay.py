"""Open queue pairs and start what runs on them."""

import numpy as np
from numba import njit

from netsim.kernels.packet import cc as hooks
from netsim.kernels.packet.calls import ended, gpu_event
from netsim.kernels.packet.layout import (
    BOUND, BOUND_AT, LIVE_CALLS, PLACE,
    ARRIVED_MSGS, CALL, CALL_EDGE_0, CALL_EDGES, CONSUMED, DEP_0, DEP_1, EDGE, EDGE_MSGS, EDGES_LEFT, END, EV_MESSAGE, FLOW_0, FLOW_SHIFT,
    FLOWS, GPU_SHIFT, GPU_START, HEAD, INPUT_SHIFT, LAST_CNP, LAST_MESSAGE, LAST_PS, LATENCY, LEFT, MESSAGES, MTU, N_LINKS, NEVER, NEXT_READY, PATH_SHIFT,
    PAYLOAD, PER_MESSAGE, PORT, RDEP_0, RDEP_1, READY_MSGS, RETURN, RX, RX_EDGE, RX_GPU, RX_GROUP, RX_LAST, RX_LEFT, RX_MESSAGE, RX_UPLINK, SER, SER_CONTROL, SRC_GPU,
    TO_GPU, TOKEN_0, TOKEN_SHIFT, TX, TX_EDGE, UPLINK,
)  # fmt: skip
from netsim.kernels.packet.ring import insert, wake
from netsim.kernels.structs import Array
from netsim.kernels.packet.tables import Tables


@njit(cache=True)
def packets(nbytes: int, payload: int) -> int:
    """Return how many packets carry `nbytes`; one that carries nothing where there are none."""
    return max(1, -(-nbytes // payload))


@njit(cache=True)
def open_paths(
    s: Tables, cc: tuple, first: int, ahead_ptr: Array, ahead: Array, back_ptr: Array, back: Array, nbytes: Array, message: Array, messages: Array,
    edge: Array, gpu: Array, to_gpu: Array, group: Array, whole: Array,
) -> None:  # fmt: skip
    """Fill the rows of flows `first` onwards: paths, sizes, counters. Messages of `whole` flows travel as they are, others in packets."""
    port, payload, header = s.port, s.scal[PAYLOAD], s.scal[MTU] - s.scal[PAYLOAD]
    for i in range(nbytes.size):
        f = first + i
        x, r, p = f << TX, f << RX, f << PATH_SHIFT
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
            s.tx[x + PER_MESSAGE] = s.tx[x + LAST_MESSAGE] = 1
        else:
            s.tx[x + PER_MESSAGE], s.tx[x + LAST_MESSAGE] = packets(full, payload), packets(last, payload)
            s.size[(f << 2) + 1] = header + full - payload * (s.tx[x + PER_MESSAGE] - 1)
            s.size[(f << 2) + 2] = header + last - payload * (s.tx[x + LAST_MESSAGE] - 1)
        s.tx[x + MESSAGES] = messages[i]
        s.tx[x + LEFT] = s.rx[r + RX_LEFT] = s.tx[x + LAST_MESSAGE] if messages[i] == 1 else s.tx[x + PER_MESSAGE]
        s.tx[x + NEXT_READY] = -1
        s.tx[x + TX_EDGE] = s.rx[r + RX_EDGE] = edge[i]
        s.rx[r + RX_GPU], s.rx[r + TO_GPU], s.rx[r + RX_GROUP] = gpu[i], to_gpu[i], group[i]
        s.rx[r + LAST_CNP], s.rx[r + END] = -NEVER, -1
        u = np.int64(s.path[p])
        s.tx[x + UPLINK] = u
        s.rx[r + RX_LAST] = s.path[p + n - 1] if n > 0 else -1
        s.rx[r + RX_UPLINK] = np.int64(s.path[p + 8])
        if whole[i] or n == 0:
            continue
        way, round_trip = 0, 0
        for h in range(m):
            way += port[(s.path[p + 8 + h] << PORT) + LATENCY] + port[(s.path[p + 8 + h] << PORT) + SER_CONTROL]
        for h in range(n):
            round_trip += port[(s.path[p + h] << PORT) + LATENCY] + port[(s.path[p + h] << PORT) + SER]
        s.tx[x + RETURN] = way
        hooks.start(cc, s.cc, f, 1e12 / s.ps_per_byte[u], way + round_trip, n, s.scal[MTU])


@njit(cache=True)
def open_flows(s: Tables, first: int, t: Array) -> None:
    """Let the message of plain flow `first + i` leave at `t[i]`."""
    for i in range(t.size):
        f = first + i
        u = s.tx[(f << TX) + UPLINK]
        insert(s.arena, s.ring, s.scal, 2 * s.scal[N_LINKS] + u, HEAD, t[i], (EV_MESSAGE << INPUT_SHIFT) | (f << FLOW_SHIFT))
        s.port_next[u] = min(s.port_next[u], t[i])
        wake(s.send_next, s.send_block, s.link_src[u], t[i])


@njit(cache=True)
def begin(s: Tables, c: int, t: int) -> None:
    """Start call `c`, whose edges are laid out, at `t`: reset its counters and let the edges go that wait for nothing."""
    edge, first = s.edge, s.call[(c << CALL) + CALL_EDGE_0]
    left = 0
    for e in range(first, first + s.call[(c << CALL) + CALL_EDGES]):
        o = e << EDGE
        edge[o + READY_MSGS] = edge[o + ARRIVED_MSGS] = edge[o + CONSUMED] = 0
        left += edge[o + EDGE_MSGS] > 0
        counters, unneeded = edge[o + TOKEN_0], 0
        for d in range(edge[o + RDEP_0], edge[o + RDEP_1]):
            after = (first + s.rdep_edge[d]) << EDGE
            unneeded = max(unneeded, edge[after + EDGE_MSGS] - s.rdep_lag[d])
            for part in range(edge[after + FLOWS]):
                s.token[counters + s.rdep_token[d] + part] = 0
        s.token[counters] = unneeded
        for f in range(edge[o + FLOW_0], edge[o + FLOW_0] + edge[o + FLOWS]):
            s.rx[(f << RX) + RX_MESSAGE] = 0
    s.call[(c << CALL) + EDGES_LEFT] = left
    s.call[(c << CALL) + LAST_PS] = t
    s.live[s.scal[LIVE_CALLS]] = c
    s.call[(c << CALL) + PLACE] = s.scal[LIVE_CALLS]
    s.call[(c << CALL) + BOUND] = t
    s.call[(c << CALL) + BOUND_AT] = -1
    s.scal[LIVE_CALLS] += 1
    if left == 0:
        ended(s, c)
    for e in range(first, first + s.call[(c << CALL) + CALL_EDGES]):
        o, waits = e << EDGE, False
        for d in range(edge[o + DEP_0], edge[o + DEP_1]):
            waits |= s.dep_lag[d] <= 0
        if not waits and edge[o + EDGE_MSGS] > 0:
            gpu_event(s, edge[o + SRC_GPU], t, (GPU_START << GPU_SHIFT) | (e << TOKEN_SHIFT))
