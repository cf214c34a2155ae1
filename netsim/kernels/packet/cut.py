"""What crosses from the part of a fabric that one engine plays to the part of another.

Every vertex has one owner, and an engine plays its own. All that a vertex does to another takes at least the lookahead: packets
on a link that is cut take its latency, pauses and credits the latency of the way back, analytic acknowledgements and tokens that of a
whole path. So engines may play a time as long as the lookahead without a word. What they have done to vertices of others by then lies, in
the future, in the rings of those vertices' links: it is taken from there, as records (place, time, meta), and filed at the owner as if it
had been found there. Rings are in order of (time, meta), whatever the order of filing; so results are the same for every cut.

When a message can be at hand, which its sender knows and its receiver asks for, travels as a note: an event of the receiving GPU that is
not filed but written down.

    place   0 .. 5 L + n_gpus: a ring (see `layout`); beyond: 5 L + n_gpus + link: a pause or resume of the sender of a link
    block   of one owner: number of records, next event, most records for anyone, then the first ROOM records; what has no room is surplus
"""

from numba import njit

from netsim.kernels.packet import layout as K
from netsim.kernels.packet.advance import earliest, settle
from netsim.kernels.packet.calls import ended, gpu_event
from netsim.kernels.packet.pause import toggle
from netsim.kernels.packet.port import credit, on_wire, packet_bytes, wake_port
from netsim.kernels.packet.ring import insert
from netsim.kernels.packet.tables import Tables
from netsim.kernels.structs import Array

ROOM = 40
"""Records that travel in a block of fixed size."""
NUMBER, NEXT, MOST, HEADER, RECORD = 0, 1, 2, 3, 3


@njit(cache=True)
def record(blocks: Array, surplus: Array, start: Array, to: int, place: int, t: int, meta: int) -> None:
    """Write the next record for owner `to`."""
    i = blocks[to, NUMBER]
    if i < ROOM:
        at = HEADER + RECORD * i
        blocks[to, at], blocks[to, at + 1], blocks[to, at + 2] = place, t, meta
    else:
        at = start[to] + RECORD * (i - ROOM)
        surplus[at], surplus[at + 1], surplus[at + 2] = place, t, meta


@njit(cache=True)
def empty(s: Tables, r: int, last: int, to: int, blocks: Array, surplus: Array, start: Array, writing: bool) -> int:
    """Take ring `r` up to position `last` for owner `to`, or only count if not `writing`; returns the least time."""
    ring, o, least = s.ring, r << K.RING, K.NEVER
    for i in range(ring[o + K.HEAD], last):
        k = ring[o + K.BASE] + ((i & ring[o + K.MASK]) << 1)
        if writing:
            least = min(least, s.arena[k])
            record(blocks, surplus, start, to, r, s.arena[k], s.arena[k + 1])
        blocks[to, NUMBER] += 1
    if writing:
        ring[o + K.HEAD] = last
    return least


@njit(cache=True)
def wire_bytes(s: Tables, r: int) -> int:
    """Return the bytes of the packets on a wire."""
    ring, o, total = s.ring, r << K.RING, 0
    for i in range(ring[o + K.HEAD], ring[o + K.MID]):
        meta = s.arena[ring[o + K.BASE] + ((i & ring[o + K.MASK]) << 1) + 1]
        if meta & K.LOST == 0:
            total += s.scal[K.CONTROL_SIZE] if r >= s.scal[K.N_LINKS] else packet_bytes(s, meta)
    return total


