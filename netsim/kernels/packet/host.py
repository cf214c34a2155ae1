"""The sending side of a NIC port: queue pairs take turns, packet by packet, each at its own pace.

Queue pairs that have something to send and may send now stand in a line (round robin). One that its pace holds back joins the line when
its next packet is due; one whose window is full waits for an acknowledgement. Messages that become ready, acknowledgements and
notifications are events of the port, taken in order of (time, kind, flow) before whatever the port starts at the same time.
"""

import numpy as np
from numba import njit

from netsim.kernels.packet import cc as hooks
from netsim.kernels.packet import layout as K
from netsim.kernels.packet.calls import message_left
from netsim.kernels.packet.port import await_credit, on_wire, transfer
from netsim.kernels.packet.ring import head_time, insert
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
        insert(
            s.arena,
            s.ring,
            s.scal,
            2 * s.scal[K.N_LINKS] + u,
            K.HEAD,
            tx[o + K.NEXT_SEND],
            (K.EV_WAKE << K.INPUT_SHIFT) | (f << K.FLOW_SHIFT),
        )
    else:
        line_up(tx, s.port, u << K.PORT, f)


@njit(cache=True)
def rewind(s: Tables, cc: tuple, u: int, f: int, t: int) -> None:
    """Go back to the first packet of flow `f` that has not been acknowledged."""
    tx, o = s.tx, f << K.TX
    if tx[o + K.SENT] == tx[o + K.ACKED]:
        return
    tx[o + K.SENT] = tx[o + K.ACKED]
    settle_place(tx, o)
    if tx[o + K.STATE] == K.IDLE or tx[o + K.STATE] == K.BLOCKED:
        go_on(s, cc, u, f, t)


