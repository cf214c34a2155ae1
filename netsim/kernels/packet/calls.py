"""Calls of collectives on the packet engine: edges, their messages, what each waits for, and credits.

Message j of an edge may leave once every dependency (e, lag) has message j - lag at hand, once its message j - window has been
consumed, and a gap after the message before it (what its thread block and its ports leave to the edge). It is at hand when all its
packets have arrived, but not before its thread block has moved it and the way has been gone. A message is consumed when it is at hand
and all messages of the receiver that depend on it have been moved by their thread block; the sender hears of that one latency of the
way back later, as a token. A GPU takes its events (a message arrives or is at hand, a token arrives, an edge may go on) in time order,
so whatever completes a condition does so at the moment that counts.

Inside a node a message is no train of packets but a stream, of as long as its gap: a port of the scale-up fabric takes streams at its rate,
in the order in which they start or arrive, and delays those that its backlog does not let through in that time. The port of a link between
islands is played by the first GPU of the island that it leaves, which takes the messages that come to it in time order like its own events.
"""

import numpy as np
from numba import njit

from netsim.kernels.packet import layout as K
from netsim.kernels.packet.port import flow_event, transfer, wake_port
from netsim.kernels.packet.ring import insert, wake
from netsim.kernels.packet.tables import Tables


@njit(cache=True, forceinline=True)
def gpu_event(s: Tables, gpu: int, t: int, meta: int) -> None:
    """Let `gpu` take an event at `t`."""
    insert(s.arena, s.ring, s.scal, 5 * s.scal[K.N_LINKS] + gpu, K.HEAD, t, meta)
    wake(s.receive_next, s.receive_block, gpu, t)


@njit(cache=True, forceinline=True)
def token(s: Tables, e: int, counter: int, t: int) -> None:
    """Send a token to the source of edge `e`, to be counted by its counter number `counter`."""
    gpu_event(
        s,
        s.edge[(e << K.EDGE) + K.SRC_GPU],
        t + s.edge[(e << K.EDGE) + K.CREDIT_PS],
        (K.GPU_TOKEN << K.GPU_SHIFT) | (e << K.TOKEN_SHIFT) | counter,
    )


@njit(cache=True, inline="always")
def moved(s: Tables, e: int, j: int, t: int) -> int:
    """Return when the thread block that starts message `j` of edge `e` at `t` has moved it."""
    edge, o = s.edge, e << K.EDGE
    return t + (edge[o + K.COPY_LAST] if j == edge[o + K.EDGE_MSGS] - 1 else edge[o + K.COPY_PS])


@njit(cache=True)
def start(s: Tables, e: int, j: int, t: int) -> None:
    """Message `j` of edge `e` starts at `t`: note when it can be at hand, and let the messages that it was made of have room again."""
    edge, o = s.edge, e << K.EDGE
    done = moved(s, e, j, t)
    edge[o + K.NEXT_PS] = t + edge[o + K.GAP_PS]
    hand, place = done + edge[o + K.DELAY_PS] + edge[o + K.CREDIT_PS], edge[o + K.HAND_0] + j % edge[o + K.WINDOW]
    if s.mine[edge[o + K.DST_GPU]] != 0:
        s.token[edge[o + K.TOKEN_0] + place] = hand
    else:
        gpu_event(s, edge[o + K.DST_GPU], hand, (K.GPU_NOTE << K.GPU_SHIFT) | (e << K.TOKEN_SHIFT) | place)  # see `cut`
    for d in range(edge[o + K.DEP_0], edge[o + K.DEP_1]):
        m, before = j - s.dep_lag[d], edge[o + K.EDGE_0] + s.dep_edge[d]
        b = before << K.EDGE
        if m >= 0 and m + edge[b + K.WINDOW] < edge[b + K.EDGE_MSGS]:
            token(s, before, s.dep_token[d], done)


@njit(cache=True)
def consume(s: Tables, e: int) -> None:
    """Count the messages of edge `e` that have been consumed, as far as tokens tell."""
    edge, o = s.edge, e << K.EDGE
    counters = edge[o + K.TOKEN_0]
    while edge[o + K.CONSUMED] < edge[o + K.EDGE_MSGS]:
        m, needed = edge[o + K.CONSUMED], False
        for d in range(edge[o + K.RDEP_0], edge[o + K.RDEP_1]):
            after = (edge[o + K.EDGE_0] + s.rdep_edge[d]) << K.EDGE
            if m + s.rdep_lag[d] < edge[after + K.EDGE_MSGS]:
                needed = True
                if s.token[counters + s.rdep_token[d]] <= m:
                    return
        if not needed and s.token[counters] <= m:
            return
        edge[o + K.CONSUMED] = m + 1


