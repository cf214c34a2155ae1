"""The sending side of a NIC port: queue pairs take turns, packet by packet, each at its own pace.

Queue pairs that have something to send and may send now stand in a line (round robin). One that its pace holds back joins the line when its next
packet is due; one whose window is full waits for an acknowledgement. Messages that become ready, acknowledgements and
notifications are events of the port, taken in order of (time, kind, flow) before whatever the port starts at the same time.
"""

import numpy as np
from numba import njit

from netsim.kernels.packet import cc as hooks
from netsim.kernels.packet.calls import message_left
from netsim.kernels.packet.layout import (
    ACK, ACKED, AVAIL, BASE, BYTES, CE, CNP, CONTROL_BYTES, CONTROL_SIZE, COUNT, CREDIT, CREDITS_ON, EV_MESSAGE, EV_WAKE,
    EV_TIMER, FURTHEST, NACK, NO_RECOVERY, PROGRESS, RECOVERY, SELECTIVE, TIMEOUT, TIMER,
    ACKS, BLOCKED, HISTORY, KEEP_HISTORY, NO_ACKS, END, FLOWS_LEFT, RX, SIMULATED,
    FLOW_CONTROL, FLOW_MASK, FLOW_SHIFT, FREE, HEAD, HOP_SHIFT, IDLE, INPUT_SHIFT, INQ, KIND_SHIFT, LAST_MESSAGE, LATENCY, LEFT, MASK, MESSAGE, MESSAGES,
    MID, MTU, N_LINKS, NEVER, NEXT_READY, NEXT_SEND, OPENED, PACED, PACKETS, PAUSE_PS, PAUSE_T, PAUSED, PER_MESSAGE, PORT, READY, READY_TAIL, RING,
    SENT, SEQ_MASK, SEQ_SHIFT, SER, SER_CONTROL, STARVED, STATE, TAIL, TOGGLE_HEAD, TOGGLE_TAIL, TOGGLES, TX, TX_EDGE, WAITING,
)  # fmt: skip
from netsim.kernels.packet.port import await_credit, on_wire, transfer
from netsim.kernels.packet.ring import head_time, insert
from netsim.kernels.structs import Array
from netsim.kernels.packet.tables import Tables


@njit(cache=True, forceinline=True)
def line_up(tx: Array, port: Array, q: int, f: int) -> None:
    """Put flow `f` at the end of the line of port row `q`."""
    tx[(f << TX) + NEXT_READY] = -1
    tx[(f << TX) + STATE] = WAITING
    if port[q + READY] < 0:
        port[q + READY] = f
    else:
        tx[(port[q + READY_TAIL] << TX) + NEXT_READY] = f
    port[q + READY_TAIL] = f


@njit(cache=True)
def go_on(s: Tables, cc: tuple, u: int, f: int, t: int) -> None:
    """Let flow `f`, which has packets to send, line up at `t`, or when its pace allows, or when its window does."""
    tx, o = s.tx, f << TX
    under_way = tx[o + SENT] - tx[o + ACKED]
    if s.scal[ACKS] != NO_ACKS and under_way > 0 and (under_way + 1) * s.scal[MTU] > hooks.window(cc, s.cc, f):
        tx[o + STATE] = BLOCKED
    elif tx[o + NEXT_SEND] > t:
        tx[o + STATE] = PACED
        insert(s.arena, s.ring, s.scal, 2 * s.scal[N_LINKS] + u, HEAD, tx[o + NEXT_SEND], (EV_WAKE << INPUT_SHIFT) | (f << FLOW_SHIFT))
    else:
        line_up(tx, s.port, u << PORT, f)


@njit(cache=True)
def rewind(s: Tables, cc: tuple, u: int, f: int, t: int) -> None:
    """Go back to the first packet of flow `f` that has not been acknowledged."""
    tx, o = s.tx, f << TX
    if tx[o + SENT] == tx[o + ACKED]:
        return
    tx[o + SENT] = tx[o + ACKED]
    settle_place(tx, o)
    if tx[o + STATE] == IDLE or tx[o + STATE] == BLOCKED:
        go_on(s, cc, u, f, t)


