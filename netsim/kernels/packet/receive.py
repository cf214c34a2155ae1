"""The receiving side of a NIC port: messages complete, marks become notifications, data become acknowledgements."""

from numba import njit

from netsim.kernels.packet.calls import gpu_event
from netsim.kernels.packet.layout import (
    COUNT, ERROR, ERROR_LINK, ERROR_T, GO_BACK_N, NACK, NACKED, NO_RECOVERY, ORDERED, RECOVERY, REORDERED, SEEN, SELECTIVE, TOO_LATE, TOP,
    ACK, ACK_EVERY, ACKS, HOP_SHIFT, BASE, BELOW_INPUT, CE, CNP, CNP_GAP, END, MARKED, NO_ACKS, NOTIFY, RX_INDEX, SIMULATED, UNACKED, FLOW_MASK, FLOW_SHIFT, FLOWS_LEFT, HEAD, KIND_SHIFT, LAST_CNP, LAST_MESSAGE, LOST, MASK, MESSAGES, MID, N_LINKS,
    PER_MESSAGE, RETURN, RING, RX, RX_EDGE, RX_GPU, RX_LEFT, RX_UPLINK, TO_GPU, TX, UPLINK,
    SEQ_MASK, SEQ_SHIFT, EXPECT,
)  # fmt: skip
from netsim.kernels.packet.port import on_wire
from netsim.kernels.packet.ring import insert, wake
from netsim.kernels.packet.tables import Tables


@njit(cache=True, forceinline=True)
def to_sender(s: Tables, f: int, t: int, meta: int) -> None:
    """Let a control packet reach the sending port of flow `f` at `t`."""
    u = s.tx[(f << TX) + UPLINK]
    insert(s.arena, s.ring, s.scal, 2 * s.scal[N_LINKS] + u, HEAD, t, meta)
    s.port_next[u] = min(s.port_next[u], t)
    wake(s.send_next, s.send_block, s.link_src[u], t)


@njit(cache=True, inline="always")
def notify(s: Tables, f: int, t: int) -> None:
    """Send a congestion notification for flow `f`, unless one has just gone."""
    o = f << RX
    if t < s.rx[o + LAST_CNP] + s.scal[CNP_GAP]:
        return
    s.rx[o + LAST_CNP] = t
    respond(s, f, t, (CNP << KIND_SHIFT) | 3 | (f << FLOW_SHIFT))


@njit(cache=True, forceinline=True)
def respond(s: Tables, f: int, t: int, meta: int) -> None:
    """Send a control packet back: through the network, or by the time that an idle path takes."""
    if s.scal[ACKS] != SIMULATED:
        to_sender(s, f, t + s.tx[(f << TX) + RETURN], meta)
        return
    u = s.rx[(f << RX) + RX_UPLINK]
    insert(s.arena, s.ring, s.scal, s.scal[N_LINKS] + u, MID, t, meta | (1 << HOP_SHIFT))
    s.port_next[u] = min(s.port_next[u], t)
    wake(s.send_next, s.send_block, s.link_src[u], t)


@njit(cache=True, inline="always")
def message_complete(s: Tables, f: int, t: int) -> None:
    """The last packet of a message of flow `f` has arrived."""
    rx, o, x = s.rx, f << RX, f << TX
    e = rx[o + RX_EDGE]
    if e < 0:
        if s.scal[ACKS] != SIMULATED:
            rx[o + END] = t + s.tx[x + RETURN]
            s.scal[FLOWS_LEFT] -= 1
        return
    gpu_event(s, rx[o + RX_GPU], t + rx[o + TO_GPU], f)


@njit(cache=True, inline="always")
def next_message(s: Tables, f: int) -> None:
    """Count the packets of the message after the one that is complete."""
    o, x = f << RX, f << TX
    i = s.rx[o + RX_INDEX] + 1
    if i == s.tx[x + MESSAGES]:
        i = 0
    s.rx[o + RX_INDEX] = i
    s.rx[o + RX_LEFT] = s.tx[x + LAST_MESSAGE] if i == s.tx[x + MESSAGES] - 1 else s.tx[x + PER_MESSAGE]


@njit(cache=True, inline="always")
def acknowledge(s: Tables, f: int, t: int, marked: int) -> None:
    """Send an acknowledgement if it is due: after every so many packets, and at the end of a message."""
    rx, o = s.rx, f << RX
    rx[o + UNACKED] += 1
    rx[o + MARKED] |= marked
    if rx[o + UNACKED] >= s.scal[ACK_EVERY] or rx[o + RX_LEFT] == 1:
        respond(s, f, t, (ACK << KIND_SHIFT) | 3 | rx[o + MARKED] | ((rx[o + EXPECT] & SEQ_MASK) << SEQ_SHIFT) | (f << FLOW_SHIFT))
        rx[o + UNACKED] = rx[o + MARKED] = 0


