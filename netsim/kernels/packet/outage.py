"""A link fails: what is on it and what waits for it is lost, as with real switches and cables.

The far end sees the signal go and has no use for a frame that is cut short; the switch at the near end throws away the queue of the port,
and from then on whatever it would file there, until routes have changed. NICs keep what they have yet to send, for it lies in the memory
of the host. Data packets are counted as drops of the link; acknowledgements and notifications are lost likewise. Whoever sent the packets
sends them again (`loss`).

Bytes of a packet that is lost leave the account of the input that held them, so that its sender may go on. Credits for packets lost
on the wire come back after the usual time, and pauses keep their state over the failure: links that come up agree on both anew (InfiniBand
architecture specification, volume 1, section 7.9, flow control: its state is initialised with the link).
"""

from numba import njit

from netsim.kernels.packet import layout as K
from netsim.kernels.packet.pause import let_go_on
from netsim.kernels.packet.port import credit, on_wire, packet_bytes
from netsim.kernels.packet.tables import Tables


@njit(cache=True)
def throw_away(s: Tables, link: int, k: int) -> None:
    """Lose a packet that has come by `link`, whose record is at `k` of the arena; it is held by no buffer."""
    s.count[(link << K.COUNT) + K.DROPS] += 1
    s.count[(link << K.COUNT) + K.GONE] += 1
    s.arena[k + 1] |= K.LOST
    if s.scal[K.FLOW_CONTROL] == K.CREDITS_ON:
        credit(s, link, s.arena[k] + s.pfc[(link << K.PFC) + K.DELAY], packet_bytes(s, s.arena[k + 1]))


@njit(cache=True)
def go_down(s: Tables, link: int, now: int) -> None:
    """Lose everything on a link of the network that fails now, and in the queue of the port before it."""
    ring, n, v, from_switch = s.ring, s.scal[K.N_LINKS], s.link_src[link], s.link_src[link] >= s.scal[K.FIRST_SWITCH]
    o, c = link << K.RING, link << K.COUNT
    for i in range(ring[o + K.HEAD], ring[o + K.TAIL]):
        meta = s.arena[ring[o + K.BASE] + ((i & ring[o + K.MASK]) << 1) + 1]
        if meta & K.LOST:
            continue
        size = packet_bytes(s, meta)
        s.count[c + K.DROPS] += 1
        if i < ring[o + K.MID]:
            s.count[c + K.GONE] += 1
            if s.scal[K.FLOW_CONTROL] == K.CREDITS_ON:
                credit(s, link, now + s.pfc[(link << K.PFC) + K.DELAY], size)
            continue
        if i < ring[o + K.INQ]:
            s.port[(link << K.PORT) + K.QUEUE] -= size
            s.count[c + K.QUEUED] += size * now
        leave_input(s, s.in_idx[s.in_ptr[v] + (meta >> K.INPUT_SHIFT)], size, now)
    ring[o + K.HEAD] = ring[o + K.MID] = ring[o + K.INQ] = ring[o + K.TAIL]
    o = (n + link) << K.RING
    ring[o + K.HEAD] = ring[o + K.MID]
    if from_switch:
        ring[o + K.HEAD] = ring[o + K.MID] = ring[o + K.TAIL]
        if s.scal[K.FLOW_CONTROL] == K.PFC_ON:
            let_go_on(s, v, now)
    on_wire(s, link)


@njit(cache=True)
def leave_input(s: Tables, link: int, nbytes: int, now: int) -> None:
    """Take bytes out of the account of an input, between two windows."""
    o = link << K.PFC
    if s.scal[K.FLOW_CONTROL] == K.CREDITS_ON:
        credit(s, link, now + s.pfc[o + K.DELAY], nbytes)
    elif s.scal[K.FLOW_CONTROL] == K.PFC_ON:
        s.pfc[o + K.HELD] -= nbytes
        s.pfc[o + K.OVER] -= min(s.pfc[o + K.OVER], nbytes)
