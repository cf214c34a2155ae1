"""An output port played forward: queue, marks, strict priority, pause, transmission.

A port sends one packet at a time, whole (store and forward): a packet of b bytes that starts at s is on the wire until s + b / rate and
reaches the far end one latency later. Control packets go before data that have not started. Order at equal times: departures of
what arrived earlier, then pauses and resumes, then arrivals. A packet joins the queue at its arrival and leaves it when it starts.

* ECN: an arriving data packet is marked by the queue in front of it: never up to kmin, always from kmax, between them with a probability
  that rises linearly to pmax (RED on the instantaneous queue, as switches do for DCQCN: Zhu et al., "Congestion control for large-scale
  RDMA deployments", SIGCOMM 2015).
* Loss (no flow control): an arriving data packet that does not fit into the port's share of the buffer is dropped.
* Pause: data that have not started wait from a pause until the next resume.
* Credits: a data packet starts once the far end has announced room for it.
"""

import numpy as np
from numba import njit

from netsim.kernels.packet import layout as K
from netsim.kernels.packet.ring import head_time, insert, random, wake
from netsim.kernels.packet.tables import Tables
from netsim.kernels.structs import Array

HOT = 1 << 1  # bit of SENT_OFF: departures of this input are logged in this window


@njit(cache=True, forceinline=True)
def transfer(nbytes: int, ps_per_byte: float) -> int:
    """Return picoseconds on the wire, to the nearest."""
    return int(nbytes * ps_per_byte + 0.5)


@njit(cache=True, forceinline=True)
def flow_event(s: Tables, u: int, kind: int, f: int, t: int) -> None:
    """File an event of flow `f` at the NIC's port on link `u`."""
    insert(s.arena, s.ring, s.scal, 2 * s.scal[K.N_LINKS] + u, K.HEAD, t, (kind << K.INPUT_SHIFT) | (f << K.FLOW_SHIFT))


@njit(cache=True, forceinline=True)
def wake_port(s: Tables, link: int, t: int) -> None:
    """Let the port on `link` have something to do at `t`."""
    s.port_next[link] = min(s.port_next[link], t)
    wake(s.send_next, s.send_block, s.link_src[link], t)


@njit(cache=True, forceinline=True)
def credit(s: Tables, link: int, t: int, nbytes: int) -> None:
    """Let the sender of `link` know at `t` of room for so many bytes more."""
    insert(s.arena, s.ring, s.scal, 3 * s.scal[K.N_LINKS] + link, K.HEAD, t, nbytes)
    if s.port[(link << K.PORT) + K.STARVED] != 0 and t < s.port_next[link]:
        wake_port(s, link, t)


@njit(cache=True, forceinline=True)
def packet_bytes(s: Tables, meta: int) -> int:
    """Return the bytes of a data packet on the wire."""
    kind = meta & K.CLASS_MASK
    return s.scal[K.MTU] if kind == 0 else np.int64(s.size[((meta >> K.FLOW_SHIFT) & K.FLOW_MASK) << 2 | kind])  # type: ignore[return-value]


@njit(cache=True, forceinline=True)
def note(s: Tables, link: int, key: int, nbytes: int, place: int) -> None:
    """Log that input `link` has let go of `nbytes`; rows are in order of (key, place)."""
    log, g = s.log, s.scal[K.LOG_TOP]
    log[g << 2], log[(g << 2) + 1], log[(g << 2) + 2], log[(g << 2) + 3] = key, nbytes, s.log_head[link], place << 32 | link
    s.log_head[link] = g
    s.scal[K.LOG_TOP] = g + 1


@njit(cache=True, forceinline=True)
def depart(s: Tables, in_0: int, p: int, meta: int, nbytes: int, start: int, arrival: int) -> None:
    """Tell the input that a packet came from that it has left by port `p`; near a threshold also when."""
    link = s.in_idx[in_0 + (meta >> K.INPUT_SHIFT)]
    o = link << K.PFC
    if s.scal[K.FLOW_CONTROL] == K.CREDITS_ON:
        s.port[(p << K.PORT) + K.CREDIT] -= nbytes
        credit(s, link, start + s.pfc[o + K.DELAY], nbytes)
        return
    s.pfc[o + K.DEPARTED] += nbytes
    if s.pfc[o + K.SENT_OFF] & HOT:
        note(s, link, start * 4 + (2 if start == arrival else 0), nbytes, p)