@njit(cache=True, inline="always")
def receive_control(s: Tables, link: int, end: int) -> None:
    """Hand control packets that arrive on `link` before `end` to their senders."""
    arena, ring = s.arena, s.ring
    o = (s.scal[N_LINKS] + link) << RING
    head, mid, base, mask = ring[o + HEAD], ring[o + MID], ring[o + BASE], ring[o + MASK]
    while head < mid:
        k = base + ((head & mask) << 1)
        t, meta = arena[k], arena[k + 1]
        if t >= end:
            break
        head += 1
        to_sender(s, (meta >> FLOW_SHIFT) & FLOW_MASK, t, meta & BELOW_INPUT)
    ring[o + HEAD] = head


@njit(cache=True, forceinline=True)
def take(s: Tables, f: int, t: int, marked: int) -> None:
    """Take the packet that flow `f` expects next."""
    rx, r = s.rx, f << RX
    rx[r + EXPECT] += 1
    if s.scal[ACKS] != NO_ACKS:
        acknowledge(s, f, t, marked)
    rx[r + RX_LEFT] -= 1
    if rx[r + RX_LEFT] == 0:
        message_complete(s, f, t)
        next_message(s, f)


@njit(cache=True)
def refuse(s: Tables, f: int, t: int, seq: int) -> None:
    """Ask the sender for packet `seq`: from there on with go-back-N, for that one alone with selective retransmission."""
    respond(s, f, t, (NACK << KIND_SHIFT) | 3 | ((seq & SEQ_MASK) << SEQ_SHIFT) | (f << FLOW_SHIFT))


@njit(cache=True)
def sort_in(s: Tables, link: int, f: int, t: int, meta: int) -> None:
    """Take a packet that may be early, late, or there already. Early ones are kept until what is missing has come, except with go-back-N."""
    rx, r, seen = s.rx, f << RX, f << SEEN
    ahead = (((meta >> SEQ_SHIFT) & SEQ_MASK) - rx[r + EXPECT]) & SEQ_MASK
    if ahead > SEQ_MASK >> 1:
        if s.scal[RECOVERY] != NO_RECOVERY:
            respond(s, f, t, (ACK << KIND_SHIFT) | 3 | ((rx[r + EXPECT] & SEQ_MASK) << SEQ_SHIFT) | (f << FLOW_SHIFT))
        return
    bits = (1 << (2 * SEEN)) - 1
    if ahead > 0:
        s.count[(link << COUNT) + REORDERED] += 1
        if s.scal[RECOVERY] == GO_BACK_N:
            if rx[r + NACKED] == 0:
                rx[r + NACKED] = 1
                refuse(s, f, t, rx[r + EXPECT])
            return
        if ahead > bits:
            s.scal[ERROR], s.scal[ERROR_LINK], s.scal[ERROR_T] = TOO_LATE, link, t
            return
        seq = rx[r + EXPECT] + ahead
        if s.scal[RECOVERY] == SELECTIVE and seq >= rx[r + TOP]:
            for missing in range(max(rx[r + TOP], rx[r + EXPECT]), seq):
                refuse(s, f, t, missing)
                rx[r + NACKED] = t
        rx[r + TOP] = max(rx[r + TOP], seq + 1)
        s.seen[seen + ((seq & bits) >> 6)] |= 1 << (seq & 63)
        return
    if s.scal[RECOVERY] != SELECTIVE:
        rx[r + NACKED] = 0
    take(s, f, t, meta & CE)
    while True:
        word, bit = seen + ((rx[r + EXPECT] & bits) >> 6), 1 << (rx[r + EXPECT] & 63)
        if s.seen[word] & bit == 0:
            break
        s.seen[word] &= ~bit
        take(s, f, t, meta & CE)
    if s.scal[RECOVERY] == SELECTIVE and rx[r + EXPECT] < rx[r + TOP] and t >= rx[r + NACKED] + 2 * s.tx[(f << TX) + RETURN]:
        rx[r + NACKED] = t  # what is still missing a round trip after it was asked for is lost again
        for missing in range(rx[r + EXPECT], min(rx[r + TOP], rx[r + EXPECT] + bits + 1)):
            if s.seen[seen + ((missing & bits) >> 6)] & (1 << (missing & 63)) == 0:
                refuse(s, f, t, missing)


@njit(cache=True)
def receive(s: Tables, link: int, end: int) -> None:
    """Take everything that arrives at a NIC on `link` before `end`."""
    arena, ring, scal = s.arena, s.ring, s.scal
    o = link << RING
    head, mid, base, mask = ring[o + HEAD], ring[o + MID], ring[o + BASE], ring[o + MASK]
    while head < mid:
        k = base + ((head & mask) << 1)
        t, meta = arena[k], arena[k + 1]
        if t >= end:
            break
        head += 1
        if meta & LOST:
            continue
        f = (meta >> FLOW_SHIFT) & FLOW_MASK
        if meta & CE and scal[NOTIFY] != 0:
            notify(s, f, t)
        if scal[ORDERED] != 0:
            take(s, f, t, meta & CE)
        else:
            sort_in(s, link, f, t, meta)
    ring[o + HEAD] = head
    if scal[ACKS] == SIMULATED:
        receive_control(s, link, end)
    on_wire(s, link)
