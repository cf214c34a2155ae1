"""What happens to packets under way when routes change, because a link has failed or returned.

All tables change at one moment, when routing has converged. From then on a flow takes its new path. Packets that the old one has brought to
a switch that is not on the new path go on from there by the shortest way that the tables have, and are lost where there is none, as
between planes that no cable joins. Acknowledgements that have lost their path reach the sender after the time of an idle path. Whatever
waits in a NIC for a flow that leaves by another port now, goes there.
"""

import numpy as np
from numba import njit

from netsim.kernels.packet import layout as K
from netsim.kernels.packet.port import wake_port
from netsim.kernels.packet.receive import to_sender
from netsim.kernels.packet.ring import insert
from netsim.kernels.packet.spread import on_path
from netsim.kernels.packet.tables import Tables
from netsim.kernels.packet.turns import line_up
from netsim.kernels.structs import Array


@njit(cache=True)
def change_paths(s: Tables, flow: Array, ahead_ptr: Array, ahead: Array, back_ptr: Array, back: Array) -> None:
    """Give flows new paths, out and back."""
    for i in range(flow.size):
        f = flow[i]
        p, way = f << K.PATH_SHIFT, 0
        for h in range(16):
            s.path[p + h] = -1
        for h in range(ahead_ptr[i + 1] - ahead_ptr[i]):
            s.path[p + h] = ahead[ahead_ptr[i] + h]
        for h in range(back_ptr[i + 1] - back_ptr[i]):
            link = back[back_ptr[i] + h]
            s.path[p + 8 + h] = link
            way += s.port[(link << K.PORT) + K.LATENCY] + s.port[(link << K.PORT) + K.SER_CONTROL]
        s.tx[(f << K.TX) + K.UPLINK], s.tx[(f << K.TX) + K.RETURN] = s.path[p], way
        s.rx[(f << K.RX) + K.RX_UPLINK] = s.path[p + 8]
        s.rx[(f << K.RX) + K.RX_LAST] = ahead[ahead_ptr[i + 1] - 1]


@njit(cache=True)
def acknowledge_onward(s: Tables, v: int, t: int, meta: int) -> None:
    """File a control packet that is at switch `v` at `t` for its way back, or let it reach the sender as if the path were idle."""
    flow = (meta >> K.FLOW_SHIFT) & K.FLOW_MASK
    hop = on_path(s, v, flow, 8)
    if hop < 0:
        to_sender(s, flow, t + s.tx[(flow << K.TX) + K.RETURN], meta & K.BELOW_INPUT)
        return
    link = np.int64(s.path[(flow << K.PATH_SHIFT) + 8 + hop])
    if s.port[(link << K.PORT) + K.FREE] == K.NEVER:
        return  # it has failed since
    meta = (meta & ~(K.HOP_MASK << K.HOP_SHIFT)) | ((hop + 1) << K.HOP_SHIFT)
    insert(s.arena, s.ring, s.scal, s.scal[K.N_LINKS] + link, K.MID, t, meta)
    wake_port(s, link, t)


@njit(cache=True)
def change_ports(s: Tables, u: int, now: int) -> None:
    """Hand what waits at a NIC's port `u` for flows that use another port now to that port."""
    arena, ring, n = s.arena, s.ring, s.scal[K.N_LINKS]
    for table, first in ((1, K.MID), (2, K.HEAD), (4, K.HEAD)):
        o = (table * n + u) << K.RING
        low, last, base, mask = ring[o + first], ring[o + K.TAIL], ring[o + K.BASE], ring[o + K.MASK]
        ring[o + K.TAIL] = low
        for i in range(low, last):
            k = base + ((i & mask) << 1)
            t, meta = arena[k], arena[k + 1]
            f = (meta >> K.FLOW_SHIFT) & K.FLOW_MASK
            to = s.rx[(f << K.RX) + K.RX_UPLINK] if table == 1 else s.tx[(f << K.TX) + K.UPLINK]
            if to == u:
                kept = base + ((ring[o + K.TAIL] & mask) << 1)
                arena[kept], arena[kept + 1] = t, meta
                ring[o + K.TAIL] += 1
            else:
                insert(arena, ring, s.scal, table * n + to, first, t, meta)
                wake_port(s, to, max(t, now))
    f = s.port[(u << K.PORT) + K.READY]
    s.port[(u << K.PORT) + K.READY] = -1
    while f >= 0:
        after, to = s.tx[(f << K.TX) + K.NEXT_READY], s.tx[(f << K.TX) + K.UPLINK]
        line_up(s.tx, s.port, to << K.PORT, f)
        s.port[(to << K.PORT) + K.FREE] = max(s.port[(to << K.PORT) + K.FREE], now)  # an idle port would start when it last was free
        wake_port(s, to, now)
        f = after


@njit(cache=True)
def resettle(s: Tables, now: int) -> None:
    """Send everything that waits in NICs for flows that use another port on its new way."""
    for v in range(s.scal[K.FIRST_NIC], s.scal[K.FIRST_SWITCH]):
        for i in range(s.out_ptr[v], s.out_ptr[v + 1]):
            if s.link_dst[s.out_idx[i]] >= s.scal[K.FIRST_SWITCH]:
                change_ports(s, s.out_idx[i], now)
