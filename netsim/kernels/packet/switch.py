"""A switch for one window: take what arrives, file it at the output ports, play those, and see which inputs must pause their senders.

Arrivals before `end` are all on the wires already, because nothing that leaves during the window can arrive in it. Each output port is then
played on its own. Pauses depend on departures of several ports: a port notes what left each input, and where an input may
have crossed a threshold its arrivals and departures are put in time order afterwards. A pause reaches the sender a latency later, that is
in a later window.
"""

import numpy as np
from numba import njit

from netsim.kernels.packet import layout as K
from netsim.kernels.packet.port import HOT, on_wire, packet_bytes, play
from netsim.kernels.packet.ring import insert, wake
from netsim.kernels.packet.spread import collect, deal, sprayed, total_bytes
from netsim.kernels.packet.tables import Tables


@njit(cache=True, inline="always")
def gather_control(s: Tables, link: int, end: int) -> None:
    """File the control packets that arrive on a link before `end`."""
    arena, ring, n_links = s.arena, s.ring, s.scal[K.N_LINKS]
    o = (n_links + link) << K.RING
    head, mid, mask = ring[o + K.HEAD], ring[o + K.MID], ring[o + K.MASK]
    while head < mid:
        k = ring[o + K.BASE] + ((head & mask) << 1)
        t, meta = arena[k], arena[k + 1]
        if t >= end:
            break
        flow, hop = (meta >> K.FLOW_SHIFT) & K.FLOW_MASK, (meta >> K.HOP_SHIFT) & K.HOP_MASK
        out = np.int64(s.path[(flow << K.PATH_SHIFT) + 8 + hop])
        filed = (meta & K.BELOW_INPUT) + (1 << K.HOP_SHIFT) | (s.link_input[link] << K.INPUT_SHIFT)
        insert(arena, ring, s.scal, n_links + out, K.MID, t, filed)
        s.port_next[out] = min(s.port_next[out], t)
        head += 1
    ring[o + K.HEAD] = head


@njit(cache=True, inline="always")
def gather(s: Tables, link: int, end: int) -> int:
    """File the data packets that arrive on a link before `end` at their output ports; returns their bytes."""
    arena, ring, scal, path, port_next = s.arena, s.ring, s.scal, s.path, s.port_next
    o = link << K.RING
    head, mid, base, mask = ring[o + K.HEAD], ring[o + K.MID], ring[o + K.BASE], ring[o + K.MASK]
    spraying = scal[K.SPREAD] == K.SPRAY and s.link_dst[link] >= scal[K.FIRST_SWITCH]
    mtu, total, place = scal[K.MTU], 0, s.link_input[link] << K.INPUT_SHIFT
    while head < mid:
        k = base + ((head & mask) << 1)
        t, meta = arena[k], arena[k + 1]
        if t >= end:
            break
        head += 1
        if meta & K.LOST:
            continue
        total += mtu if meta & K.CLASS_MASK == 0 else packet_bytes(s, meta)
        flow, hop = (meta >> K.FLOW_SHIFT) & K.FLOW_MASK, (meta >> K.HOP_SHIFT) & K.HOP_MASK
        if spraying:
            out = sprayed(s, s.link_dst[link], flow, (meta >> K.SEQ_SHIFT) & K.SEQ_MASK)
        else:
            out = np.int64(path[(flow << K.PATH_SHIFT) + hop])
        insert(arena, ring, scal, out, K.INQ, t, (meta & K.BELOW_INPUT) + (1 << K.HOP_SHIFT) | place)
        if t < port_next[out]:
            port_next[out] = t
    ring[o + K.HEAD] = head
    return total


@njit(cache=True, inline="always")
def watch(s: Tables, link: int, before: int) -> None:
    """Log what has arrived on `link` since ring position `before`, and have its departures logged."""
    arena, ring, log = s.arena, s.ring, s.log
    s.pfc[(link << K.PFC) + K.SENT_OFF] |= HOT
    s.log_head[link] = -1
    o, g = link << K.RING, s.scal[K.LOG_TOP]
    for i in range(before, ring[o + K.HEAD]):
        k = ring[o + K.BASE] + ((i & ring[o + K.MASK]) << 1)
        log[3 * g], log[3 * g + 1], log[3 * g + 2] = arena[k] * 4 + 1, -packet_bytes(s, arena[k + 1]), s.log_head[link]
        s.log_head[link] = g
        g += 1
    s.scal[K.LOG_TOP] = g


