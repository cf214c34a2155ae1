"""An output port played forward: queue, marks, strict priority, pause, transmission.

A port sends one packet at a time, whole (store and forward): a packet of b bytes that starts at s is on the wire until s + b / rate and
reaches the far end one latency later. Control packets go before data that have not started. Order at equal times: departures of
what arrived earlier, then pauses and resumes, then arrivals. A packet joins the queue at its arrival and leaves it when it starts.

* ECN: an arriving data packet is marked by the queue in front of it: never up to kmin, always from kmax, between them with a probability
that rises
  linearly to pmax (RED on the instantaneous queue, as switches do for DCQCN: Zhu et al., "Congestion control for large-scale RDMA
  deployments", SIGCOMM 2015).
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
def packet_bytes(s: Tables, meta: int) -> int:
    """Return the bytes of a data packet on the wire."""
    kind = meta & K.CLASS_MASK
    return s.scal[K.MTU] if kind == 0 else np.int64(s.size[((meta >> K.FLOW_SHIFT) & K.FLOW_MASK) << 2 | kind])  # type: ignore[return-value]


@njit(cache=True, forceinline=True)
def depart(s: Tables, in_0: int, meta: int, nbytes: int, start: int, arrival: int) -> None:
    """Tell the input that a packet came from that it has left; near a threshold also when."""
    link = s.in_idx[in_0 + (meta >> K.INPUT_SHIFT)]
    o = link << K.PFC
    if s.scal[K.FLOW_CONTROL] == K.CREDITS_ON:
        t = start + s.pfc[o + K.DELAY]
        insert(s.arena, s.ring, s.scal, 3 * s.scal[K.N_LINKS] + link, K.HEAD, t, nbytes)
        if s.port[(link << K.PORT) + K.STARVED] != 0 and t < s.port_next[link]:
            s.port_next[link] = t
            wake(s.send_next, s.send_block, s.link_src[link], t)
        return
    s.pfc[o + K.DEPARTED] += nbytes
    if s.pfc[o + K.SENT_OFF] & HOT:
        g = s.scal[K.LOG_TOP]
        s.log[3 * g] = start * 4 + (2 if start == arrival else 0)
        s.log[3 * g + 1] = nbytes
        s.log[3 * g + 2] = s.log_head[link]
        s.log_head[link] = g
        s.scal[K.LOG_TOP] = g + 1


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


@njit(cache=True)
def play(s: Tables, p: int, end: int) -> None:
    """Play the output port of link `p` up to `end`."""
    arena, ring, port, scal = s.arena, s.ring, s.port, s.scal
    o, q = p << K.RING, p << K.PORT
    base, mask, mid, inq, tail = ring[o + K.BASE], ring[o + K.MASK], ring[o + K.MID], ring[o + K.INQ], ring[o + K.TAIL]
    oc, simulated = (scal[K.N_LINKS] + p) << K.RING, scal[K.ACKS] == K.SIMULATED
    c_base = c_mask = c_mid = c_tail = np.int64(0)
    if simulated:
        c_base, c_mask, c_mid, c_tail = ring[oc + K.BASE], ring[oc + K.MASK], ring[oc + K.MID], ring[oc + K.TAIL]
    free, queue, ser, latency, paused = port[q + K.FREE], port[q + K.QUEUE], port[q + K.SER], port[q + K.LATENCY], port[q + K.PAUSED]
    t_head, t_tail = port[q + K.TOGGLE_HEAD], port[q + K.TOGGLE_TAIL]
    mtu, kmin = scal[K.MTU], scal[K.KMIN]
    room = port[q + K.ROOM]
    v = s.link_src[p]
    in_0, network = s.in_ptr[v], v >= scal[K.FIRST_SWITCH]
    mode = scal[K.FLOW_CONTROL] if network else 0
    marking = network and scal[K.ECN_ON] != 0
    ps_per_byte = s.ps_per_byte[p]
    queue_max, nbytes, c_bytes, packets, marks, pause_ps = s.count[(p << K.COUNT) + K.QUEUE_MAX], 0, 0, 0, 0, 0
    gate, drops, queued = np.int64(0), 0, np.int64(0)
    limit = min(kmin if marking else K.NEVER, room - mtu)

    while True:
        # when would the next data packet start
        start = K.NEVER
        if mid < tail:
            arrival = arena[base + ((mid & mask) << 1)]
            start = max(arrival, free, gate)
        # pauses and resumes before that
        if paused != 0 or t_head < t_tail:
            while t_head < t_tail:
                t = s.toggle[(p << K.TOGGLES) + (t_head & ((1 << K.TOGGLES) - 1))]
                if t >= end or (paused == 0 and t > start):
                    break
                if paused == 0:
                    paused, port[q + K.PAUSE_T] = 1, t
                else:
                    paused, gate = 0, t
                    start = max(start, t)
                    pause_ps += t - port[q + K.PAUSE_T]
                t_head += 1
            if paused != 0:
                start = K.NEVER
        if mode == K.CREDITS_ON and start < end:
            start = await_credit(s, p, start, packet_bytes(s, arena[base + ((mid & mask) << 1) + 1]), end)
            gate = start
        # control goes first
        if c_mid < c_tail:
            k = c_base + ((c_mid & c_mask) << 1)
            c_start = max(arena[k], free)
            if c_start <= start:
                if c_start >= end:
                    break
                free = c_start + port[q + K.SER_CONTROL]
                arena[k] = free + latency
                c_mid += 1
                c_bytes += scal[K.CONTROL_SIZE]
                continue
        if start >= end:
            break
        # what arrives before this packet starts joins the queue; this packet itself at the latest now
        while inq < tail:
            k = base + ((inq & mask) << 1)
            if arena[k] >= start and inq > mid:
                break
            meta = arena[k + 1]
            size = mtu if meta & K.CLASS_MASK == 0 else packet_bytes(s, meta)
            if queue > limit:
                if queue + size > room:
                    arena[k + 1] = meta | K.LOST
                    drops += 1
                    inq += 1
                    continue
                if marking and queue > kmin and mark(scal, port, q, p, queue):
                    arena[k + 1] = meta | K.CE
                    marks += 1
            queue += size
            queued -= size * arena[k]
            inq += 1
            if queue > queue_max:
                queue_max = queue
        # transmission
        k = base + ((mid & mask) << 1)
        meta = arena[k + 1]
        if meta & K.LOST:
            arena[k] = start + latency
            mid += 1
            continue
        if meta & K.CLASS_MASK == 0:
            size = mtu
            free = start + ser
        else:
            size = packet_bytes(s, meta)
            free = start + transfer(size, ps_per_byte)
        if scal[K.TELEMETRY] != 0:
            report(s, meta, queue - size, s.count[(p << K.COUNT) + K.BYTES] + nbytes, start, 1e12 / ps_per_byte)
        if mode != 0:
            depart(s, in_0, meta, size, start, arena[k])
        arena[k] = free + latency
        if mode == K.CREDITS_ON:
            port[q + K.CREDIT] -= size
        queue -= size
        queued += size * start
        mid += 1
        nbytes += size
        packets += 1

    # what arrives after the last start
    while inq < tail:
        k = base + ((inq & mask) << 1)
        if arena[k] >= end:
            break
        meta = arena[k + 1]
        size = packet_bytes(s, meta)
        if queue > limit:
            if queue + size > room:
                arena[k + 1] = meta | K.LOST
                drops += 1
                inq += 1
                continue
            if marking and queue > kmin and mark(scal, port, q, p, queue):
                arena[k + 1] = meta | K.CE
                marks += 1
        queue += size
        queued -= size * arena[k]
        inq += 1
        if queue > queue_max:
            queue_max = queue

    ring[o + K.MID], ring[o + K.INQ] = mid, inq
    if simulated:
        ring[oc + K.MID] = c_mid
    port[q + K.FREE], port[q + K.QUEUE], port[q + K.PAUSED], port[q + K.TOGGLE_HEAD] = free, queue, paused, t_head
    c = p << K.COUNT
    s.count[c + K.BYTES] += nbytes
    s.count[c + K.PACKETS] += packets
    s.count[c + K.QUEUE_MAX] = queue_max
    s.count[c + K.QUEUED] += queued
    s.count[c + K.MARKS] += marks
    s.count[c + K.DROPS] += drops
    s.count[c + K.PAUSE_PS] += pause_ps
    s.count[c + K.CONTROL_BYTES] += c_bytes

    # when there is more to do
    more = K.NEVER
    if mid < tail:
        if paused == 0:
            more = max(arena[base + ((mid & mask) << 1)], free)
            if mode == K.CREDITS_ON and port[q + K.STARVED] != 0:
                more = head_time(arena, ring, 3 * scal[K.N_LINKS] + p)
        if inq < tail:
            more = min(more, arena[base + ((inq & mask) << 1)])
    if c_mid < c_tail:
        more = min(more, max(arena[c_base + ((c_mid & c_mask) << 1)], free))
    if t_head < t_tail:
        more = min(more, s.toggle[(p << K.TOGGLES) + (t_head & ((1 << K.TOGGLES) - 1))])
    s.port_next[p] = more
    on_wire(s, p)
