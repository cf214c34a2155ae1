"""Switches that choose among equal paths packet by packet.

* spray: a hash of switch, flow and packet picks (oblivious, uniform);
* adaptive: the shortest data queue at the packet's arrival; among equals the first after a place that the same hash picks;
* flowlet: as adaptive for the first packet of a burst, the others follow it. Switches keep the latest packet of 1,024 hashed flows (Vanini et al., "Let
  it flow: resilient asymmetric load balancing with flowlet switching", NSDI 2017).

Queues of several ports at one moment are compared, so an adaptive switch is played packet by packet in order of (time, input); what is earlier than
the packet has left every candidate before it chooses.
"""

import numpy as np
from numba import njit

from netsim.kernels.packet.layout import (
    ADAPTIVE, COUNT, DROPS, FREE, HOP_MASK, NEVER, PATH_SHIFT, SHARED, SPRAY,
    BASE, BELOW_INPUT, FIRST_SWITCH, FLOW_MASK, FLOW_SHIFT, FLOWLET, FLOWLET_GAP, FLOWLETS, HEAD, HOP_SHIFT, INQ, INPUT_SHIFT, LOST, MASK, MID,
    N_GROUPS, PORT, QUEUE, RING, RX, RX_GROUP, RX_LAST, SEED, SEQ_MASK, SEQ_SHIFT, SPREAD,
)  # fmt: skip
from netsim.kernels.packet.port import packet_bytes, play
from netsim.kernels.packet.ring import insert, random
from netsim.kernels.packet.tables import Tables


@njit(cache=True)
def sprayed(s: Tables, v: int, flow: int, seq: int) -> int:
    """Return the link on which switch `v` sends a packet on, whatever the queues."""
    r = flow << RX
    k = s.hop_set[(v - s.scal[FIRST_SWITCH]) * s.scal[N_GROUPS] + s.rx[r + RX_GROUP]]
    if k < 0:
        return s.rx[r + RX_LAST]
    first, n = s.set_ptr[k], s.set_ptr[k + 1] - s.set_ptr[k]
    start = pick(s, v, flow, seq, n)
    for i in range(n):
        link = np.int64(s.set_idx[first + (start + i) % n])
        if s.port[(link << PORT) + FREE] != NEVER:
            return link
    return np.int64(s.set_idx[first + start])


@njit(cache=True, forceinline=True)
def pick(s: Tables, v: int, flow: int, seq: int, n: int) -> int:
    """Return a number below `n` that depends on switch, flow and packet."""
    return ((random(s.scal[SEED] + v, flow, seq) >> 21) * n) >> 32


@njit(cache=True)
def shortest(s: Tables, v: int, flow: int, seq: int, t: int) -> int:
    """Return the link of the shortest queue at `t` towards the destination of a flow."""
    r = flow << RX
    k = s.hop_set[(v - s.scal[FIRST_SWITCH]) * s.scal[N_GROUPS] + s.rx[r + RX_GROUP]]
    if k < 0:
        return s.rx[r + RX_LAST]
    entry = 0
    if s.scal[SPREAD] == FLOWLET:
        entry = (((v - s.scal[FIRST_SWITCH]) << FLOWLETS) + (random(s.scal[SEED], v, flow) & ((1 << FLOWLETS) - 1))) << 1
        fresh = t - s.flowlet[entry] < s.scal[FLOWLET_GAP]
        s.flowlet[entry] = t
        for i in range(s.set_ptr[k], s.set_ptr[k + 1]):
            if fresh and s.set_idx[i] == s.flowlet[entry + 1]:
                return np.int64(s.set_idx[i])
    first, n = s.set_ptr[k], s.set_ptr[k + 1] - s.set_ptr[k]
    start = pick(s, v, flow, seq, n)
    best, least = np.int64(-1), np.int64(0)
    for i in range(n):
        link = np.int64(s.set_idx[first + (start + i) % n])
        if s.port_next[link] <= t:
            play(s, link, t + 1)
        queue = s.port[(link << PORT) + QUEUE]
        if s.port[(link << PORT) + FREE] == NEVER:
            queue = NEVER  # the link is down
        if best < 0 or queue < least:
            best, least = link, queue
    if s.scal[SPREAD] == FLOWLET:
        s.flowlet[entry + 1] = best
    return best


@njit(cache=True)
def collect(s: Tables, link: int, end: int, n: int) -> int:
    """Put what arrives on a link before `end` behind the `n` records that a switch has collected, (time, meta) each; returns how many there are then."""
    arena, ring, o = s.arena, s.ring, link << RING
    place = s.link_input[link] << INPUT_SHIFT
    while ring[o + HEAD] < ring[o + MID]:
        k = ring[o + BASE] + ((ring[o + HEAD] & ring[o + MASK]) << 1)
        if arena[k] >= end:
            break
        ring[o + HEAD] += 1
        if arena[k + 1] & LOST:
            continue
        i, t, meta = n, arena[k], (arena[k + 1] & BELOW_INPUT) | place
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
        held += s.port[(link << PORT) + QUEUE]
    free = s.buffer[2 * v] - held
    return nbytes <= free and (s.port[(out << PORT) + QUEUE] + nbytes) << 16 <= s.buffer[2 * v + 1] * free


@njit(cache=True)
def deal(s: Tables, v: int, n: int) -> None:
    """Send each of `n` collected packets to its queue, the shortest at its arrival if the switch may choose; drop it where a shared buffer has no room."""
    for i in range(n):
        t, meta = s.arrivals[2 * i], s.arrivals[2 * i + 1]
        flow, seq = (meta >> FLOW_SHIFT) & FLOW_MASK, (meta >> SEQ_SHIFT) & SEQ_MASK
        if s.scal[SPREAD] >= ADAPTIVE:
            out = shortest(s, v, flow, seq, t)
        elif s.scal[SPREAD] == SPRAY:
            out = sprayed(s, v, flow, seq)
        else:
            out = np.int64(s.path[(flow << PATH_SHIFT) + ((meta >> HOP_SHIFT) & HOP_MASK)])
        if s.scal[SHARED] != 0 and not fits(s, v, out, packet_bytes(s, meta), t):
            s.count[(out << COUNT) + DROPS] += 1
            continue
        insert(s.arena, s.ring, s.scal, out, INQ, t, meta + (1 << HOP_SHIFT))
        s.port_next[out] = min(s.port_next[out], t)


@njit(cache=True)
def total_bytes(s: Tables, link: int, before: int) -> int:
    """Return the bytes of what has been taken from a link since ring position `before`."""
    o, total = link << RING, 0
    for i in range(before, s.ring[o + HEAD]):
        meta = s.arena[s.ring[o + BASE] + ((i & s.ring[o + MASK]) << 1) + 1]
        if meta & LOST == 0:
            total += packet_bytes(s, meta)
    return total