@njit(cache=True, forceinline=True)
def mark(scal: Array, port: Array, q: int, p: int, queue: int) -> bool:
    """Whether an arriving packet is marked."""
    if queue >= scal[K.KMAX]:
        return True
    port[q + K.RAMP] += 1
    draw = random(scal[K.SEED], p, port[q + K.RAMP]) >> 13  # 40 bits, so is pmax
    return draw * (scal[K.KMAX] - scal[K.KMIN]) < scal[K.PMAX_BITS] * (queue - scal[K.KMIN])


@njit(cache=True)
def report(s: Tables, meta: int, queue: int, sent: int, t: int, rate: float) -> None:
    """Write what a port tells the sender of a packet that leaves it: queue and bytes sent without the packet, the time, and its rate."""
    history = (((meta >> K.FLOW_SHIFT) & K.FLOW_MASK) << K.HISTORY) + ((meta >> K.SEQ_SHIFT) & ((1 << K.HISTORY) - 1))
    at = (history << 5) + 4 * (((meta >> K.HOP_SHIFT) & K.HOP_MASK) - 1)
    s.telemetry[at], s.telemetry[at + 1], s.telemetry[at + 2], s.telemetry[at + 3] = queue, sent, t, np.int64(rate)


@njit(cache=True)
def await_credit(s: Tables, p: int, start: int, nbytes: int, end: int) -> int:
    """Take the credits announced by `start`, then as many as the packet still lacks; returns when it may start, NEVER if not before
    `end`.
    """
    ring, port, r, q = s.ring, s.port, (3 * s.scal[K.N_LINKS] + p) << K.RING, p << K.PORT
    base, mask, head, tail = ring[r + K.BASE], ring[r + K.MASK], ring[r + K.HEAD], ring[r + K.TAIL]
    while head < tail:
        k = base + ((head & mask) << 1)
        if s.arena[k] >= end or (s.arena[k] > start and port[q + K.CREDIT] >= nbytes):
            break
        start = max(start, s.arena[k])
        port[q + K.CREDIT] += s.arena[k + 1]
        head += 1
    ring[r + K.HEAD] = head
    port[q + K.STARVED] = port[q + K.CREDIT] < nbytes
    return K.NEVER if port[q + K.STARVED] else start


@njit(cache=True, forceinline=True)
def on_wire(s: Tables, p: int) -> None:
    """Note when the first packet on the wire of link `p` reaches the far end."""
    t, ring, o = K.NEVER, s.ring, p << K.RING
    if ring[o + K.HEAD] < ring[o + K.MID]:
        t = s.arena[ring[o + K.BASE] + ((ring[o + K.HEAD] & ring[o + K.MASK]) << 1)]
    if s.scal[K.ACKS] == K.SIMULATED:
        o = (s.scal[K.N_LINKS] + p) << K.RING
        if ring[o + K.HEAD] < ring[o + K.MID]:
            t = min(t, s.arena[ring[o + K.BASE] + ((ring[o + K.HEAD] & ring[o + K.MASK]) << 1)])
    s.wire_next[p] = t
    if t < K.NEVER:
        if s.port[(p << K.PORT) + K.TO_HOST] != 0:
            wake(s.receive_next, s.receive_block, s.link_dst[p], t)
        else:
            wake(s.send_next, s.send_block, s.link_dst[p], t)


