"""Whose turn it is on a NIC port, and putting a packet on its wire."""

import numpy as np
from numba import njit

from netsim.kernels.packet import cc as hooks
from netsim.kernels.packet import layout as K
from netsim.kernels.packet.port import flow_event, transfer
from netsim.kernels.packet.ring import insert
from netsim.kernels.packet.tables import Tables
from netsim.kernels.structs import Array


@njit(cache=True, forceinline=True)
def line_up(tx: Array, port: Array, q: int, f: int) -> None:
    """Put flow `f` at the end of the line of port row `q`."""
    tx[(f << K.TX) + K.NEXT_READY] = -1
    tx[(f << K.TX) + K.STATE] = K.WAITING
    if port[q + K.READY] < 0:
        port[q + K.READY] = f
    else:
        tx[(port[q + K.READY_TAIL] << K.TX) + K.NEXT_READY] = f
    port[q + K.READY_TAIL] = f


@njit(cache=True)
def go_on(s: Tables, cc: tuple, u: int, f: int, t: int) -> None:
    """Let flow `f`, which has packets to send, line up at `t`, or when its pace allows, or when its window does."""
    tx, o = s.tx, f << K.TX
    under_way = tx[o + K.SENT] - tx[o + K.ACKED]
    if s.scal[K.ACKS] != K.NO_ACKS and under_way > 0 and (under_way + 1) * s.scal[K.MTU] > hooks.window(cc, s.cc, f):
        tx[o + K.STATE] = K.BLOCKED
    elif tx[o + K.NEXT_SEND] > t:
        tx[o + K.STATE] = K.PACED
        flow_event(s, u, K.EV_WAKE, f, tx[o + K.NEXT_SEND])
    else:
        line_up(tx, s.port, u << K.PORT, f)


@njit(cache=True, forceinline=True)
def put(s: Tables, u: int, f: int, seq: int, kind: int, start: int) -> int:
    """Put a packet on the wire at `start`; returns its bytes."""
    port, ring, q = s.port, s.ring, u << K.PORT
    size, ser = s.scal[K.MTU], port[q + K.SER]
    if kind != 0:
        size = np.int64(s.size[(f << 2) + kind])
        ser = transfer(size, s.ps_per_byte[u])
    port[q + K.FREE] = start + ser
    meta = kind | (1 << K.HOP_SHIFT) | ((seq & K.SEQ_MASK) << K.SEQ_SHIFT) | (f << K.FLOW_SHIFT)
    insert(s.arena, ring, s.scal, u, K.TAIL, start + ser + port[q + K.LATENCY], meta)
    r = u << K.RING
    ring[r + K.MID] = ring[r + K.INQ] = ring[r + K.TAIL]
    if s.scal[K.FLOW_CONTROL] == K.CREDITS_ON:
        port[q + K.CREDIT] -= size
    if seq < s.tx[(f << K.TX) + K.FURTHEST]:
        s.tx[(f << K.TX) + K.RESENT] += 1
    s.count[(u << K.COUNT) + K.BYTES] += size
    s.count[(u << K.COUNT) + K.PACKETS] += 1
    return size