@njit(cache=True)
def hand_out(
    s: Tables, owner: Array, away: Array, leaving: Array, entering: Array, uplinks: Array, gpus: Array,
    blocks: Array, surplus: Array, start: Array, crossed: Array,
) -> int:  # fmt: skip
    """Fill a block for each owner with what is to be filed there, and add the bytes of packets to `crossed`.

    owner: int64[V]; of others: the vertices that are `away`, links from their NICs (`uplinks`) and their `gpus`; links `leaving` towards
    them and `entering` from them.
    Returns the words of surplus, of which those for owner i begin at `start[i]`; if that is more than there is room, nothing has happened.
    """
    scal, ring, port, n_links = s.scal, s.ring, s.port, s.scal[K.N_LINKS]
    least = K.NEVER
    for writing in (False, True):
        total, most = 0, 0
        for to in range(blocks.shape[0]):
            blocks[to, NUMBER] *= writing
            most = max(most, blocks[to, NUMBER])
            start[to] = total
            total += RECORD * max(0, blocks[to, NUMBER] - ROOM)
        if writing and total > surplus.size:
            return total
        for to in range(blocks.shape[0]):
            blocks[to, NUMBER], blocks[to, MOST] = 0, most

        for link in leaving:
            if s.wire_next[link] == K.NEVER:
                continue
            to = owner[s.link_dst[link]]
            for r in (link, n_links + link):
                if r < n_links or scal[K.ACKS] == K.SIMULATED:
                    if writing:
                        crossed[to] += wire_bytes(s, r)
                    least = min(least, empty(s, r, ring[(r << K.RING) + K.MID], to, blocks, surplus, start, writing))
            if writing:
                s.wire_next[link] = K.NEVER
        for link in entering:
            to, q, r = owner[s.link_src[link]], link << K.PORT, 3 * n_links + link
            if scal[K.FLOW_CONTROL] == K.CREDITS_ON:
                least = min(least, empty(s, r, ring[(r << K.RING) + K.TAIL], to, blocks, surplus, start, writing))
            if s.port_next[link] == K.NEVER:
                continue
            for i in range(port[q + K.TOGGLE_HEAD], port[q + K.TOGGLE_TAIL]):
                t = s.toggle[(link << K.TOGGLES) + (i & ((1 << K.TOGGLES) - 1))]
                if writing:
                    least = min(least, t)
                    record(blocks, surplus, start, to, 5 * n_links + scal[K.N_GPUS] + link, t, 0)
                blocks[to, NUMBER] += 1
            if writing:
                port[q + K.TOGGLE_HEAD] = port[q + K.TOGGLE_TAIL]
                s.port_next[link] = K.NEVER
        for link in uplinks:
            if s.port_next[link] < K.NEVER:
                to, r = owner[s.link_src[link]], 2 * n_links + link
                least = min(least, empty(s, r, ring[(r << K.RING) + K.TAIL], to, blocks, surplus, start, writing))
                if writing:
                    s.port_next[link] = K.NEVER
        for g in gpus:
            if s.receive_next[g] < K.NEVER:
                r = 5 * n_links + g
                least = min(least, empty(s, r, ring[(r << K.RING) + K.TAIL], owner[g], blocks, surplus, start, writing))

    for v in away:
        if s.send_next[v] < K.NEVER or s.receive_next[v] < K.NEVER:
            s.send_next[v] = s.receive_next[v] = K.NEVER
            settle(s.send_next, s.send_block, v >> K.BLOCK_SHIFT, scal[K.N_VERTICES])
            settle(s.receive_next, s.receive_block, v >> K.BLOCK_SHIFT, scal[K.N_VERTICES])
    n_blocks = (scal[K.N_VERTICES] + 31) >> K.BLOCK_SHIFT
    blocks[:, NEXT] = min(least, min(earliest(s.receive_block, n_blocks), earliest(s.send_block, n_blocks)))
    return total


@njit(cache=True)
def divide(s: Tables) -> None:
    """Make of the calls under way, played as a whole until now, the part that is played here: the edges that end here are waited for."""
    for i in range(s.scal[K.LIVE_CALLS]):
        c, left = s.live[i] << K.CALL, 0
        for e in range(s.call[c + K.CALL_EDGE_0], s.call[c + K.CALL_EDGE_0] + s.call[c + K.CALL_EDGES]):
            o = e << K.EDGE
            left += s.edge[o + K.ARRIVED_MSGS] < s.edge[o + K.EDGE_MSGS] and s.mine[s.edge[o + K.DST_GPU]] != 0
        s.call[c + K.EDGES_LEFT], s.call[c + K.BOUND], s.call[c + K.BOUND_AT] = left, s.scal[K.NOW], -1
        if left == 0:
            ended(s, s.live[i])


@njit(cache=True)
def file(s: Tables, place: int, t: int, meta: int) -> None:
    """File one record that another engine has handed over."""
    n_links, o = s.scal[K.N_LINKS], place << K.RING
    if place < 2 * n_links:
        insert(s.arena, s.ring, s.scal, place, K.TAIL, t, meta)
        s.ring[o + K.MID] = s.ring[o + K.INQ] = s.ring[o + K.TAIL]
        on_wire(s, place % n_links)
    elif place < 3 * n_links:
        u = place - 2 * n_links
        insert(s.arena, s.ring, s.scal, place, K.HEAD, t, meta)
        wake_port(s, u, t)
    elif place < 4 * n_links:
        credit(s, place - 3 * n_links, t, meta)
    elif place < 5 * n_links + s.scal[K.N_GPUS]:
        if meta >> K.GPU_SHIFT == K.GPU_NOTE:
            e = (meta & K.GPU_MASK) >> K.TOKEN_SHIFT
            s.token[s.edge[(e << K.EDGE) + K.TOKEN_0] + (meta & K.TOKEN_MASK)] = t
        else:
            gpu_event(s, place - 5 * n_links, t, meta)
    else:
        toggle(s, place - 5 * n_links - s.scal[K.N_GPUS], t)


@njit(cache=True)
def take_in(s: Tables, blocks: Array, surplus: Array) -> int:
    """File what others have handed over: one block of each, and their surplus in turn; returns the next event anywhere."""
    first, at = K.NEVER, 0
    for i in range(blocks.shape[0]):
        first = min(first, blocks[i, NEXT])
        for j in range(min(blocks[i, NUMBER], ROOM)):
            k = HEADER + RECORD * j
            file(s, blocks[i, k], blocks[i, k + 1], blocks[i, k + 2])
        for _ in range(max(0, blocks[i, NUMBER] - ROOM)):
            file(s, surplus[at], surplus[at + 1], surplus[at + 2])
            at += RECORD
    return first