@njit(cache=True, forceinline=True)
def settle_place(tx: Array, o: int) -> None:
    """Make the place in the messages agree with the number of packets sent."""
    whole = tx[o + K.PER_MESSAGE] * (tx[o + K.MESSAGES] - 1)
    i = tx[o + K.SENT] % (whole + tx[o + K.LAST_MESSAGE])
    tx[o + K.MESSAGE] = min(i // tx[o + K.PER_MESSAGE], tx[o + K.MESSAGES] - 1)
    size = tx[o + K.LAST_MESSAGE] if tx[o + K.MESSAGE] == tx[o + K.MESSAGES] - 1 else tx[o + K.PER_MESSAGE]
    tx[o + K.LEFT] = size - (i - tx[o + K.MESSAGE] * tx[o + K.PER_MESSAGE])


@njit(cache=True, forceinline=True)
def skip(tx: Array, o: int) -> None:
    """Send nothing again that has been acknowledged meanwhile."""
    if tx[o + K.SENT] < tx[o + K.ACKED]:
        tx[o + K.SENT] = tx[o + K.ACKED]
        settle_place(tx, o)


@njit(cache=True)
def again(s: Tables, u: int, f: int, seq: int) -> None:
    """File packet `seq` of flow `f` to be sent again before anything else."""
    r = 4 * s.scal[K.N_LINKS] + u
    insert(s.arena, s.ring, s.scal, r, K.TAIL, 0, ((seq & K.SEQ_MASK) << K.SEQ_SHIFT) | (f << K.FLOW_SHIFT))


@njit(cache=True)
def refused(s: Tables, cc: tuple, u: int, f: int, t: int, seq: int) -> None:
    """The receiver misses packet `seq` (its low bits)."""
    tx, o = s.tx, f << K.TX
    if s.scal[K.RECOVERY] == K.SELECTIVE:
        if (seq - tx[o + K.ACKED]) & K.SEQ_MASK < K.SEQ_MASK >> 1:
            again(s, u, f, seq)
        return
    new = (seq - tx[o + K.ACKED]) & K.SEQ_MASK
    if new <= K.SEQ_MASK >> 1:
        tx[o + K.ACKED] += new
        skip(tx, o)
        tx[o + K.PROGRESS] = t
        rewind(s, cc, u, f, t)


@njit(cache=True)
def timer(s: Tables, cc: tuple, u: int, f: int, t: int) -> None:
    """Nothing may have come back for too long: send again everything that is not acknowledged."""
    tx, o = s.tx, f << K.TX
    if tx[o + K.ACKED] == tx[o + K.FURTHEST]:
        tx[o + K.TIMER] = 0
        return
    if t - tx[o + K.PROGRESS] >= s.scal[K.TIMEOUT]:
        tx[o + K.PROGRESS] = t
        rewind(s, cc, u, f, t)
    insert(
        s.arena,
        s.ring,
        s.scal,
        2 * s.scal[K.N_LINKS] + u,
        K.HEAD,
        tx[o + K.PROGRESS] + s.scal[K.TIMEOUT],
        (K.EV_TIMER << K.INPUT_SHIFT) | (f << K.FLOW_SHIFT),
    )


@njit(cache=True)
def send_again(s: Tables, u: int, start: int) -> None:
    """Start the first packet that is to be sent again."""
    ring, tx, scal = s.ring, s.tx, s.scal
    r = (4 * scal[K.N_LINKS] + u) << K.RING
    wanted = s.arena[ring[r + K.BASE] + ((ring[r + K.HEAD] & ring[r + K.MASK]) << 1) + 1]
    ring[r + K.HEAD] += 1
    f = (wanted >> K.FLOW_SHIFT) & K.FLOW_MASK
    o = f << K.TX
    seq = tx[o + K.ACKED] + ((((wanted >> K.SEQ_SHIFT) & K.SEQ_MASK) - tx[o + K.ACKED]) & K.SEQ_MASK)
    if seq >= tx[o + K.FURTHEST]:
        return
    whole = tx[o + K.PER_MESSAGE] * (tx[o + K.MESSAGES] - 1)
    i, kind = seq % (whole + tx[o + K.LAST_MESSAGE]), 0
    if i == whole + tx[o + K.LAST_MESSAGE] - 1:
        kind = 2
    elif i < whole and i % tx[o + K.PER_MESSAGE] == tx[o + K.PER_MESSAGE] - 1:
        kind = 1
    put(s, u, f, seq, kind, start)


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
    s.count[(u << K.COUNT) + K.BYTES] += size
    s.count[(u << K.COUNT) + K.PACKETS] += 1
    return size


@njit(cache=True)
def event(s: Tables, cc: tuple, u: int, t: int, meta: int) -> None:
    """A message is ready, a pace allows the next packet, or a control packet has come."""
    tx, f, kind, q = s.tx, (meta >> K.FLOW_SHIFT) & K.FLOW_MASK, meta >> K.INPUT_SHIFT, u << K.PORT
    o = f << K.TX
    if kind == K.EV_MESSAGE:
        opened = tx[o + K.OPENED]
        last = opened == tx[o + K.MESSAGES] - 1
        tx[o + K.AVAIL] += tx[o + K.LAST_MESSAGE] if last else tx[o + K.PER_MESSAGE]
        tx[o + K.OPENED] = 0 if last else opened + 1
        if tx[o + K.STATE] == K.IDLE:
            go_on(s, cc, u, f, t)
    elif kind == K.EV_WAKE:
        line_up(tx, s.port, q, f)
    elif kind == K.EV_TIMER:
        timer(s, cc, u, f, t)
    elif (meta >> K.KIND_SHIFT) & 3 == K.CNP:
        hooks.notify(cc, s.cc, f, t)
    elif (meta >> K.KIND_SHIFT) & 3 == K.NACK:
        refused(s, cc, u, f, t, (meta >> K.SEQ_SHIFT) & K.SEQ_MASK)
    elif (meta >> K.KIND_SHIFT) & 3 == K.ACK:
        acknowledged(s, cc, u, f, t, (meta >> K.SEQ_SHIFT) & K.SEQ_MASK, meta & K.CE != 0)


@njit(cache=True)
def acknowledged(s: Tables, cc: tuple, u: int, f: int, t: int, seq: int, marked: bool) -> None:
    """Everything before packet `seq` (its low bits) of flow `f` has arrived."""
    tx, o = s.tx, f << K.TX
    new = (seq - tx[o + K.ACKED]) & K.SEQ_MASK
    if new > K.SEQ_MASK >> 1:
        return
    tx[o + K.ACKED] += new
    skip(tx, o)
    if new > 0:
        tx[o + K.PROGRESS] = t
    if new > 0 and s.scal[K.KEEP_HISTORY] != 0:
        last = (f << K.HISTORY) + ((tx[o + K.ACKED] - 1) & ((1 << K.HISTORY) - 1))
        hooks.acknowledge(cc, s.cc, f, t, t - s.sent_ps[last], new, marked, tx[o + K.ACKED], tx[o + K.SENT], s.telemetry, last << 5)
    if tx[o + K.STATE] == K.BLOCKED:
        go_on(s, cc, u, f, t)
    if tx[o + K.TX_EDGE] < 0 and s.scal[K.ACKS] == K.SIMULATED and tx[o + K.ACKED] == tx[o + K.AVAIL] and s.rx[(f << K.RX) + K.END] < 0:
        s.rx[(f << K.RX) + K.END] = t
        s.scal[K.FLOWS_LEFT] -= 1


@njit(cache=True)
def send(s: Tables, cc: tuple, u: int, start: int) -> None:
    """Start the next packet of the flow that is first in line."""
    tx, port, scal, q = s.tx, s.port, s.scal, u << K.PORT
    f = port[q + K.READY]
    o = f << K.TX
    port[q + K.READY] = tx[o + K.NEXT_READY]
    if tx[o + K.SENT] == tx[o + K.AVAIL]:
        tx[o + K.STATE] = K.IDLE  # acknowledged while it stood in line
        return
    left, message = tx[o + K.LEFT], tx[o + K.MESSAGE]
    kind = 0
    if left == 1:
        kind = 2 if message == tx[o + K.MESSAGES] - 1 else 1
    size = put(s, u, f, tx[o + K.SENT], kind, start)
    free = port[q + K.FREE]
    if scal[K.KEEP_HISTORY] != 0:
        s.sent_ps[(f << K.HISTORY) + (tx[o + K.SENT] & ((1 << K.HISTORY) - 1))] = start
    tx[o + K.SENT] += 1
    new = tx[o + K.SENT] > tx[o + K.FURTHEST]
    tx[o + K.FURTHEST] = max(tx[o + K.FURTHEST], tx[o + K.SENT])
    if scal[K.RECOVERY] != K.NO_RECOVERY and tx[o + K.TIMER] == 0:
        tx[o + K.TIMER], tx[o + K.PROGRESS] = 1, start
        insert(
            s.arena,
            s.ring,
            scal,
            2 * scal[K.N_LINKS] + u,
            K.HEAD,
            start + scal[K.TIMEOUT],
            (K.EV_TIMER << K.INPUT_SHIFT) | (f << K.FLOW_SHIFT),
        )
    due = start + max(free - start, hooks.gap(cc, s.cc, f, start, size))
    tx[o + K.NEXT_SEND] = due
    if left > 1:
        tx[o + K.LEFT] = left - 1
    else:
        last = message + 1 == tx[o + K.MESSAGES]
        tx[o + K.MESSAGE] = 0 if last else message + 1
        coming = tx[o + K.MESSAGE] == tx[o + K.MESSAGES] - 1
        tx[o + K.LEFT] = tx[o + K.LAST_MESSAGE] if coming else tx[o + K.PER_MESSAGE]
        if tx[o + K.TX_EDGE] >= 0 and new:
            message_left(s, f, message, free)
    if tx[o + K.SENT] == tx[o + K.AVAIL]:
        tx[o + K.STATE] = K.IDLE
    else:
        go_on(s, cc, u, f, free)


@njit(cache=True)
def uplink(s: Tables, cc: tuple, u: int, end: int) -> None:
    """Play the NIC's port on link `u` up to `end`."""
    arena, ring, port, scal, q = s.arena, s.ring, s.port, s.scal, u << K.PORT
    events, control = (2 * scal[K.N_LINKS] + u) << K.RING, (scal[K.N_LINKS] + u) << K.RING
    repeat = scal[K.RECOVERY] == K.SELECTIVE and head_time(arena, ring, 4 * scal[K.N_LINKS] + u) < K.NEVER
    now, gate = 0, 0  # gate: credits that allow the next packet come then
    while True:
        now = max(now, port[q + K.FREE])
        if now >= end:
            break
        # events and pauses up to now
        while ring[events + K.HEAD] < ring[events + K.TAIL]:
            k = ring[events + K.BASE] + ((ring[events + K.HEAD] & ring[events + K.MASK]) << 1)
            t, meta = arena[k], arena[k + 1]
            if t > now:
                break
            ring[events + K.HEAD] += 1
            event(s, cc, u, t, meta)
        while port[q + K.TOGGLE_HEAD] < port[q + K.TOGGLE_TAIL]:
            t = s.toggle[(u << K.TOGGLES) + (port[q + K.TOGGLE_HEAD] & ((1 << K.TOGGLES) - 1))]
            if t > now:
                break
            if port[q + K.PAUSED] == 0:
                port[q + K.PAUSED], port[q + K.PAUSE_T] = 1, t
            else:
                port[q + K.PAUSED] = 0
                s.count[(u << K.COUNT) + K.PAUSE_PS] += t - port[q + K.PAUSE_T]
            port[q + K.TOGGLE_HEAD] += 1
        # control first, then whoever is first in line
        waiting = K.NEVER
        if ring[control + K.MID] < ring[control + K.TAIL]:
            k = ring[control + K.BASE] + ((ring[control + K.MID] & ring[control + K.MASK]) << 1)
            waiting = arena[k]
            if waiting <= now:
                port[q + K.FREE] = now + port[q + K.SER_CONTROL]
                arena[k] = port[q + K.FREE] + port[q + K.LATENCY]
                ring[control + K.MID] += 1
                s.count[(u << K.COUNT) + K.CONTROL_BYTES] += scal[K.CONTROL_SIZE]
                continue
        allowed = K.NEVER
        repeat = scal[K.RECOVERY] == K.SELECTIVE and head_time(arena, ring, 4 * scal[K.N_LINKS] + u) < K.NEVER
        if (port[q + K.READY] >= 0 or repeat) and port[q + K.PAUSED] == 0:
            allowed = now
            if scal[K.FLOW_CONTROL] == K.CREDITS_ON:
                gate = max(gate, await_credit(s, u, max(now, gate), scal[K.MTU], end))
                allowed = max(now, gate)
        if allowed <= now:
            if repeat:
                send_again(s, u, now)
            else:
                send(s, cc, u, now)
            continue
        # nothing may start now: on to the next moment at which something changes
        now = min(min(waiting, allowed), min(head_time(arena, ring, 2 * scal[K.N_LINKS] + u), next_toggle(s, u)))

    more = min(head_time(arena, ring, 2 * scal[K.N_LINKS] + u), next_toggle(s, u))
    if (port[q + K.READY] >= 0 or repeat) and port[q + K.PAUSED] == 0:
        if port[q + K.STARVED] != 0:
            more = min(more, head_time(arena, ring, 3 * scal[K.N_LINKS] + u))
        else:
            more = min(more, port[q + K.FREE])
    if ring[control + K.MID] < ring[control + K.TAIL]:
        more = min(more, arena[ring[control + K.BASE] + ((ring[control + K.MID] & ring[control + K.MASK]) << 1)])
    s.port_next[u] = max(more, port[q + K.FREE])
    on_wire(s, u)


@njit(cache=True, forceinline=True)
def next_toggle(s: Tables, u: int) -> int:
    """Return when the next pause or resume takes effect."""
    q = u << K.PORT
    if s.port[q + K.TOGGLE_HEAD] == s.port[q + K.TOGGLE_TAIL]:
        return K.NEVER
    return s.toggle[(u << K.TOGGLES) + (s.port[q + K.TOGGLE_HEAD] & ((1 << K.TOGGLES) - 1))]