@njit(cache=True, forceinline=True)
def join(
    s: Tables, p: int, base: int, mask: int, tail: int, inq: int, must: int, bound: int, queue: int, limit: int, most: int, queued: int
) -> tuple[int, int, int, int]:
    """Let packets that arrive before `bound`, and the one at position `must`, join the queue of port `p`.

    Up to `limit` bytes of queue nothing happens to them. Returns (position of the first that has not joined, queue, longest queue, queued).
    """
    arena, scal = s.arena, s.scal
    while inq < tail:
        k = base + ((inq & mask) << 1)
        if arena[k] >= bound and inq != must:
            break
        meta = arena[k + 1]
        size = scal[K.MTU] if meta & K.CLASS_MASK == 0 else packet_bytes(s, meta)
        inq += 1
        if queue > limit:
            if queue + size > s.port[(p << K.PORT) + K.ROOM]:
                arena[k + 1] = meta | K.LOST
                s.count[(p << K.COUNT) + K.DROPS] += 1
                continue
            if scal[K.ECN_ON] != 0 and queue > scal[K.KMIN] and mark(scal, s.port, p << K.PORT, p, queue):
                arena[k + 1] = meta | K.CE
                s.count[(p << K.COUNT) + K.MARKS] += 1
        queue += size
        queued -= size * arena[k]
        most = max(most, queue)
    return inq, queue, most, queued


@njit(cache=True)
def obey(s: Tables, p: int, start: int, gate: int, end: int) -> int:
    """Take the pauses and resumes of port `p` that come before `end` and before data that could start at `start`.

    Returns the time from which data may start: `gate`, or that of the latest resume; NEVER while it is paused.
    """
    port, q = s.port, p << K.PORT
    while port[q + K.TOGGLE_HEAD] < port[q + K.TOGGLE_TAIL]:
        t = s.toggle[(p << K.TOGGLES) + (port[q + K.TOGGLE_HEAD] & ((1 << K.TOGGLES) - 1))]
        if t >= end or (port[q + K.PAUSED] == 0 and t > start):
            break
        if port[q + K.PAUSED] == 0:
            port[q + K.PAUSED], port[q + K.PAUSE_T], gate = 1, t, K.NEVER
        else:
            port[q + K.PAUSED], gate = 0, t
            start = max(start, t)
            s.count[(p << K.COUNT) + K.PAUSE_PS] += t - port[q + K.PAUSE_T]
        port[q + K.TOGGLE_HEAD] += 1
    return K.NEVER if port[q + K.PAUSED] != 0 else gate


@njit(cache=True, forceinline=True)
def control_time(s: Tables, p: int) -> int:
    """Return when the control packet that is next at port `p` arrived, NEVER where there is none."""
    o = (s.scal[K.N_LINKS] + p) << K.RING
    if s.scal[K.ACKS] != K.SIMULATED or s.ring[o + K.MID] == s.ring[o + K.TAIL]:
        return K.NEVER
    return s.arena[s.ring[o + K.BASE] + ((s.ring[o + K.MID] & s.ring[o + K.MASK]) << 1)]


@njit(cache=True, forceinline=True)
def send_control(s: Tables, p: int, free: int, bound: int, end: int) -> int:
    """Send what control packets may start before `end` and not after data, which could at `bound`; returns when the port is free then."""
    o, arena, port = (s.scal[K.N_LINKS] + p) << K.RING, s.arena, s.port
    base, mask, mid, tail = s.ring[o + K.BASE], s.ring[o + K.MASK], s.ring[o + K.MID], s.ring[o + K.TAIL]
    ser, latency, first = port[(p << K.PORT) + K.SER_CONTROL], port[(p << K.PORT) + K.LATENCY], mid
    while mid < tail:
        k = base + ((mid & mask) << 1)
        start = max(arena[k], free)
        if start >= end or start > bound:
            break
        free = start + ser
        arena[k] = free + latency
        bound = max(bound, free)
        mid += 1
    s.ring[o + K.MID] = mid
    s.count[(p << K.COUNT) + K.CONTROL_BYTES] += (mid - first) * s.scal[K.CONTROL_SIZE]
    return free