@njit(cache=True, inline="always")
def needed_by(s: Tables, e: int, m: int) -> bool:
    """Whether a message of the receiver depends on message `m` of edge `e`."""
    edge, o = s.edge, e << K.EDGE
    for d in range(edge[o + K.RDEP_0], edge[o + K.RDEP_1]):
        if m + s.rdep_lag[d] < edge[((edge[o + K.EDGE_0] + s.rdep_edge[d]) << K.EDGE) + K.EDGE_MSGS]:
            return True
    return False


@njit(cache=True, inline="always")
def through(s: Tables, link: int, nbytes: int, t: int) -> int:
    """Send `nbytes`, there from `t` on, through a port of the scale-up fabric behind what it has taken; returns when they are through."""
    q, c = link << K.PORT, link << K.COUNT
    s.port[q + K.FREE] = max(s.port[q + K.FREE], t) + transfer(nbytes, s.ps_per_byte[link])
    s.count[c + K.BYTES] += nbytes
    s.count[c + K.PACKETS] += 1
    return s.port[q + K.FREE]


@njit(cache=True)
def into_fabric(s: Tables, e: int, j: int, t: int) -> None:
    """Message `j` of edge `e` inside a node starts at `t`: it arrives a latency after its port has let it through."""
    edge, o = s.edge, e << K.EDGE
    f, g = edge[o + K.FLOW_0], edge[o + K.SRC_GPU]
    nbytes = np.int64(s.size[(f << 2) + (2 if j == edge[o + K.EDGE_MSGS] - 1 else 1)])
    late = through(s, g, nbytes, t) - (edge[o + K.GAP_PS] - edge[o + K.COPY_PS])
    out = max(late, moved(s, e, j, t))
    if edge[o + K.ACROSS] == 0:
        gpu_event(s, edge[o + K.DST_GPU], out + edge[o + K.CREDIT_PS], f)
    else:
        gpu_event(s, edge[o + K.ACROSS_GPU], out + s.port[(g << K.PORT) + K.LATENCY], (K.GPU_ACROSS << K.GPU_SHIFT) | f)


@njit(cache=True)
def across(s: Tables, f: int, t: int) -> None:
    """The next message of flow `f`, whose GPUs are of two islands, has come to the link between them by `t`."""
    edge, o = s.edge, s.rx[(f << K.RX) + K.RX_EDGE] << K.EDGE
    m, first = edge[o + K.ACROSS_MSGS], s.port[(edge[o + K.SRC_GPU] << K.PORT) + K.LATENCY]
    edge[o + K.ACROSS_MSGS] = m + 1
    gpu_event(s, edge[o + K.DST_GPU], past(s, o >> K.EDGE, m, edge[o + K.ACROSS], t) + edge[o + K.CREDIT_PS] - first, f)


@njit(cache=True, inline="always")
def past(s: Tables, e: int, m: int, link: int, t: int) -> int:
    """Message `m` of edge `e` inside a node has come to the port of `link` by `t`; returns when the port has let it through."""
    edge, o = s.edge, e << K.EDGE
    nbytes = np.int64(s.size[(edge[o + K.FLOW_0] << 2) + (2 if m == edge[o + K.EDGE_MSGS] - 1 else 1)])
    streaming = max(moved(s, e, m, 0), transfer(nbytes, s.ps_per_byte[link]))
    return max(t, through(s, link, nbytes, t - streaming) - max(0, edge[o + K.GAP_PS] - edge[o + K.COPY_PS]))


@njit(cache=True)
def release(s: Tables, e: int, t: int) -> None:
    """Let every message of edge `e` leave that may at `t`."""
    edge, o = s.edge, e << K.EDGE
    while edge[o + K.READY_MSGS] < edge[o + K.EDGE_MSGS]:
        j = edge[o + K.READY_MSGS]
        if j - edge[o + K.WINDOW] >= edge[o + K.CONSUMED]:
            return
        for d in range(edge[o + K.DEP_0], edge[o + K.DEP_1]):
            if j - s.dep_lag[d] >= edge[((edge[o + K.EDGE_0] + s.dep_edge[d]) << K.EDGE) + K.ARRIVED_MSGS]:
                return
        if edge[o + K.NEXT_PS] > t:
            if edge[o + K.AWAITED] != edge[o + K.NEXT_PS]:
                edge[o + K.AWAITED] = edge[o + K.NEXT_PS]
                gpu_event(s, edge[o + K.SRC_GPU], edge[o + K.NEXT_PS], (K.GPU_START << K.GPU_SHIFT) | (e << K.TOKEN_SHIFT))
            return
        edge[o + K.READY_MSGS] = j + 1
        start(s, e, j, t)
        if edge[o + K.SCALE_UP_EDGE] != 0:
            into_fabric(s, e, j, t)
            continue
        leave, f = t + edge[o + K.DELAY_PS] + edge[o + K.TO_NIC], edge[o + K.FLOW_0]
        for part in range(j % edge[o + K.QPS], edge[o + K.FLOWS], edge[o + K.QPS]):
            u = s.tx[((f + part) << K.TX) + K.UPLINK]
            flow_event(s, u, K.EV_MESSAGE, f + part, leave)
            wake_port(s, u, leave)