@njit(cache=True)
def pause(s: Tables, link: int) -> None:
    """Go through arrivals and departures of an input in time order, and send pauses and resumes to its sender.

    At one moment: what left because it arrived earlier, then arrivals, then what left at once.
    """
    pfc, log, order = s.pfc, s.log, s.scratch
    o = link << K.PFC
    n, g = 0, s.log_head[link]
    while g >= 0:
        n += 1
        order[s.scal[K.LOG_SIZE] - n] = g
        g = log[3 * g + 2]
    first = s.scal[K.LOG_SIZE] - n
    for i in range(first + 1, s.scal[K.LOG_SIZE]):
        g, j = order[i], i
        while j > first and log[3 * order[j - 1]] > log[3 * g]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = g
    held, off = pfc[o + K.HELD], pfc[o + K.SENT_OFF] & 1
    for i in range(first, s.scal[K.LOG_SIZE]):
        g = order[i]
        held -= log[3 * g + 1]
        if off == 0 and held > pfc[o + K.XOFF]:
            off = 1
        elif off == 1 and held <= pfc[o + K.XON]:
            off = 0
        else:
            if held > pfc[o + K.LIMIT] and s.scal[K.ERROR] == 0:
                s.scal[K.ERROR], s.scal[K.ERROR_LINK], s.scal[K.ERROR_T] = K.HEADROOM, link, log[3 * g] >> 2
            continue
        toggle(s, link, (log[3 * g] >> 2) + pfc[o + K.DELAY])
    pfc[o + K.HELD], pfc[o + K.SENT_OFF] = held, off


@njit(cache=True, inline="always")
def toggle(s: Tables, link: int, t: int) -> None:
    """Pause the sender of `link` at `t`, or let it go on if it is paused then."""
    q = link << K.PORT
    tail = s.port[q + K.TOGGLE_TAIL]
    if tail - s.port[q + K.TOGGLE_HEAD] >= 1 << K.TOGGLES:
        s.scal[K.ERROR], s.scal[K.ERROR_LINK], s.scal[K.ERROR_T] = K.TOO_MANY_PAUSES, link, t
        return
    s.toggle[(link << K.TOGGLES) + (tail & ((1 << K.TOGGLES) - 1))] = t
    s.port[q + K.TOGGLE_TAIL] = tail + 1
    s.port_next[link] = min(s.port_next[link], t)
    wake(s.send_next, s.send_block, s.link_src[link], t)


@njit(cache=True)
def switch(s: Tables, v: int, end: int) -> None:
    """Play switch `v`, of the network or inside a node, up to `end`."""
    scal, pfc, ring = s.scal, s.pfc, s.ring
    in_0, in_1 = s.in_ptr[v], s.in_ptr[v + 1]
    pausing = v >= scal[K.FIRST_SWITCH] and scal[K.FLOW_CONTROL] == K.PFC_ON
    scal[K.LOG_TOP] = 0
    choosing, n = v >= scal[K.FIRST_SWITCH] and (scal[K.SPREAD] >= K.ADAPTIVE or scal[K.SHARED] != 0), 0
    for i in range(in_0, in_1):
        link = s.in_idx[i]
        before = ring[(link << K.RING) + K.HEAD]
        o = link << K.PFC
        if s.wire_next[link] < end:
            if choosing:
                n = collect(s, link, end, n)
                pfc[o + K.ARRIVED] = total_bytes(s, link, before)
            else:
                pfc[o + K.ARRIVED] = gather(s, link, end)
            if scal[K.ACKS] == K.SIMULATED:
                gather_control(s, link, end)
            on_wire(s, link)
        if pausing and (pfc[o + K.SENT_OFF] != 0 or pfc[o + K.HELD] + pfc[o + K.ARRIVED] > pfc[o + K.XOFF]):
            watch(s, link, before)
    if choosing:
        deal(s, v, n)

    more = K.NEVER
    for i in range(s.out_ptr[v], s.out_ptr[v + 1]):
        link = s.out_idx[i]
        if s.port_next[link] < end:
            play(s, link, end)
        more = min(more, s.port_next[link])

    for i in range(in_0, in_1):
        link = s.in_idx[i]
        more = min(more, s.wire_next[link])
        if pausing:
            o = link << K.PFC
            if pfc[o + K.SENT_OFF] & HOT:
                pause(s, link)
            else:
                pfc[o + K.HELD] += pfc[o + K.ARRIVED] - pfc[o + K.DEPARTED]
            pfc[o + K.ARRIVED] = 0
            pfc[o + K.DEPARTED] = 0
    s.send_next[v] = more
