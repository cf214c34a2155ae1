"""Switches that choose among equal paths packet by packet.

* spray: a hash of switch, flow and packet picks (oblivious, uniform);
* adaptive: the shortest data queue at the packet's arrival; among equals the first after a place that the same hash picks;
* flowlet: as adaptive for the first packet of a burst, the others follow it. Switches keep the latest packet of 1,024 hashed flows
(Vanini et al., "Let
  it flow: resilient asymmetric load balancing with flowlet switching", NSDI 2017).

Queues of several ports at one moment are compared, so an adaptive switch is played packet by packet in order of (time, input); what is
earlier than the packet has left every candidate before it chooses.
"""

import numpy as np
from numba import njit

from netsim.kernels.packet import layout as K
from netsim.kernels.packet.outage import throw_away
from netsim.kernels.packet.port import packet_bytes, play
from netsim.kernels.packet.ring import insert, random
from netsim.kernels.packet.tables import Tables


@njit(cache=True)
def sprayed(s: Tables, v: int, flow: int, seq: int) -> int:
    """Return the link on which switch `v` sends a packet on, whatever the queues."""
    r = flow << K.RX
    k = s.hop_set[(v - s.scal[K.FIRST_SWITCH]) * s.scal[K.N_GROUPS] + s.rx[r + K.RX_GROUP]]
    if k < 0:
        return s.rx[r + K.RX_LAST]
    first, n = s.set_ptr[k], s.set_ptr[k + 1] - s.set_ptr[k]
    start = pick(s, v, flow, seq, n)
    for i in range(n):
        link = np.int64(s.set_idx[first + (start + i) % n])
        if s.port[(link << K.PORT) + K.FREE] != K.NEVER:
            return link  # type: ignore[return-value]
    return np.int64(s.set_idx[first + start])  # type: ignore[return-value]


@njit(cache=True, forceinline=True)
def pick(s: Tables, v: int, flow: int, seq: int, n: int) -> int:
    """Return a number below `n` that depends on switch, flow and packet."""
    return ((random(s.scal[K.SEED] + v, s.tx[(flow << K.TX) + K.NAME], seq) >> 21) * n) >> 32


@njit(cache=True)
def on_path(s: Tables, v: int, flow: int, back: int) -> int:
    """Return the hop at which a flow's path out (`back` 0) or back (8) leaves vertex `v`, -1 where it does not."""
    for h in range(8):
        link = np.int64(s.path[(flow << K.PATH_SHIFT) + back + h])
        if link >= 0 and s.link_src[link] == v:
            return h
    return -1


@njit(cache=True)
def onward(s: Tables, v: int, meta: int) -> tuple[int, int]:
    """Return the link on which switch `v` sends a packet on after routes have changed, and its record's meta with the hop behind that.

    The link is that of the flow's path, where that comes by; else one towards the destination, the same for all of the flow; or -1.
    """
    flow, by_flow = (meta >> K.FLOW_SHIFT) & K.FLOW_MASK, s.scal[K.SPREAD] == K.BY_FLOW
    hop = on_path(s, v, flow, 0) if by_flow else -1
    meta &= ~(K.HOP_MASK << K.HOP_SHIFT)
    if hop >= 0:
        return np.int64(s.path[(flow << K.PATH_SHIFT) + hop]), meta | ((hop + 1) << K.HOP_SHIFT)  # type: ignore[return-value]
    out = sprayed(s, v, flow, 0 if by_flow else (meta >> K.SEQ_SHIFT) & K.SEQ_MASK)
    return out if s.link_src[out] == v else np.int64(-1), meta | (1 << K.HOP_SHIFT)  # type: ignore[return-value]


@njit(cache=True, forceinline=True)
def along(s: Tables, v: int, meta: int) -> tuple[int, int]:
    """Return the link on which the path of a packet leaves switch `v`, and its record's meta with the hop behind that."""
    hop = (meta >> K.HOP_SHIFT) & K.HOP_MASK
    out = np.int64(s.path[(((meta >> K.FLOW_SHIFT) & K.FLOW_MASK) << K.PATH_SHIFT) + hop])
    if s.scal[K.REROUTED] != 0 and (hop >= 8 or out < 0 or s.link_src[out] != v):
        return onward(s, v, meta)
    return out, meta + (1 << K.HOP_SHIFT)  # type: ignore[return-value]


@njit(cache=True)
def no_way(s: Tables, v: int, meta: int) -> bool:
    """Whether switch `v` has no working port towards the destination of a packet, now that links have failed."""
    out = np.int64(-1)
    if s.scal[K.SPREAD] == K.BY_FLOW:
        out, _ = along(s, v, meta)
    else:
        out = sprayed(s, v, (meta >> K.FLOW_SHIFT) & K.FLOW_MASK, 0)  # one that works, if any of the equal ones does
    return out < 0 or s.link_src[out] != v or s.port[(out << K.PORT) + K.FREE] == K.NEVER


