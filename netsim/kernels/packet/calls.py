"""Calls of collectives on the packet engine: edges, their messages, what each waits for, and credits.

Message j of an edge may leave once every dependency (e, lag) has message j - lag at hand and once its message j - window has been consumed;
both are counters. A message is consumed when it has arrived and all messages of the receiver that depend on it have left; the sender hears of that one
latency of the way back later, as a token. A GPU takes its events (a message arrives, a token arrives, a call starts) in time order, so whatever
completes a condition does so at the moment that counts.
"""

import numpy as np
from numba import njit

from netsim.kernels.packet.layout import (
    ARRIVED_MSGS, BLOCK, CALL, CONSUMED, CREDIT_PS, DELAY_PS, DEP_0, DEP_1, DONE_CALLS, EDGE, EDGE_0, EDGE_MSGS, EDGES_LEFT, EV_MESSAGE, FLOW_0,
    FLOW_SHIFT, FLOWS, GPU_MASK, GPU_SHIFT, GPU_TOKEN, HEAD, HOP_SHIFT, INPUT_SHIFT, INQ, LAST_PS, LIVE_CALLS, N_LINKS, PLACE, PATH_SHIFT, RDEP_0, RDEP_1, READY_MSGS, RX,
    RX_EDGE, RX_MESSAGE, SCALE_UP_EDGE, SEQ_MASK, SEQ_SHIFT, SRC_GPU, TO_NIC, TOKEN_0, TOKEN_MASK, TOKEN_SHIFT, TX, TX_EDGE, UPLINK, WINDOW,
)  # fmt: skip
from netsim.kernels.packet.ring import insert, wake
from netsim.kernels.packet.tables import Tables


@njit(cache=True, forceinline=True)
def gpu_event(s: Tables, gpu: int, t: int, meta: int) -> None:
    """Let `gpu` take an event at `t`."""
    insert(s.arena, s.ring, s.scal, 5 * s.scal[N_LINKS] + gpu, HEAD, t, meta)
    wake(s.receive_next, s.receive_block, gpu, t)


@njit(cache=True, forceinline=True)
def token(s: Tables, e: int, counter: int, t: int) -> None:
    """Send a token to the source of edge `e`, to be counted by its counter number `counter`."""
    gpu_event(s, s.edge[(e << EDGE) + SRC_GPU], t + s.edge[(e << EDGE) + CREDIT_PS], (GPU_TOKEN << GPU_SHIFT) | (e << TOKEN_SHIFT) | counter)


@njit(cache=True)
def message_left(s: Tables, f: int, j: int, t: int) -> None:
    """The last bit of message `j` of flow `f` has left at `t`: messages that it was made of have room again."""
    edge = s.edge
    e = s.tx[(f << TX) + TX_EDGE]
    o = e << EDGE
    part = f - edge[o + FLOW_0]
    for d in range(edge[o + DEP_0], edge[o + DEP_1]):
        m, before = j - s.dep_lag[d], edge[o + EDGE_0] + s.dep_edge[d]
        b = before << EDGE
        if m >= 0 and m + edge[b + WINDOW] < edge[b + EDGE_MSGS]:
            token(s, before, s.dep_token[d] + part, t)


@njit(cache=True)
def consume(s: Tables, e: int) -> None:
    """Count the messages of edge `e` that have been consumed, as far as tokens tell."""
    edge, o = s.edge, e << EDGE
    counters = edge[o + TOKEN_0]
    while edge[o + CONSUMED] < edge[o + EDGE_MSGS]:
        m, needed = edge[o + CONSUMED], False
        for d in range(edge[o + RDEP_0], edge[o + RDEP_1]):
            after = (edge[o + EDGE_0] + s.rdep_edge[d]) << EDGE
            if m + s.rdep_lag[d] < edge[after + EDGE_MSGS]:
                needed = True
                for part in range(edge[after + FLOWS]):
                    if s.token[counters + s.rdep_token[d] + part] <= m:
                        return
        if not needed and s.token[counters] <= m:
            return
        edge[o + CONSUMED] = m + 1


@njit(cache=True, inline="always")
def needed_by(s: Tables, e: int, m: int) -> bool:
    """Whether a message of the receiver depends on message `m` of edge `e`."""
    edge, o = s.edge, e << EDGE
    for d in range(edge[o + RDEP_0], edge[o + RDEP_1]):
        if m + s.rdep_lag[d] < edge[((edge[o + EDGE_0] + s.rdep_edge[d]) << EDGE) + EDGE_MSGS]:
            return True
    return False


