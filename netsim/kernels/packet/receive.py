"""The receiving side of a NIC port: messages complete, marks become notifications, data become acknowledgements."""

from numba import njit

from netsim.kernels.packet import layout as K
from netsim.kernels.packet.calls import gpu_event
from netsim.kernels.packet.port import on_wire, wake_port
from netsim.kernels.packet.ring import insert
from netsim.kernels.packet.tables import Tables


@njit(cache=True, forceinline=True)
def to_sender(s: Tables, f: int, t: int, meta: int) -> None:
    """Let a control packet reach the sending port of flow `f` at `t`."""
    u = s.tx[(f << K.TX) + K.UPLINK]
    insert(s.arena, s.ring, s.scal, 2 * s.scal[K.N_LINKS] + u, K.HEAD, t, meta)
    wake_port(s, u, t)


@njit(cache=True, inline="always")
def notify(s: Tables, f: int, t: int) -> None:
    """Send a congestion notification for flow `f`, unless one has just gone."""
    o = f << K.RX
    if t < s.rx[o + K.LAST_CNP] + s.scal[K.CNP_GAP]:
        return
    s.rx[o + K.LAST_CNP] = t
    respond(s, f, t, (K.CNP << K.KIND_SHIFT) | 3 | (f << K.FLOW_SHIFT))


@njit(cache=True, forceinline=True)
def respond(s: Tables, f: int, t: int, meta: int) -> None:
    """Send a control packet back: through the network, or by the time that an idle path takes."""
    if s.scal[K.ACKS] != K.SIMULATED:
        to_sender(s, f, t + s.tx[(f << K.TX) + K.RETURN], meta)
        return
    u = s.rx[(f << K.RX) + K.RX_UPLINK]
    insert(s.arena, s.ring, s.scal, s.scal[K.N_LINKS] + u, K.MID, t, meta | (1 << K.HOP_SHIFT))
    wake_port(s, u, t)


@njit(cache=True, inline="always")
def message_complete(s: Tables, f: int, t: int) -> None:
    """The last packet of a message of flow `f` has arrived."""
    rx, o, x = s.rx, f << K.RX, f << K.TX
    e = rx[o + K.RX_EDGE]
    if e < 0:
        if s.scal[K.ACKS] != K.SIMULATED:
            rx[o + K.END] = t + s.tx[x + K.RETURN]
            s.scal[K.FLOWS_LEFT] -= 1
        return
    gpu_event(s, rx[o + K.RX_GPU], t + rx[o + K.TO_GPU], f)


@njit(cache=True, inline="always")
def next_message(s: Tables, f: int) -> None:
    """Count the packets of the message after the one that is complete."""
    o, x = f << K.RX, f << K.TX
    i = s.rx[o + K.RX_INDEX] + 1
    if i == s.tx[x + K.MESSAGES]:
        i = 0
    s.rx[o + K.RX_INDEX] = i
    s.rx[o + K.RX_LEFT] = s.tx[x + K.LAST_MESSAGE] if i == s.tx[x + K.MESSAGES] - 1 else s.tx[x + K.PER_MESSAGE]


@njit(cache=True, inline="always")
def acknowledge(s: Tables, f: int, t: int, marked: int) -> None:
    """Send an acknowledgement if it is due: after every so many packets, and at the end of a message."""
    rx, o = s.rx, f << K.RX
    rx[o + K.UNACKED] += 1
    rx[o + K.MARKED] |= marked
    if rx[o + K.UNACKED] >= s.scal[K.ACK_EVERY] or rx[o + K.RX_LEFT] == 1:
        respond(
            s, f, t, (K.ACK << K.KIND_SHIFT) | 3 | rx[o + K.MARKED] | ((rx[o + K.EXPECT] & K.SEQ_MASK) << K.SEQ_SHIFT) | (f << K.FLOW_SHIFT)
        )
        rx[o + K.UNACKED] = rx[o + K.MARKED] = 0


@njit(cache=True, inline="always")
def receive_control(s: Tables, link: int, end: int) -> None:
    """Hand control packets that arrive on `link` before `end` to their senders."""
    arena, ring = s.arena, s.ring
    o = (s.scal[K.N_LINKS] + link) << K.RING
    head, mid, base, mask = ring[o + K.HEAD], ring[o + K.MID], ring[o + K.BASE], ring[o + K.MASK]
    while head < mid:
        k = base + ((head & mask) << 1)
        t, meta = arena[k], arena[k + 1]
        if t >= end:
            break
        head += 1
        to_sender(s, (meta >> K.FLOW_SHIFT) & K.FLOW_MASK, t, meta & K.BELOW_INPUT)
    ring[o + K.HEAD] = head


