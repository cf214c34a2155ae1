"""What a sender does about packets that were lost: go back, or send again those that the receiver asks for."""

from numba import njit

from netsim.kernels.packet import layout as K
from netsim.kernels.packet.port import flow_event
from netsim.kernels.packet.ring import insert
from netsim.kernels.packet.tables import Tables
from netsim.kernels.packet.turns import go_on, put
from netsim.kernels.structs import Array


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
def rewind(s: Tables, cc: tuple, u: int, f: int, t: int) -> None:
    """Go back to the first packet of flow `f` that has not been acknowledged."""
    tx, o = s.tx, f << K.TX
    if tx[o + K.SENT] == tx[o + K.ACKED]:
        return
    tx[o + K.SENT] = tx[o + K.ACKED]
    settle_place(tx, o)
    if tx[o + K.STATE] == K.IDLE or tx[o + K.STATE] == K.BLOCKED:
        go_on(s, cc, u, f, t)


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
    flow_event(s, u, K.EV_TIMER, f, tx[o + K.PROGRESS] + s.scal[K.TIMEOUT])


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
