"""The sending side of a NIC port: queue pairs take turns, packet by packet, each at its own pace.

Queue pairs that have something to send and may send now stand in a line (round robin). One that its pace holds back joins the line when
its next packet is due; one whose window is full waits for an acknowledgement. Messages that become ready, acknowledgements and
notifications are events of the port, taken in order of (time, kind, flow) before whatever the port starts at the same time.
"""

from numba import njit

from netsim.kernels.packet import cc as hooks
from netsim.kernels.packet import layout as K
from netsim.kernels.packet.loss import refused, send_again, skip, timer
from netsim.kernels.packet.port import await_credit, flow_event, on_wire
from netsim.kernels.packet.ring import head_time
from netsim.kernels.packet.tables import Tables
from netsim.kernels.packet.turns import go_on, line_up, put


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
    tx[o + K.FURTHEST] = max(tx[o + K.FURTHEST], tx[o + K.SENT])
    if scal[K.RECOVERY] != K.NO_RECOVERY and tx[o + K.TIMER] == 0:
        tx[o + K.TIMER], tx[o + K.PROGRESS] = 1, start
        flow_event(s, u, K.EV_TIMER, f, start + scal[K.TIMEOUT])
    due = start + max(free - start, hooks.gap(cc, s.cc, f, start, size))
    tx[o + K.NEXT_SEND] = due
    if left > 1:
        tx[o + K.LEFT] = left - 1
    else:
        last = message + 1 == tx[o + K.MESSAGES]
        tx[o + K.MESSAGE] = 0 if last else message + 1
        coming = tx[o + K.MESSAGE] == tx[o + K.MESSAGES] - 1
        tx[o + K.LEFT] = tx[o + K.LAST_MESSAGE] if coming else tx[o + K.PER_MESSAGE]
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
