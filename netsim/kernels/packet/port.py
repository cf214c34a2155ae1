"""An output port played forward: queue, marks, strict priority, pause, transmission.

A port sends one packet at a time, whole (store and forward): a packet of b bytes that starts at s is on the wire until s + b / rate and
reaches the far end one latency later. Control packets go before data that have not started. Order at equal times: departures of
what arrived earlier, then pauses and resumes, then arrivals. A packet joins the queue at its arrival and leaves it when it starts.

* ECN: an arriving data packet is marked by the queue in front of it: never up to kmin, always from kmax, between them with a probability that rises
  linearly to pmax (RED on the instantaneous queue, as switches do for DCQCN: Zhu et al., "Congestion control for large-scale RDMA deployments",
  SIGCOMM 2015).
* Loss (no flow control): an arriving data packet that does not fit into the port's share of the buffer is dropped.
* Pause: data that have not started wait from a pause until the next resume.
* Credits: a data packet starts once the far end has announced room for it.
"""

import numpy as np
from numba import njit

from netsim.kernels.structs import Array
from netsim.kernels.packet.layout import (
    ACKS, HISTORY, HOP_MASK, HOP_SHIFT, SEQ_SHIFT, TELEMETRY, DELAY, FIRST_SWITCH, SIMULATED, STARVED, TO_HOST,
    BASE, CE, CLASS_MASK, CONTROL_SIZE, COUNT, CREDIT, CREDITS_ON, DEPARTED, DROPS, ECN_ON, BYTES, CONTROL_BYTES, FLOW_CONTROL, FLOW_MASK,
    FLOW_SHIFT, FREE, HEAD, INPUT_SHIFT, INQ, KMAX, KMIN, LATENCY, LOG_TOP, LOST, MARKS, MASK, MID, MTU, N_LINKS, NEVER, PACKETS, PAUSE_PS, PAUSE_T,
    PAUSED, PFC, PMAX_BITS, PORT, QUEUE, QUEUE_MAX, RAMP, RING, ROOM, SEED, SENT_OFF, SER, SER_CONTROL, TAIL, TOGGLE_HEAD, TOGGLE_TAIL, TOGGLES,
)  # fmt: skip
from netsim.kernels.packet.ring import head_time, insert, random, wake

from netsim.kernels.packet.tables import Tables

HOT = 1 << 1  # bit of SENT_OFF: departures of this input are logged in this window


@njit(cache=True, forceinline=True)
def transfer(nbytes: int, ps_per_byte: float) -> int:
    """Return picoseconds on the wire, to the nearest."""
    return np.int64(nbytes * ps_per_byte + 0.5)


@njit(cache=True, forceinline=True)
def packet_bytes(s: Tables, meta: int) -> int:
    """Return the bytes of a data packet on the wire."""
    kind = meta & CLASS_MASK
    return s.scal[MTU] if kind == 0 else np.int64(s.size[((meta >> FLOW_SHIFT) & FLOW_MASK) << 2 | kind])


@njit(cache=True, forceinline=True)
def depart(s: Tables, in_0: int, meta: int, nbytes: int, start: int, arrival: int) -> None:
    """Tell the input that a packet came from that it has left; near a threshold also when."""
    link = s.in_idx[in_0 + (meta >> INPUT_SHIFT)]
    o = link << PFC
    if s.scal[FLOW_CONTROL] == CREDITS_ON:
        t = start + s.pfc[o + DELAY]
        insert(s.arena, s.ring, s.scal, 3 * s.scal[N_LINKS] + link, HEAD, t, nbytes)
        if s.port[(link << PORT) + STARVED] != 0 and t < s.port_next[link]:
            s.port_next[link] = t
            wake(s.send_next, s.send_block, s.link_src[link], t)
        return
    s.pfc[o + DEPARTED] += nbytes
    if s.pfc[o + SENT_OFF] & HOT:
        g = s.scal[LOG_TOP]
        s.log[3 * g] = start * 4 + (2 if start == arrival else 0)
        s.log[3 * g + 1] = nbytes
        s.log[3 * g + 2] = s.log_head[link]
        s.log_head[link] = g
        s.scal[LOG_TOP] = g + 1


@njit(cache=True, forceinline=True)
def mark(scal: Array, port: Array, q: int, p: int, queue: int) -> bool:
    """Whether an arriving packet is marked."""
    if queue >= scal[KMAX]:
        return True
    port[q + RAMP] += 1
    draw = random(scal[SEED], p, port[q + RAMP]) >> 13  # 40 bits, so is pmax
    return draw * (scal[KMAX] - scal[KMIN]) < scal[PMAX_BITS] * (queue - scal[KMIN])