@njit(cache=True)
def retire(s: Tables, c: int) -> None:
    """Take call `c` from those that are under way."""
    s.scal[K.INSIDE_CALLS] -= s.call[(c << K.CALL) + K.INSIDE]
    n = s.scal[K.LIVE_CALLS] - 1
    other, place = s.live[n], s.call[(c << K.CALL) + K.PLACE]
    s.live[place] = other
    s.call[(other << K.CALL) + K.PLACE] = place
    s.scal[K.LIVE_CALLS] = n


@njit(cache=True)
def ended(s: Tables, c: int) -> None:
    """Note that call `c` has completed, or the part of it that is played here."""
    s.done[s.scal[K.DONE_CALLS]] = c
    s.scal[K.DONE_CALLS] += 1
    if s.scal[K.IN_PARTS] == 0:
        retire(s, c)


@njit(cache=True)
def arrive(s: Tables, f: int, t: int) -> None:
    """A message of flow `f` has arrived at its GPU at `t`; with those of the edge's other connections it has landed, in order."""
    s.rx[(f << K.RX) + K.RX_MESSAGE] += 1
    e = s.rx[(f << K.RX) + K.RX_EDGE]
    o = e << K.EDGE
    while s.edge[o + K.LANDED_MSGS] < s.edge[o + K.EDGE_MSGS] and has_come(s, e, s.edge[o + K.LANDED_MSGS]):
        landed(s, e, t)


@njit(cache=True, inline="always")
def has_come(s: Tables, e: int, m: int) -> bool:
    """Whether the queue pairs whose turn it is have brought message `m` of edge `e`, on each of its connections."""
    edge, o = s.edge, e << K.EDGE
    q, come = edge[o + K.QPS], True
    for part in range(m % q, edge[o + K.FLOWS], q):
        come &= s.rx[((edge[o + K.FLOW_0] + part) << K.RX) + K.RX_MESSAGE] > m // q
    return come


@njit(cache=True)
def landed(s: Tables, e: int, t: int) -> None:
    """The next message of edge `e` has landed at `t`; it is at hand now, or when it can be."""
    edge, o = s.edge, e << K.EDGE
    m = edge[o + K.LANDED_MSGS]
    edge[o + K.LANDED_MSGS] = m + 1
    hand = s.token[edge[o + K.TOKEN_0] + edge[o + K.HAND_0] + m % edge[o + K.WINDOW]]
    if edge[o + K.SCALE_UP_EDGE] != 0:
        hand = max(hand, past(s, e, m, s.scal[K.N_GPUS] + edge[o + K.DST_GPU], t))
    if hand > t:
        gpu_event(s, edge[o + K.DST_GPU], hand, (K.GPU_HAND << K.GPU_SHIFT) | (e << K.TOKEN_SHIFT))
    else:
        at_hand(s, e, t)


@njit(cache=True)
def at_hand(s: Tables, e: int, t: int) -> None:
    """The next message of edge `e` is at hand at `t`; its edge may be complete, and others may go on."""
    edge, o = s.edge, e << K.EDGE
    m = edge[o + K.ARRIVED_MSGS]
    edge[o + K.ARRIVED_MSGS] = m + 1
    if m + edge[o + K.WINDOW] < edge[o + K.EDGE_MSGS] and not needed_by(s, e, m):
        token(s, e, 0, t)
    for d in range(edge[o + K.RDEP_0], edge[o + K.RDEP_1]):
        release(s, edge[o + K.EDGE_0] + s.rdep_edge[d], t)
    if m + 1 == edge[o + K.EDGE_MSGS]:
        c = edge[o + K.BLOCK] << K.CALL
        s.call[c + K.EDGES_LEFT] -= 1
        s.call[c + K.LAST_PS] = max(s.call[c + K.LAST_PS], t + edge[o + K.REST_PS])
        if s.call[c + K.EDGES_LEFT] == 0:
            ended(s, edge[o + K.BLOCK])


@njit(cache=True, inline="always")
def gpu(s: Tables, g: int, t: int, meta: int) -> None:
    """Take one event of a GPU."""
    kind, what = meta >> K.GPU_SHIFT, meta & K.GPU_MASK
    if kind == K.GPU_ARRIVE:
        arrive(s, what, t)
        return
    if kind == K.GPU_ACROSS:
        across(s, what, t)
        return
    e = what >> K.TOKEN_SHIFT
    if kind == K.GPU_HAND:
        at_hand(s, e, t)
        return
    if kind == K.GPU_TOKEN:
        s.token[s.edge[(e << K.EDGE) + K.TOKEN_0] + (what & K.TOKEN_MASK)] += 1
        consume(s, e)
    release(s, e, t)