@njit(cache=True)
def shortest(s: Tables, v: int, flow: int, seq: int, t: int) -> int:
    """Return the link of the shortest queue at `t` towards the destination of a flow."""
    r = flow << K.RX
    k = s.hop_set[(v - s.scal[K.FIRST_SWITCH]) * s.scal[K.N_GROUPS] + s.rx[r + K.RX_GROUP]]
    if k < 0:
        return s.rx[r + K.RX_LAST]
    entry = 0
    if s.scal[K.SPREAD] == K.FLOWLET:
        name = s.tx[(flow << K.TX) + K.NAME]
        entry = (((v - s.scal[K.FIRST_SWITCH]) << K.FLOWLETS) + (random(s.scal[K.SEED], v, name) & ((1 << K.FLOWLETS) - 1))) << 1
        fresh = t - s.flowlet[entry] < s.scal[K.FLOWLET_GAP]
        s.flowlet[entry] = t
        for i in range(s.set_ptr[k], s.set_ptr[k + 1]):
            if fresh and s.set_idx[i] == s.flowlet[entry + 1]:
                return np.int64(s.set_idx[i])  # type: ignore[return-value]
    first, n = s.set_ptr[k], s.set_ptr[k + 1] - s.set_ptr[k]
    start = pick(s, v, flow, seq, n)
    best, least = np.int64(-1), np.int64(0)
    for i in range(n):
        link = np.int64(s.set_idx[first + (start + i) % n])
        if s.port_next[link] <= t:
            play(s, link, t + 1)
        queue = s.port[(link << K.PORT) + K.QUEUE]
        if s.port[(link << K.PORT) + K.FREE] == K.NEVER:
            queue = K.NEVER  # the link is down
        if best < 0 or queue < least:
            best, least = link, queue
    if s.scal[K.SPREAD] == K.FLOWLET:
        s.flowlet[entry + 1] = best
    return best  # type: ignore[return-value]


@njit(cache=True)
def collect(s: Tables, link: int, end: int, n: int) -> int:
    """Put what arrives on a link before `end` behind the `n` records that a switch has collected, (time, meta) each; returns how many
    there are then.
    """
    arena, ring, o = s.arena, s.ring, link << K.RING
    place = s.link_input[link] << K.INPUT_SHIFT
    while ring[o + K.HEAD] < ring[o + K.MID]:
        k = ring[o + K.BASE] + ((ring[o + K.HEAD] & ring[o + K.MASK]) << 1)
        if arena[k] >= end:
            break
        ring[o + K.HEAD] += 1
        if arena[k + 1] & K.LOST:
            continue
        if s.scal[K.FAILED] != 0 and no_way(s, s.link_dst[link], arena[k + 1]):
            throw_away(s, link, k)
            continue
        i, t, meta = n, arena[k], (arena[k + 1] & K.BELOW_INPUT) | place
        while i > 0 and (s.arrivals[2 * i - 2] > t or (s.arrivals[2 * i - 2] == t and s.arrivals[2 * i - 1] > meta)):
            s.arrivals[2 * i], s.arrivals[2 * i + 1] = s.arrivals[2 * i - 2], s.arrivals[2 * i - 1]
            i -= 1
        s.arrivals[2 * i], s.arrivals[2 * i + 1] = t, meta
        n += 1
    return n


@njit(cache=True)
def fits(s: Tables, v: int, out: int, nbytes: int, t: int) -> bool:
    """Whether a packet may join a queue of a switch with a shared buffer: queue < alpha x free (Choudhury and Hahne, ToN 1998)."""
    held = 0
    for i in range(s.out_ptr[v], s.out_ptr[v + 1]):
        link = s.out_idx[i]
        if s.port_next[link] <= t:
            play(s, link, t + 1)
        held += s.port[(link << K.PORT) + K.QUEUE]
    free = s.buffer[2 * v] - held
    return nbytes <= free and (s.port[(out << K.PORT) + K.QUEUE] + nbytes) << 16 <= s.buffer[2 * v + 1] * free


@njit(cache=True)
def deal(s: Tables, v: int, n: int) -> None:
    """Send each of `n` collected packets to its queue, the shortest at its arrival if the switch may choose; drop it where a shared
    buffer has no room.
    """
    for i in range(n):
        t, meta = s.arrivals[2 * i], s.arrivals[2 * i + 1]
        flow, seq = (meta >> K.FLOW_SHIFT) & K.FLOW_MASK, (meta >> K.SEQ_SHIFT) & K.SEQ_MASK
        filed = meta + (1 << K.HOP_SHIFT)
        if s.scal[K.SPREAD] >= K.ADAPTIVE:
            out = shortest(s, v, flow, seq, t)
        elif s.scal[K.SPREAD] == K.SPRAY:
            out = sprayed(s, v, flow, seq)
        else:
            out, filed = along(s, v, meta)
        if s.scal[K.SHARED] != 0 and not fits(s, v, out, packet_bytes(s, meta), t):
            s.count[(out << K.COUNT) + K.DROPS] += 1
            continue
        insert(s.arena, s.ring, s.scal, out, K.INQ, t, filed)
        s.port_next[out] = min(s.port_next[out], t)


@njit(cache=True)
def total_bytes(s: Tables, link: int, before: int) -> int:
    """Return the bytes of what has been taken from a link since ring position `before`."""
    o, total = link << K.RING, 0
    for i in range(before, s.ring[o + K.HEAD]):
        meta = s.arena[s.ring[o + K.BASE] + ((i & s.ring[o + K.MASK]) << 1) + 1]
        if meta & K.LOST == 0:
            total += packet_bytes(s, meta)
    return total
