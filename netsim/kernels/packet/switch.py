"""A switch for one window: take what arrives, file it at the output ports, play those, and see which inputs must pause their senders.

Arrivals before `end` are all on the wires already, because nothing that leaves during the window can arrive in it. Each output port is then
played on its own. Pauses depend on departures of several ports: a port notes what left each input, and where an input may
have crossed a threshold its arrivals and departures are put in time order afterwards. A pause reaches the sender a latency later, that is in a later window.
"""

import numpy as np
from numba import njit

from netsim.kernels.packet.layout import (
    ACKS, ADAPTIVE, SHARED, SEQ_MASK, SEQ_SHIFT, SIMULATED, SPRAY, SPREAD, ARRIVED, BASE, BELOW_INPUT, CLASS_MASK, DEPARTED, DELAY, ERROR, ERROR_LINK, ERROR_T, HEADROOM, TOO_MANY_PAUSES, FIRST_SWITCH, FLOW_CONTROL, FLOW_MASK, FLOW_SHIFT, HEAD, HELD,
    HOP_MASK, HOP_SHIFT, INPUT_SHIFT, INQ, LIMIT, LOG_SIZE, LOG_TOP, LOST, MASK, MID, MTU, N_LINKS, NEVER, PATH_SHIFT, PFC, PFC_ON, PORT, RING, SENT_OFF,
    TOGGLES, TOGGLE_HEAD, TOGGLE_TAIL, XOFF, XON,
)  # fmt: skip
from netsim.kernels.packet.port import HOT, on_wire, packet_bytes, play
from netsim.kernels.packet.ring import insert, wake
from netsim.kernels.packet.spread import collect, deal, sprayed, total_bytes
from netsim.kernels.packet.tables import Tables


@njit(cache=True, inline="always")
def gather_control(s: Tables, link: int, end: int) -> None:
    """File the control packets that arrive on a link before `end`."""
    arena, ring, n_links = s.arena, s.ring, s.scal[N_LINKS]
    o = (n_links + link) << RING
    head, mid, mask = ring[o + HEAD], ring[o + MID], ring[o + MASK]
    while head < mid:
        k = ring[o + BASE] + ((head & mask) << 1)
        t, meta = arena[k], arena[k + 1]
        if t >= end:
            break
        flow, hop = (meta >> FLOW_SHIFT) & FLOW_MASK, (meta >> HOP_SHIFT) & HOP_MASK
        out = np.int64(s.path[(flow << PATH_SHIFT) + 8 + hop])
        filed = (meta & BELOW_INPUT) + (1 << HOP_SHIFT) | (s.link_input[link] << INPUT_SHIFT)
        insert(arena, ring, s.scal, n_links + out, MID, t, filed)
        s.port_next[out] = min(s.port_next[out], t)
        head += 1
    ring[o + HEAD] = head


@njit(cache=True, inline="always")
def gather(s: Tables, link: int, end: int) -> int:
    """File the data packets that arrive on a link before `end` at their output ports; returns their bytes."""
    arena, ring, scal, path, port_next = s.arena, s.ring, s.scal, s.path, s.port_next
    o = link << RING
    head, mid, base, mask = ring[o + HEAD], ring[o + MID], ring[o + BASE], ring[o + MASK]
    spraying = scal[SPREAD] == SPRAY and s.link_dst[link] >= scal[FIRST_SWITCH]
    mtu, total, place = scal[MTU], 0, s.link_input[link] << INPUT_SHIFT
    while head < mid:
        k = base + ((head & mask) << 1)
        t, meta = arena[k], arena[k + 1]
        if t >= end:
            break
        head += 1
        if meta & LOST:
            continue
        total += mtu if meta & CLASS_MASK == 0 else packet_bytes(s, meta)
        flow, hop = (meta >> FLOW_SHIFT) & FLOW_MASK, (meta >> HOP_SHIFT) & HOP_MASK
        if spraying:
            out = sprayed(s, s.link_dst[link], flow, (meta >> SEQ_SHIFT) & SEQ_MASK)
        else:
            out = np.int64(path[(flow << PATH_SHIFT) + hop])
        insert(arena, ring, scal, out, INQ, t, (meta & BELOW_INPUT) + (1 << HOP_SHIFT) | place)
        if t < port_next[out]:
            port_next[out] = t
    ring[o + HEAD] = head
    return total