@njit(cache=True, forceinline=True)
def settle_place(tx: Array, o: int) -> None:
    """Make the place in the messages agree with the number of packets sent."""
    whole = tx[o + PER_MESSAGE] * (tx[o + MESSAGES] - 1)
    i = tx[o + SENT] % (whole + tx[o + LAST_MESSAGE])
    tx[o + MESSAGE] = min(i // tx[o + PER_MESSAGE], tx[o + MESSAGES] - 1)
    size = tx[o + LAST_MESSAGE] if tx[o + MESSAGE] == tx[o + MESSAGES] - 1 else tx[o + PER_MESSAGE]
    tx[o + LEFT] = size - (i - tx[o + MESSAGE] * tx[o + PER_MESSAGE])


@njit(cache=True, forceinline=True)
def skip(tx: Array, o: int) -> None:
    """Send nothing again that has been acknowledged meanwhile."""
    if tx[o + SENT] < tx[o + ACKED]:
        tx[o + SENT] = tx[o + ACKED]
        settle_place(tx, o)


@njit(cache=True)
def again(s: Tables, u: int, f: int, seq: int) -> None:
    """File packet `seq` of flow `f` to be sent again before anything else."""
    r = 4 * s.scal[N_LINKS] + u
    insert(s.arena, s.ring, s.scal, r, TAIL, 0, ((seq & SEQ_MASK) << SEQ_SHIFT) | (f << FLOW_SHIFT))


@njit(cache=True)
def refused(s: Tables, cc: tuple, u: int, f: int, t: int, seq: int) -> None:
    """The receiver misses packet `seq` (its low bits)."""
    tx, o = s.tx, f << TX
    if s.scal[RECOVERY] == SELECTIVE:
        if (seq - tx[o + ACKED]) & SEQ_MASK < SEQ_MASK >> 1:
            again(s, u, f, seq)
        return
    new = (seq - tx[o + ACKED]) & SEQ_MASK
    if new <= SEQ_MASK >> 1:
        tx[o + ACKED] += new
        skip(tx, o)
        tx[o + PROGRESS] = t
        rewind(s, cc, u, f, t)


@njit(cache=True)
def timer(s: Tables, cc: tuple, u: int, f: int, t: int) -> None:
    """Nothing may have come back for too long: send again everything that is not acknowledged."""
    tx, o = s.tx, f << TX
    if tx[o + ACKED] == tx[o + FURTHEST]:
        tx[o + TIMER] = 0
        return
    if t - tx[o + PROGRESS] >= s.scal[TIMEOUT]:
        tx[o + PROGRESS] = t
        rewind(s, cc, u, f, t)
    insert(s.arena, s.ring, s.scal, 2 * s.scal[N_LINKS] + u, HEAD, tx[o + PROGRESS] + s.scal[TIMEOUT], (EV_TIMER << INPUT_SHIFT) | (f << FLOW_SHIFT))


@njit(cache=True)
def send_again(s: Tables, u: int, start: int) -> None:
    """Start the first packet that is to be sent again."""
    ring, tx, scal = s.ring, s.tx, s.scal
    r = (4 * scal[N_LINKS] + u) << RING
    wanted = s.arena[ring[r + BASE] + ((ring[r + HEAD] & ring[r + MASK]) << 1) + 1]
    ring[r + HEAD] += 1
    f = (wanted >> FLOW_SHIFT) & FLOW_MASK
    o = f << TX
    seq = tx[o + ACKED] + ((((wanted >> SEQ_SHIFT) & SEQ_MASK) - tx[o + ACKED]) & SEQ_MASK)
    if seq >= tx[o + FURTHEST]:
        return
    whole = tx[o + PER_MESSAGE] * (tx[o + MESSAGES] - 1)
    i, kind = seq % (whole + tx[o + LAST_MESSAGE]), 0
    if i == whole + tx[o + LAST_MESSAGE] - 1:
        kind = 2
    elif i < whole and i % tx[o + PER_MESSAGE] == tx[o + PER_MESSAGE] - 1:
        kind = 1
    put(s, u, f, seq, kind, start)


@njit(cache=True, forceinline=True)
def put(s: Tables, u: int, f: int, seq: int, kind: int, start: int) -> int:
    """Put a packet on the wire at `start`; returns its bytes."""
    port, ring, q = s.port, s.ring, u << PORT
    size, ser = s.scal[MTU], port[q + SER]
    if kind != 0:
        size = np.int64(s.size[(f << 2) + kind])
        ser = transfer(size, s.ps_per_byte[u])
    port[q + FREE] = start + ser
    meta = kind | (1 << HOP_SHIFT) | ((seq & SEQ_MASK) << SEQ_SHIFT) | (f << FLOW_SHIFT)
    insert(s.arena, ring, s.scal, u, TAIL, start + ser + port[q + LATENCY], meta)
    r = u << RING
    ring[r + MID] = ring[r + INQ] = ring[r + TAIL]
    if s.scal[FLOW_CONTROL] == CREDITS_ON:
        port[q + CREDIT] -= size
    s.count[(u << COUNT) + BYTES] += size
    s.count[(u << COUNT) + PACKETS] += 1
    return size


@njit(cache=True)
def event(s: Tables, cc: tuple, u: int, t: int, meta: int) -> None:
    """A message is ready, a pace allows the next packet, or a control packet has come."""
    tx, f, kind, q = s.tx, (meta >> FLOW_SHIFT) & FLOW_MASK, meta >> INPUT_SHIFT, u << PORT
    o = f << TX
    if kind == EV_MESSAGE:
        opened = tx[o + OPENED]
        last = opened == tx[o + MESSAGES] - 1
        tx[o + AVAIL] += tx[o + LAST_MESSAGE] if last else tx[o + PER_MESSAGE]
        tx[o + OPENED] = 0 if last else opened + 1
        if tx[o + STATE] == IDLE:
            go_on(s, cc, u, f, t)
    elif kind == EV_WAKE:
        line_up(tx, s.port, q, f)
    elif kind == EV_TIMER:
        timer(s, cc, u, f, t)
    elif (meta >> KIND_SHIFT) & 3 == CNP:
        hooks.notify(cc, s.cc, f, t)
    elif (meta >> KIND_SHIFT) & 3 == NACK:
        refused(s, cc, u, f, t, (meta >> SEQ_SHIFT) & SEQ_MASK)
    elif (meta >> KIND_SHIFT) & 3 == ACK:
        acknowledged(s, cc, u, f, t, (meta >> SEQ_SHIFT) & SEQ_MASK, meta & CE != 0)


@njit(cache=True)
def acknowledged(s: Tables, cc: tuple, u: int, f: int, t: int, seq: int, marked: bool) -> None:
    """Everything before packet `seq` (its low bits) of flow `f` has arrived."""
    tx, o = s.tx, f << TX
    new = (seq - tx[o + ACKED]) & SEQ_MASK
    if new > SEQ_MASK >> 1:
        return
    tx[o + ACKED] += new
    skip(tx, o)
    if new > 0:
        tx[o + PROGRESS] = t
    if new > 0 and s.scal[KEEP_HISTORY] != 0:
        last = (f << HISTORY) + ((tx[o + ACKED] - 1) & ((1 << HISTORY) - 1))
        hooks.acknowledge(cc, s.cc, f, t, t - s.sent_ps[last], new, marked, tx[o + ACKED], tx[o + SENT], s.telemetry, last << 5)
    if tx[o + STATE] == BLOCKED:
        go_on(s, cc, u, f, t)
    if tx[o + TX_EDGE] < 0 and s.scal[ACKS] == SIMULATED and tx[o + ACKED] == tx[o + AVAIL] and s.rx[(f << RX) + END] < 0:
        s.rx[(f << RX) + END] = t
        s.scal[FLOWS_LEFT] -= 1


@njit(cache=True)
def send(s: Tables, cc: tuple, u: int, start: int) -> None:
    """Start the next packet of the flow that is first in line."""
    tx, port, scal, q = s.tx, s.port, s.scal, u << PORT
    f = port[q + READY]
    o = f << TX
    port[q + READY] = tx[o + NEXT_READY]
    if tx[o + SENT] == tx[o + AVAIL]:
        tx[o + STATE] = IDLE  # acknowledged while it stood in line
        return
    left, message = tx[o + LEFT], tx[o + MESSAGE]
    kind = 0
    if left == 1:
        kind = 2 if message == tx[o + MESSAGES] - 1 else 1
    size = put(s, u, f, tx[o + SENT], kind, start)
    free = port[q + FREE]
    if scal[KEEP_HISTORY] != 0:
        s.sent_ps[(f << HISTORY) + (tx[o + SENT] & ((1 << HISTORY) - 1))] = start
    tx[o + SENT] += 1
    new = tx[o + SENT] > tx[o + FURTHEST]
    tx[o + FURTHEST] = max(tx[o + FURTHEST], tx[o + SENT])
    if scal[RECOVERY] != NO_RECOVERY and tx[o + TIMER] == 0:
        tx[o + TIMER], tx[o + PROGRESS] = 1, start
        insert(s.arena, s.ring, scal, 2 * scal[N_LINKS] + u, HEAD, start + scal[TIMEOUT], (EV_TIMER << INPUT_SHIFT) | (f << FLOW_SHIFT))
    due = start + max(free - start, hooks.gap(cc, s.cc, f, start, size))
    tx[o + NEXT_SEND] = due
    if left > 1:
        tx[o + LEFT] = left - 1
    else:
        last = message + 1 == tx[o + MESSAGES]
        tx[o + MESSAGE] = 0 if last else message + 1
        coming = tx[o + MESSAGE] == tx[o + MESSAGES] - 1
        tx[o + LEFT] = tx[o + LAST_MESSAGE] if coming else tx[o + PER_MESSAGE]
        if tx[o + TX_EDGE] >= 0 and new:
            message_left(s, f, message, free)
    if tx[o + SENT] == tx[o + AVAIL]:
        tx[o + STATE] = IDLE
    else:
        go_on(s, cc, u, f, free)


@njit(cache=True)
def uplink(s: Tables, cc: tuple, u: int, end: int) -> None:
    """Play the NIC's port on link `u` up to `end`."""
    arena, ring, port, scal, q = s.arena, s.ring, s.port, s.scal, u << PORT
    events, control = (2 * scal[N_LINKS] + u) << RING, (scal[N_LINKS] + u) << RING
    repeat = scal[RECOVERY] == SELECTIVE and head_time(arena, ring, 4 * scal[N_LINKS] + u) < NEVER
    now, gate = np.int64(0), np.int64(0)  # gate: credits that allow the next packet come then
    while True:
        now = max(now, port[q + FREE])
        if now >= end:
            break
        # events and pauses up to now
        while ring[events + HEAD] < ring[events + TAIL]:
            k = ring[events + BASE] + ((ring[events + HEAD] & ring[events + MASK]) << 1)
            t, meta = arena[k], arena[k + 1]
            if t > now:
                break
            ring[events + HEAD] += 1
            event(s, cc, u, t, meta)
        while port[q + TOGGLE_HEAD] < port[q + TOGGLE_TAIL]:
            t = s.toggle[(u << TOGGLES) + (port[q + TOGGLE_HEAD] & ((1 << TOGGLES) - 1))]
            if t > now:
                break
            if port[q + PAUSED] == 0:
                port[q + PAUSED], port[q + PAUSE_T] = 1, t
            else:
                port[q + PAUSED] = 0
                s.count[(u << COUNT) + PAUSE_PS] += t - port[q + PAUSE_T]
            port[q + TOGGLE_HEAD] += 1
        # control first, then whoever is first in line
        waiting = NEVER
        if ring[control + MID] < ring[control + TAIL]:
            k = ring[control + BASE] + ((ring[control + MID] & ring[control + MASK]) << 1)
            waiting = arena[k]
            if waiting <= now:
                port[q + FREE] = now + port[q + SER_CONTROL]
                arena[k] = port[q + FREE] + port[q + LATENCY]
                ring[control + MID] += 1
                s.count[(u << COUNT) + CONTROL_BYTES] += scal[CONTROL_SIZE]
                continue
        allowed = NEVER
        repeat = scal[RECOVERY] == SELECTIVE and head_time(arena, ring, 4 * scal[N_LINKS] + u) < NEVER
        if (port[q + READY] >= 0 or repeat) and port[q + PAUSED] == 0:
            allowed = now
            if scal[FLOW_CONTROL] == CREDITS_ON:
                gate = max(gate, await_credit(s, u, max(now, gate), scal[MTU], end))
                allowed = max(now, gate)
        if allowed <= now:
            if repeat:
                send_again(s, u, now)
            else:
                send(s, cc, u, now)
            continue
        # nothing may start now: on to the next moment at which something changes
        now = min(min(waiting, allowed), min(head_time(arena, ring, 2 * scal[N_LINKS] + u), next_toggle(s, u)))

    more = min(head_time(arena, ring, 2 * scal[N_LINKS] + u), next_toggle(s, u))
    if (port[q + READY] >= 0 or repeat) and port[q + PAUSED] == 0:
        if port[q + STARVED] != 0:
            more = min(more, head_time(arena, ring, 3 * scal[N_LINKS] + u))
        else:
            more = min(more, port[q + FREE])
    if ring[control + MID] < ring[control + TAIL]:
        more = min(more, arena[ring[control + BASE] + ((ring[control + MID] & ring[control + MASK]) << 1)])
    s.port_next[u] = max(more, port[q + FREE])
    on_wire(s, u)


@njit(cache=True, forceinline=True)
def next_toggle(s: Tables, u: int) -> int:
    """Return when the next pause or resume takes effect."""
    q = u << PORT
    if s.port[q + TOGGLE_HEAD] == s.port[q + TOGGLE_TAIL]:
        return NEVER
    return s.toggle[(u << TOGGLES) + (s.port[q + TOGGLE_HEAD] & ((1 << TOGGLES) - 1))]