@njit(cache=True, forceinline=True)
def take(s: Tables, f: int, t: int, marked: int) -> None:
    """Take the packet that flow `f` expects next."""
    rx, r = s.rx, f << K.RX
    rx[r + K.EXPECT] += 1
    if s.scal[K.ACKS] != K.NO_ACKS:
        acknowledge(s, f, t, marked)
    rx[r + K.RX_LEFT] -= 1
    if rx[r + K.RX_LEFT] == 0:
        message_complete(s, f, t)
        next_message(s, f)


@njit(cache=True)
def refuse(s: Tables, f: int, t: int, seq: int) -> None:
    """Ask the sender for packet `seq`: from there on with go-back-N, for that one alone with selective retransmission."""
    respond(s, f, t, (K.NACK << K.KIND_SHIFT) | 3 | ((seq & K.SEQ_MASK) << K.SEQ_SHIFT) | (f << K.FLOW_SHIFT))


@njit(cache=True)
def sort_in(s: Tables, link: int, f: int, t: int, meta: int) -> None:
    """Take a packet that may be early, late, or there already. Early ones are kept until what is missing has come, except with
    go-back-N.
    """
    rx, r, seen = s.rx, f << K.RX, f << K.SEEN
    ahead = (((meta >> K.SEQ_SHIFT) & K.SEQ_MASK) - rx[r + K.EXPECT]) & K.SEQ_MASK
    if ahead > K.SEQ_MASK >> 1:
        if s.scal[K.RECOVERY] != K.NO_RECOVERY:
            respond(s, f, t, (K.ACK << K.KIND_SHIFT) | 3 | ((rx[r + K.EXPECT] & K.SEQ_MASK) << K.SEQ_SHIFT) | (f << K.FLOW_SHIFT))
        return
    bits = (1 << (2 * K.SEEN)) - 1
    if ahead > 0:
        s.count[(link << K.COUNT) + K.REORDERED] += 1
        if s.scal[K.RECOVERY] == K.GO_BACK_N:
            if rx[r + K.NACKED] == 0:
                rx[r + K.NACKED] = 1
                refuse(s, f, t, rx[r + K.EXPECT])
            return
        if ahead > bits and s.scal[K.RECOVERY] != K.NO_RECOVERY:
            return  # it will come again
        if ahead > bits:
            s.scal[K.ERROR], s.scal[K.ERROR_LINK], s.scal[K.ERROR_T] = K.TOO_LATE, link, t
            return
        seq = rx[r + K.EXPECT] + ahead
        if s.scal[K.RECOVERY] == K.SELECTIVE and seq >= rx[r + K.TOP]:
            for missing in range(max(rx[r + K.TOP], rx[r + K.EXPECT]), seq):
                refuse(s, f, t, missing)
                rx[r + K.NACKED] = t
        rx[r + K.TOP] = max(rx[r + K.TOP], seq + 1)
        s.seen[seen + ((seq & bits) >> 6)] |= 1 << (seq & 63)
        return
    if s.scal[K.RECOVERY] != K.SELECTIVE:
        rx[r + K.NACKED] = 0
    take(s, f, t, meta & K.CE)
    while True:
        word, bit = seen + ((rx[r + K.EXPECT] & bits) >> 6), 1 << (rx[r + K.EXPECT] & 63)
        if s.seen[word] & bit == 0:
            break
        s.seen[word] &= ~bit
        take(s, f, t, meta & K.CE)
    if s.scal[K.RECOVERY] == K.SELECTIVE and rx[r + K.EXPECT] < rx[r + K.TOP] and t >= rx[r + K.NACKED] + 2 * s.tx[(f << K.TX) + K.RETURN]:
        rx[r + K.NACKED] = t  # what is still missing a round trip after it was asked for is lost again
        for missing in range(rx[r + K.EXPECT], min(rx[r + K.TOP], rx[r + K.EXPECT] + bits + 1)):
            if s.seen[seen + ((missing & bits) >> 6)] & (1 << (missing & 63)) == 0:
                refuse(s, f, t, missing)


@njit(cache=True)
def receive(s: Tables, link: int, end: int) -> None:
    """Take everything that arrives at a NIC on `link` before `end`."""
    arena, ring, scal = s.arena, s.ring, s.scal
    o = link << K.RING
    head, mid, base, mask = ring[o + K.HEAD], ring[o + K.MID], ring[o + K.BASE], ring[o + K.MASK]
    while head < mid:
        k = base + ((head & mask) << 1)
        t, meta = arena[k], arena[k + 1]
        if t >= end:
            break
        head += 1
        if meta & K.LOST:
            continue
        f = (meta >> K.FLOW_SHIFT) & K.FLOW_MASK
        if meta & K.CE and scal[K.NOTIFY] != 0:
            notify(s, f, t)
        if scal[K.ORDERED] != 0:
            take(s, f, t, meta & K.CE)
        else:
            sort_in(s, link, f, t, meta)
    ring[o + K.HEAD] = head
    if scal[K.ACKS] == K.SIMULATED:
        receive_control(s, link, end)
    on_wire(s, link)