@njit(cache=True, forceinline=True)
def due(s: Tables, p: int, control: int) -> int:
    """Return when port `p`, whose first control packet came at `control`, has more to do."""
    port, ring, o, q = s.port, s.ring, p << K.RING, p << K.PORT
    mid, inq, tail, base, mask = ring[o + K.MID], ring[o + K.INQ], ring[o + K.TAIL], ring[o + K.BASE], ring[o + K.MASK]
    more = K.NEVER
    if mid < tail:
        if port[q + K.PAUSED] == 0:
            more = max(s.arena[base + ((mid & mask) << 1)], port[q + K.FREE])
            if port[q + K.STARVED] != 0:
                more = head_time(s.arena, ring, 3 * s.scal[K.N_LINKS] + p)
        if inq < tail:
            more = min(more, s.arena[base + ((inq & mask) << 1)])
    if control < K.NEVER:
        more = min(more, max(control, port[q + K.FREE]))
    if port[q + K.TOGGLE_HEAD] < port[q + K.TOGGLE_TAIL]:
        more = min(more, s.toggle[(p << K.TOGGLES) + (port[q + K.TOGGLE_HEAD] & ((1 << K.TOGGLES) - 1))])
    return more


@njit(cache=True)
def play(s: Tables, p: int, end: int) -> None:
    """Play the output port of link `p` up to `end`."""
    arena, ring, port, scal = s.arena, s.ring, s.port, s.scal
    o, q = p << K.RING, p << K.PORT
    base, mask, mid, inq, tail = ring[o + K.BASE], ring[o + K.MASK], ring[o + K.MID], ring[o + K.INQ], ring[o + K.TAIL]
    free, queue, ser, latency, mtu = port[q + K.FREE], port[q + K.QUEUE], port[q + K.SER], port[q + K.LATENCY], scal[K.MTU]
    pausing, gate = port[q + K.PAUSED] != 0 or port[q + K.TOGGLE_HEAD] < port[q + K.TOGGLE_TAIL], np.int64(0)
    v, mode, limit = s.link_src[p], np.int64(0), K.NEVER  # links inside nodes: no thresholds, no flow control
    if v >= scal[K.FIRST_SWITCH]:
        mode, limit = scal[K.FLOW_CONTROL], min(scal[K.KMIN] if scal[K.ECN_ON] != 0 else K.NEVER, port[q + K.ROOM] - mtu)
    in_0, control, longest = s.in_ptr[v], control_time(s, p), s.count[(p << K.COUNT) + K.QUEUE_MAX]
    nbytes, packets, queued = 0, 0, np.int64(0)

    while True:
        # when would the next data packet start
        start = K.NEVER
        if mid < tail:
            start = max(arena[base + ((mid & mask) << 1)], free, gate)
        if pausing:
            gate = obey(s, p, start, gate, end)
            start = max(start, gate)
        if mode == K.CREDITS_ON and start < end:
            start = gate = await_credit(s, p, start, packet_bytes(s, arena[base + ((mid & mask) << 1) + 1]), end)
        # control goes first
        if control < end and max(control, free) < end and max(control, free) <= start:
            free = send_control(s, p, free, start, end)
            control = control_time(s, p)
            continue
        # what arrives before this packet starts joins the queue; this packet itself at the latest now
        inq, queue, longest, queued = join(
            s, p, base, mask, tail, inq, mid if start < end else -1, min(start, end), queue, limit, longest, queued
        )
        if start >= end:
            break
        # transmission
        k = base + ((mid & mask) << 1)
        meta = arena[k + 1]
        mid += 1
        if meta & K.LOST:
            arena[k] = start + latency
            continue
        size, took = mtu, ser
        if meta & K.CLASS_MASK != 0:
            size = packet_bytes(s, meta)
            took = transfer(size, s.ps_per_byte[p])
        queue -= size
        queued += size * start
        if scal[K.TELEMETRY] != 0:
            report(s, meta, queue, s.count[(p << K.COUNT) + K.BYTES] + nbytes, start, 1e12 / s.ps_per_byte[p])
        if mode != 0:
            depart(s, in_0, p, meta, size, start, arena[k])
        free = start + took
        arena[k] = free + latency
        nbytes += size
        packets += 1

    ring[o + K.MID], ring[o + K.INQ] = mid, inq
    port[q + K.FREE], port[q + K.QUEUE] = free, queue
    s.count[(p << K.COUNT) + K.BYTES] += nbytes
    s.count[(p << K.COUNT) + K.PACKETS] += packets
    s.count[(p << K.COUNT) + K.QUEUE_MAX] = longest
    s.count[(p << K.COUNT) + K.QUEUED] += queued
    s.port_next[p] = due(s, p, control)
    on_wire(s, p)