@njit(cache=True)
def report(s: Tables, meta: int, queue: int, sent: int, t: int, rate: float) -> None:
    """Write what a port tells the sender of a packet that leaves it: queue and bytes sent without the packet, the time, and its rate."""
    history = (((meta >> FLOW_SHIFT) & FLOW_MASK) << HISTORY) + ((meta >> SEQ_SHIFT) & ((1 << HISTORY) - 1))
    at = (history << 5) + 4 * (((meta >> HOP_SHIFT) & HOP_MASK) - 1)
    s.telemetry[at], s.telemetry[at + 1], s.telemetry[at + 2], s.telemetry[at + 3] = queue, sent, t, np.int64(rate)


@njit(cache=True)
def await_credit(s: Tables, p: int, start: int, nbytes: int, end: int) -> int:
    """Take the credits announced by `start`, then as many as the packet still lacks; returns when it may start, NEVER if not before `end`."""
    ring, port, r, q = s.ring, s.port, (3 * s.scal[N_LINKS] + p) << RING, p << PORT
    base, mask, head, tail = ring[r + BASE], ring[r + MASK], ring[r + HEAD], ring[r + TAIL]
    while head < tail:
        k = base + ((head & mask) << 1)
        if s.arena[k] >= end or (s.arena[k] > start and port[q + CREDIT] >= nbytes):
            break
        start = max(start, s.arena[k])
        port[q + CREDIT] += s.arena[k + 1]
        head += 1
    ring[r + HEAD] = head
    port[q + STARVED] = port[q + CREDIT] < nbytes
    return NEVER if port[q + STARVED] else start


@njit(cache=True, forceinline=True)
def on_wire(s: Tables, p: int) -> None:
    """Note when the first packet on the wire of link `p` reaches the far end."""
    t, ring, o = NEVER, s.ring, p << RING
    if ring[o + HEAD] < ring[o + MID]:
        t = s.arena[ring[o + BASE] + ((ring[o + HEAD] & ring[o + MASK]) << 1)]
    if s.scal[ACKS] == SIMULATED:
        o = (s.scal[N_LINKS] + p) << RING
        if ring[o + HEAD] < ring[o + MID]:
            t = min(t, s.arena[ring[o + BASE] + ((ring[o + HEAD] & ring[o + MASK]) << 1)])
    s.wire_next[p] = t
    if t < NEVER:
        if s.port[(p << PORT) + TO_HOST] != 0:
            wake(s.receive_next, s.receive_block, s.link_dst[p], t)
        else:
            wake(s.send_next, s.send_block, s.link_dst[p], t)