@njit(cache=True, inline="always")
def watch(s: Tables, link: int, before: int) -> None:
    """Log what has arrived on `link` since ring position `before`, and have its departures logged."""
    arena, ring, log = s.arena, s.ring, s.log
    s.pfc[(link << PFC) + SENT_OFF] |= HOT
    s.log_head[link] = -1
    o, g = link << RING, s.scal[LOG_TOP]
    for i in range(before, ring[o + HEAD]):
        k = ring[o + BASE] + ((i & ring[o + MASK]) << 1)
        log[3 * g], log[3 * g + 1], log[3 * g + 2] = arena[k] * 4 + 1, -packet_bytes(s, arena[k + 1]), s.log_head[link]
        s.log_head[link] = g
        g += 1
    s.scal[LOG_TOP] = g


@njit(cache=True)
def pause(s: Tables, link: int) -> None:
    """Go through arrivals and departures of an input in time order, and send pauses and resumes to its sender.

    At one moment: what left because it arrived earlier, then arrivals, then what left at once.
    """
    pfc, log, order = s.pfc, s.log, s.scratch
    o = link << PFC
    n, g = 0, s.log_head[link]
    while g >= 0:
        n += 1
        order[s.scal[LOG_SIZE] - n] = g
        g = log[3 * g + 2]
    first = s.scal[LOG_SIZE] - n
    for i in range(first + 1, s.scal[LOG_SIZE]):
        g, j = order[i], i
        while j > first and log[3 * order[j - 1]] > log[3 * g]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = g
    held, off = pfc[o + HELD], pfc[o + SENT_OFF] & 1
    for i in range(first, s.scal[LOG_SIZE]):
        g = order[i]
        held -= log[3 * g + 1]
        if off == 0 and held > pfc[o + XOFF]:
            off = 1
        elif off == 1 and held <= pfc[o + XON]:
            off = 0
        else:
            if held > pfc[o + LIMIT] and s.scal[ERROR] == 0:
                s.scal[ERROR], s.scal[ERROR_LINK], s.scal[ERROR_T] = HEADROOM, link, log[3 * g] >> 2
            continue
        toggle(s, link, (log[3 * g] >> 2) + pfc[o + DELAY])
    pfc[o + HELD], pfc[o + SENT_OFF] = held, off


@njit(cache=True, inline="always")
def toggle(s: Tables, link: int, t: int) -> None:
    """Pause the sender of `link` at `t`, or let it go on if it is paused then."""
    q = link << PORT
    tail = s.port[q + TOGGLE_TAIL]
    if tail - s.port[q + TOGGLE_HEAD] >= 1 << TOGGLES:
        s.scal[ERROR], s.scal[ERROR_LINK], s.scal[ERROR_T] = TOO_MANY_PAUSES, link, t
        return
    s.toggle[(link << TOGGLES) + (tail & ((1 << TOGGLES) - 1))] = t
    s.port[q + TOGGLE_TAIL] = tail + 1
    s.port_next[link] = min(s.port_next[link], t)
    wake(s.send_next, s.send_block, s.link_src[link], t)


@njit(cache=True)
def switch(s: Tables, v: int, end: int) -> None:
    """Play switch `v`, of the network or inside a node, up to `end`."""
    scal, pfc, ring = s.scal, s.pfc, s.ring
    in_0, in_1 = s.in_ptr[v], s.in_ptr[v + 1]
    pausing = v >= scal[FIRST_SWITCH] and scal[FLOW_CONTROL] == PFC_ON
    scal[LOG_TOP] = 0
    choosing, n = v >= scal[FIRST_SWITCH] and (scal[SPREAD] >= ADAPTIVE or scal[SHARED] != 0), 0
    for i in range(in_0, in_1):
        link = s.in_idx[i]
        before = ring[(link << RING) + HEAD]
        o = link << PFC
        if s.wire_next[link] < end:
            if choosing:
                n = collect(s, link, end, n)
                pfc[o + ARRIVED] = total_bytes(s, link, before)
            else:
                pfc[o + ARRIVED] = gather(s, link, end)
            if scal[ACKS] == SIMULATED:
                gather_control(s, link, end)
            on_wire(s, link)
        if pausing and (pfc[o + SENT_OFF] != 0 or pfc[o + HELD] + pfc[o + ARRIVED] > pfc[o + XOFF]):
            watch(s, link, before)
    if choosing:
        deal(s, v, n)

    more = NEVER
    for i in range(s.out_ptr[v], s.out_ptr[v + 1]):
        link = s.out_idx[i]
        if s.port_next[link] < end:
            play(s, link, end)
        more = min(more, s.port_next[link])

    for i in range(in_0, in_1):
        link = s.in_idx[i]
        more = min(more, s.wire_next[link])
        if pausing:
            o = link << PFC
            if pfc[o + SENT_OFF] & HOT:
                pause(s, link)
            else:
                pfc[o + HELD] += pfc[o + ARRIVED] - pfc[o + DEPARTED]
            pfc[o + ARRIVED] = 0
            pfc[o + DEPARTED] = 0
    s.send_next[v] = more