@njit(cache=True)
def release(s: Tables, e: int, t: int) -> None:
    """Let every message of edge `e` leave that may at `t`."""
    edge, o = s.edge, e << EDGE
    while edge[o + READY_MSGS] < edge[o + EDGE_MSGS]:
        j = edge[o + READY_MSGS]
        if j - edge[o + WINDOW] >= edge[o + CONSUMED]:
            return
        for d in range(edge[o + DEP_0], edge[o + DEP_1]):
            if j - s.dep_lag[d] >= edge[((edge[o + EDGE_0] + s.dep_edge[d]) << EDGE) + ARRIVED_MSGS]:
                return
        edge[o + READY_MSGS] = j + 1
        leave, f = t + edge[o + DELAY_PS], edge[o + FLOW_0]
        if edge[o + SCALE_UP_EDGE] != 0:
            link = np.int64(s.path[f << PATH_SHIFT])
            kind = 2 if j == edge[o + EDGE_MSGS] - 1 else 1
            meta = kind | (1 << HOP_SHIFT) | ((j & SEQ_MASK) << SEQ_SHIFT) | (f << FLOW_SHIFT)
            insert(s.arena, s.ring, s.scal, link, INQ, leave, meta)
            s.port_next[link] = min(s.port_next[link], leave)
            wake(s.send_next, s.send_block, edge[o + SRC_GPU], leave)
            continue
        leave += edge[o + TO_NIC]
        for part in range(edge[o + FLOWS]):
            u = s.tx[((f + part) << TX) + UPLINK]
            insert(s.arena, s.ring, s.scal, 2 * s.scal[N_LINKS] + u, HEAD, leave, (EV_MESSAGE << INPUT_SHIFT) | ((f + part) << FLOW_SHIFT))
            s.port_next[u] = min(s.port_next[u], leave)
            wake(s.send_next, s.send_block, s.link_src[u], leave)


@njit(cache=True)
def ended(s: Tables, c: int) -> None:
    """Move call `c` from those under way to those that have completed."""
    s.done[s.scal[DONE_CALLS]] = c
    s.scal[DONE_CALLS] += 1
    n = s.scal[LIVE_CALLS] - 1
    other, place = s.live[n], s.call[(c << CALL) + PLACE]
    s.live[place] = other
    s.call[(other << CALL) + PLACE] = place
    s.scal[LIVE_CALLS] = n


@njit(cache=True)
def arrive(s: Tables, f: int, t: int) -> None:
    """A message of flow `f` is at hand at its GPU at `t`; its edge may be complete, and others may go on."""
    edge = s.edge
    e = s.rx[(f << RX) + RX_EDGE]
    o = e << EDGE
    s.rx[(f << RX) + RX_MESSAGE] += 1
    for part in range(edge[o + FLOWS]):
        if s.rx[((edge[o + FLOW_0] + part) << RX) + RX_MESSAGE] <= edge[o + ARRIVED_MSGS]:
            return
    m = edge[o + ARRIVED_MSGS]
    edge[o + ARRIVED_MSGS] = m + 1
    if m + edge[o + WINDOW] < edge[o + EDGE_MSGS] and not needed_by(s, e, m):
        token(s, e, 0, t)
    for d in range(edge[o + RDEP_0], edge[o + RDEP_1]):
        release(s, edge[o + EDGE_0] + s.rdep_edge[d], t)
    if m + 1 == edge[o + EDGE_MSGS]:
        c = edge[o + BLOCK] << CALL
        s.call[c + EDGES_LEFT] -= 1
        s.call[c + LAST_PS] = max(s.call[c + LAST_PS], t)
        if s.call[c + EDGES_LEFT] == 0:
            ended(s, edge[o + BLOCK])


@njit(cache=True, inline="always")
def gpu(s: Tables, g: int, t: int, meta: int) -> None:
    """Take one event of a GPU."""
    kind, what = meta >> GPU_SHIFT, meta & GPU_MASK
    if kind == 0:
        arrive(s, what, t)
        return
    e = what >> TOKEN_SHIFT
    if kind == GPU_TOKEN:
        s.token[s.edge[(e << EDGE) + TOKEN_0] + (what & TOKEN_MASK)] += 1
        consume(s, e)
    release(s, e, t)