@njit(cache=True)
def play(s: Tables, p: int, end: int) -> None:
    """Play the output port of link `p` up to `end`."""
    arena, ring, port, scal = s.arena, s.ring, s.port, s.scal
    o, q = p << RING, p << PORT
    base, mask, mid, inq, tail = ring[o + BASE], ring[o + MASK], ring[o + MID], ring[o + INQ], ring[o + TAIL]
    oc, simulated = (scal[N_LINKS] + p) << RING, scal[ACKS] == SIMULATED
    c_base = c_mask = c_mid = c_tail = np.int64(0)
    if simulated:
        c_base, c_mask, c_mid, c_tail = ring[oc + BASE], ring[oc + MASK], ring[oc + MID], ring[oc + TAIL]
    free, queue, ser, latency, paused = port[q + FREE], port[q + QUEUE], port[q + SER], port[q + LATENCY], port[q + PAUSED]
    t_head, t_tail = port[q + TOGGLE_HEAD], port[q + TOGGLE_TAIL]
    mtu, kmin = scal[MTU], scal[KMIN]
    room = port[q + ROOM]
    v = s.link_src[p]
    in_0, network = s.in_ptr[v], v >= scal[FIRST_SWITCH]
    mode = scal[FLOW_CONTROL] if network else 0
    marking = network and scal[ECN_ON] != 0
    ps_per_byte = s.ps_per_byte[p]
    queue_max, nbytes, c_bytes, packets, marks, pause_ps = s.count[(p << COUNT) + QUEUE_MAX], 0, 0, 0, 0, 0
    gate, drops = np.int64(0), 0
    limit = min(kmin if marking else NEVER, room - mtu)

    while True:
        # when would the next data packet start
        start = NEVER
        if mid < tail:
            arrival = arena[base + ((mid & mask) << 1)]
            start = max(arrival, free, gate)
        # pauses and resumes before that
        if paused != 0 or t_head < t_tail:
            while t_head < t_tail:
                t = s.toggle[(p << TOGGLES) + (t_head & ((1 << TOGGLES) - 1))]
                if t >= end or (paused == 0 and t > start):
                    break
                if paused == 0:
                    paused, port[q + PAUSE_T] = 1, t
                else:
                    paused, gate = 0, t
                    start = max(start, t)
                    pause_ps += t - port[q + PAUSE_T]
                t_head += 1
            if paused != 0:
                start = NEVER
        if mode == CREDITS_ON and start < end:
            start = await_credit(s, p, start, packet_bytes(s, arena[base + ((mid & mask) << 1) + 1]), end)
            gate = start
        # control goes first
        if c_mid < c_tail:
            k = c_base + ((c_mid & c_mask) << 1)
            c_start = max(arena[k], free)
            if c_start <= start:
                if c_start >= end:
                    break
                free = c_start + port[q + SER_CONTROL]
                arena[k] = free + latency
                c_mid += 1
                c_bytes += scal[CONTROL_SIZE]
                continue
        if start >= end:
            break
        # what arrives before this packet starts joins the queue; this packet itself at the latest now
        while inq < tail:
            k = base + ((inq & mask) << 1)
            if arena[k] >= start and inq > mid:
                break
            meta = arena[k + 1]
            size = mtu if meta & CLASS_MASK == 0 else packet_bytes(s, meta)
            if queue > limit:
                if queue + size > room:
                    arena[k + 1] = meta | LOST
                    drops += 1
                    inq += 1
                    continue
                if marking and queue > kmin and mark(scal, port, q, p, queue):
                    arena[k + 1] = meta | CE
                    marks += 1
            queue += size
            inq += 1
            if queue > queue_max:
                queue_max = queue
        # transmission
        k = base + ((mid & mask) << 1)
        meta = arena[k + 1]
        if meta & LOST:
            arena[k] = start + latency
            mid += 1
            continue
        if meta & CLASS_MASK == 0:
            size = mtu
            free = start + ser
        else:
            size = packet_bytes(s, meta)
            free = start + transfer(size, ps_per_byte)
        if scal[TELEMETRY] != 0:
            report(s, meta, queue - size, s.count[(p << COUNT) + BYTES] + nbytes, start, 1e12 / ps_per_byte)
        if mode != 0:
            depart(s, in_0, meta, size, start, arena[k])
        arena[k] = free + latency
        if mode == CREDITS_ON:
            port[q + CREDIT] -= size
        queue -= size
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
                arena[k + 1] = meta | LOST
                drops += 1
                inq += 1
                continue
            if marking and queue > kmin and mark(scal, port, q, p, queue):
                arena[k + 1] = meta | CE
                marks += 1
        queue += size
        inq += 1
        if queue > queue_max:
            queue_max = queue

    ring[o + MID], ring[o + INQ] = mid, inq
    if simulated:
        ring[oc + MID] = c_mid
    port[q + FREE], port[q + QUEUE], port[q + PAUSED], port[q + TOGGLE_HEAD] = free, queue, paused, t_head
    c = p << COUNT
    s.count[c + BYTES] += nbytes
    s.count[c + PACKETS] += packets
    s.count[c + QUEUE_MAX] = queue_max
    s.count[c + MARKS] += marks
    s.count[c + DROPS] += drops
    s.count[c + PAUSE_PS] += pause_ps
    s.count[c + CONTROL_BYTES] += c_bytes

    # when there is more to do
    more = NEVER
    if mid < tail:
        if paused == 0:
            more = max(arena[base + ((mid & mask) << 1)], free)
            if mode == CREDITS_ON and port[q + STARVED] != 0:
                more = head_time(arena, ring, 3 * scal[N_LINKS] + p)
        if inq < tail:
            more = min(more, arena[base + ((inq & mask) << 1)])
    if c_mid < c_tail:
        more = min(more, max(arena[c_base + ((c_mid & c_mask) << 1)], free))
    if t_head < t_tail:
        more = min(more, s.toggle[(p << TOGGLES) + (t_head & ((1 << TOGGLES) - 1))])
    s.port_next[p] = more
    on_wire(s, p)
