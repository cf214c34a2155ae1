"""A switch for one window: take what arrives, file it at the output ports, play those, and see which inputs must pause their senders.

Arrivals before `end` are all on the wires already, because nothing that leaves during the window can arrive in it. Each output port is then
played on its own; only then, from what has come and gone, follows who must pause (see `pause`).
"""

import numpy as np
from numba import njit

from netsim.kernels.packet import layout as K
from netsim.kernels.packet.detour import acknowledge_onward
from netsim.kernels.packet.outage import throw_away
from netsim.kernels.packet.pause import crowded, near, pool_crossings, settle_account, watch, watch_all
from netsim.kernels.packet.port import on_wire, packet_bytes, play
from netsim.kernels.packet.ring import insert
from netsim.kernels.packet.spread import along, collect, deal, no_way, sprayed, total_bytes
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
        head += 1
        flow, hop = (meta >> K.FLOW_SHIFT) & K.FLOW_MASK, (meta >> K.HOP_SHIFT) & K.HOP_MASK
        out = np.int64(s.path[(flow << K.PATH_SHIFT) + 8 + (hop & 7)])
        if s.scal[K.REROUTED] != 0 and (out < 0 or s.link_src[out] != s.link_dst[link]):
            acknowledge_onward(s, s.link_dst[link], t, meta)
            continue
        if s.port[(out << K.PORT) + K.FREE] == K.NEVER:
            continue  # a dead port
        filed = (meta & K.BELOW_INPUT) + (1 << K.HOP_SHIFT) | (s.link_input[link] << K.INPUT_SHIFT)
        insert(arena, ring, s.scal, n_links + out, K.MID, t, filed)
        s.port_next[out] = min(s.port_next[out], t)
    ring[o + K.HEAD] = head


@njit(cache=True, inline="always")
def gather(s: Tables, link: int, end: int) -> int:
    """File the data packets that arrive on a link before `end` at their output ports; returns their bytes."""
    arena, ring, scal, v, port_next = s.arena, s.ring, s.scal, s.link_dst[link], s.port_next
    o = link << K.RING
    head, mid, base, mask = ring[o + K.HEAD], ring[o + K.MID], ring[o + K.BASE], ring[o + K.MASK]
    spraying, failed = scal[K.SPREAD] == K.SPRAY, scal[K.FAILED] != 0
    mtu, total, place = scal[K.MTU], 0, s.link_input[link] << K.INPUT_SHIFT
    while head < mid:
        k = base + ((head & mask) << 1)
        t, meta = arena[k], arena[k + 1]
        if t >= end:
            break
        head += 1
        if meta & K.LOST:
            continue
        if failed and no_way(s, v, meta):
            throw_away(s, link, k)
            continue
        total += mtu if meta & K.CLASS_MASK == 0 else packet_bytes(s, meta)
        filed = (meta & K.BELOW_INPUT) + (1 << K.HOP_SHIFT)
        if spraying:
            out = sprayed(s, v, (meta >> K.FLOW_SHIFT) & K.FLOW_MASK, (meta >> K.SEQ_SHIFT) & K.SEQ_MASK)
        else:
            out, filed = along(s, v, meta & K.BELOW_INPUT)
        insert(arena, ring, scal, out, K.INQ, t, filed | place)
        if t < port_next[out]:
            port_next[out] = t
    ring[o + K.HEAD] = head
    return total


@njit(cache=True)
def switch(s: Tables, v: int, end: int) -> None:
    """Play switch `v`, of the network or inside a node, up to `end`."""
    scal, pfc, ring = s.scal, s.pfc, s.ring
    in_0, in_1 = s.in_ptr[v], s.in_ptr[v + 1]
    pausing = v >= scal[K.FIRST_SWITCH] and scal[K.FLOW_CONTROL] == K.PFC_ON
    pooled = pausing and scal[K.POOLED] != 0
    scal[K.LOG_TOP] = 0
    choosing, n = v >= scal[K.FIRST_SWITCH] and (scal[K.SPREAD] >= K.ADAPTIVE or scal[K.SHARED] != 0), 0
    for i in range(in_0, in_1):
        link = s.in_idx[i]
        o = link << K.PFC
        before = ring[(link << K.RING) + K.HEAD]
        if s.wire_next[link] < end:
            if choosing:
                n = collect(s, link, end, n)
                pfc[o + K.ARRIVED] = total_bytes(s, link, before)
            else:
                pfc[o + K.ARRIVED] = gather(s, link, end)
            if scal[K.ACKS] == K.SIMULATED:
                gather_control(s, link, end)
            on_wire(s, link)
        if pausing and near(s, link):
            watch(s, link, before)
        if pooled:
            pfc[o + K.BEFORE] = before
    if pooled and crowded(s, v):
        watch_all(s, v)
    if choosing:
        deal(s, v, n)

    more = K.NEVER
    for i in range(s.out_ptr[v], s.out_ptr[v + 1]):
        link = s.out_idx[i]
        if s.port_next[link] < end:
            play(s, link, end)
        more = min(more, s.port_next[link])
    if pooled:
        pool_crossings(s, v)
    for i in range(in_0, in_1):
        link = s.in_idx[i]
        more = min(more, s.wire_next[link])
        if pausing:
            settle_account(s, link)
    s.send_next[v] = more
