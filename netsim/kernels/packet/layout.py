"""The state of the packet engine: a few flat tables, and the meaning of their columns.

Every table is one int64 array whose rows have a power of two of columns, so that row r, column c is `table[(r << SHIFT) + c]` and a row
is one or two cache lines. Times are absolute picoseconds in known columns, packet and message numbers count up for ever: both can be
shifted.

A packet is two words in a ring, (time, meta). While it waits for an output port, time is its arrival there; once it has left,
time is its arrival at the far end of the link: one ring per link holds first the queue of the port and then the wire.

    ring    head            mid             inq               tail
             | on the wire   | queued        | not yet arrived |
               (time: when it reaches the far end)

meta, from the lowest bit: size class 2, kind 2, ECN 1, lost 1, hop 4, sequence 20, flow 23, input port 10. Ordering records by (time,
meta) is therefore the tie-break (time, input link, ...), whatever the order in which they were filed.
"""

from typing import NamedTuple

from netsim.kernels.structs import Array

NEVER = 1 << 62

# meta
CLASS_MASK = 3  # 0: full packet; 1: last of a full message; 2: last of the last message; 3: control
KIND_SHIFT, DATA, ACK, NACK, CNP = 2, 0, 1, 2, 3
CE = 1 << 4
LOST = 1 << 5
HOP_SHIFT, HOP_MASK = 6, 15
SEQ_SHIFT, SEQ_MASK = 10, (1 << 20) - 1
FLOW_SHIFT, FLOW_MASK = 30, (1 << 23) - 1
INPUT_SHIFT = 53
BELOW_INPUT = (1 << INPUT_SHIFT) - 1
CONTROL = 3 | (ACK << KIND_SHIFT)

# events of an uplink: the input field holds the kind
EV_PACKET, EV_MESSAGE, EV_WAKE, EV_TIMER = 0, 1, 2, 3
# events of a GPU
GPU_SHIFT, GPU_MASK, GPU_ARRIVE, GPU_TOKEN, GPU_START, GPU_HAND, GPU_NOTE, GPU_ACROSS = 60, (1 << 60) - 1, 0, 1, 2, 3, 4, 5
TOKEN_SHIFT, TOKEN_MASK = 24, (1 << 24) - 1

# rings: links' data [0, L), links' control [L, 2 L), uplinks' events [2 L, 3 L), links' credits [3 L, 4 L),
# uplinks' packets to send again [4 L, 5 L), GPUs' events [5 L, 5 L + n_gpus)
RING, BASE, MASK, HEAD, MID, INQ, TAIL = 3, 0, 1, 2, 3, 4, 5

# ports, one per link
PORT = 4
(
    FREE, QUEUE, SER, LATENCY, PAUSED, TOGGLE_HEAD, TOGGLE_TAIL, ROOM, TO_HOST, SER_CONTROL, PAUSE_T, READY, READY_TAIL, RAMP, CREDIT,
    STARVED,
) = range(16)  # fmt: skip

# counters, one row per link
COUNT, BYTES, PACKETS, QUEUE_MAX, MARKS, PAUSE_PS, DROPS, QUEUED, CONTROL_BYTES, REORDERED, GONE = 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
# QUEUED: bytes x time (ps) of what left a queue less that of what joined it, modulo 2^64; with what is queued now, the queue's integral
# GONE: of the drops, those of packets that had left the port: on the wire when it was cut, or without a way on at its end

# priority flow control, one row per link seen as input
PFC, HELD, ARRIVED, DEPARTED, XOFF, XON, LIMIT, DELAY, SENT_OFF, OVER, BEFORE = 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
TOGGLES = 6  # log2 of pause and resume frames that may be under way on a link

# sending side of a flow
TX = 5
(
    SENT, AVAIL, LEFT, MESSAGE, PER_MESSAGE, LAST_MESSAGE, MESSAGES, NEXT_SEND, STATE, NEXT_READY, UPLINK, TX_EDGE, ACKED, OPENED,
    FURTHEST, RETURN, TIMER, PROGRESS, RESENT, NAME,
) = range(20)  # fmt: skip
IDLE, WAITING, PACED, BLOCKED = 0, 1, 2, 3

# receiving side of a flow
RX = 4
(
    EXPECT, RX_LEFT, RX_MESSAGE, LAST_CNP, UNACKED, RX_EDGE, RX_GPU, TO_GPU, RX_UPLINK, END, RX_INDEX, NACKED, TOP, MARKED, RX_GROUP,
    RX_LAST,
) = range(16)  # fmt: skip

# edges of live calls
EDGE = 5
(
    BLOCK, READY_MSGS, ARRIVED_MSGS, EDGE_MSGS, WINDOW, CONSUMED, FLOW_0, FLOWS, SRC_GPU, DST_GPU, EDGE_0, DEP_0, DEP_1, RDEP_0,
    RDEP_1, CREDIT_PS, DELAY_PS, TOKEN_0, SCALE_UP_EDGE, TO_NIC, GAP_PS, COPY_PS, COPY_LAST, NEXT_PS, AWAITED, LANDED_MSGS, HAND_0, QPS,
    REST_PS, ACROSS, ACROSS_GPU, ACROSS_MSGS,
) = range(32)  # fmt: skip
# ACROSS: link from the source's island to the destination's, 0 where they are of one; ACROSS_GPU: first GPU of the source's island, which
# plays that link's port; ACROSS_MSGS: messages that have come to it

# live calls
CALL, INSTANCE, EDGES_LEFT, LAST_PS, CALL_EDGE_0, CALL_EDGES, HANDLE, BOUND, BOUND_AT, PLACE, INSIDE = 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9

# scalars
(NOW, ARENA_TOP, WINDOW_PS, MTU, CONTROL_SIZE, FLOW_CONTROL, ECN_ON, KMIN, KMAX, SEED, ACKS, ACK_EVERY, CNP_GAP, N_LINKS, N_GPUS, FIRST_NIC,
 N_NICS, FLOWS_LEFT, DONE_CALLS, ERROR, ERROR_LINK, ERROR_T, LOG_TOP, DATA_HOPS, HOPS, SPREAD, WINDOWS, PAYLOAD, PMAX_BITS, FIRST_SWITCH,
 N_VERTICES, ARENA_SIZE, LOG_SIZE, NOTIFY, LIVE_CALLS,
 TELEMETRY, KEEP_HISTORY, ORDERED, RECOVERY, TIMEOUT, N_GROUPS, FLOWLET_GAP, SHARED, LEAST_LATENCY,
 INSIDE_WINDOW, INSIDE_CALLS, POOLED, REROUTED, IN_PARTS, FAILED) = range(50)  # fmt: skip
NO_ACKS, ANALYTIC, SIMULATED = 0, 1, 2
HEADROOM, TOO_MANY_PAUSES, TOO_LATE = 1, 2, 3
NO_RECOVERY, GO_BACK_N, SELECTIVE, TIMEOUTS = 0, 1, 2, 3
BY_FLOW, SPRAY, ADAPTIVE, FLOWLET = 0, 1, 2, 3
FLOWLETS = 10  # log2 of entries of a switch's flowlet table
SEEN = 6  # log2 of words, and of bits in a word, that tell which packets beyond the expected one a receiver has
NO_CONTROL, PFC_ON, CREDITS_ON = 0, 1, 2
HISTORY = 8  # log2 of packets that may be under way where acknowledgements matter
BLOCK_SHIFT = 5  # vertices are skipped in blocks of 32
PATH_SHIFT = 4  # 8 links out, then 8 links back


class State(NamedTuple):
    """Everything that changes while the engine runs, and the fabric as its kernels read it. V vertices, L links, F flows, E edges."""

    scal: Array  # int64[64]
    arena: Array  # int64[2 N] records of all rings
    ring: Array
    port: Array
    count: Array  # type: ignore[assignment]  # int64[L << COUNT] counters
    pfc: Array
    toggle: Array  # int64[L << TOGGLES] times of pause and resume in turn
    ps_per_byte: Array  # float64[L]
    wire_next: Array  # int64[L] when the next packet reaches the far end
    port_next: Array  # int64[L] when the port has something to do
    receive_next: Array  # int64[V] when a host's receiving side has something to do
    send_next: Array  # int64[V] when a host's sending side, or a switch, has
    receive_block: Array  # int64[V / 32] at most the least of its vertices
    send_block: Array
    link_src: Array  # int64[L]
    link_dst: Array  # int64[L]
    link_input: Array  # int64[L] position among the links into its destination
    in_ptr: Array  # int64[V + 1]
    in_idx: Array  # int64[L]
    out_ptr: Array
    out_idx: Array
    path: Array  # int32[F << PATH_SHIFT]
    size: Array  # int32[F << 2] bytes on the wire by size class
    tx: Array
    rx: Array
    cc: Array  # float64[F * STATE of the algorithm]
    sent_ps: Array  # int64[F << HISTORY] when the latest packets started; only if acknowledgements matter
    telemetry: (
        Array  # int64[F << HISTORY << 5] (queue, bytes sent, time, rate) of each hop of the latest packets; only if the algorithm reads it
    )
    edge: Array
    seen: Array  # int64[F << SEEN] bit sets; only where packets may overtake each other or be lost
    hop_set: Array  # int32[...], and so on: those of `structs.Routes`; only where switches choose
    set_ptr: Array  # int64[...]
    set_idx: Array  # int32[...]
    buffer: Array  # int64[V, 2] shared buffer of a switch, and what a queue or an input may take of what is free, in 1/65536
    flowlet: Array  # int64[n_switches << FLOWLETS << 1] (time of the latest packet, link)
    dep_edge: Array  # int32[D] edge of the plan
    dep_lag: Array  # int32[D]
    dep_token: Array  # int32[D] token counter of the edge depended on that this dependency feeds
    rdep_edge: Array  # int32[D] likewise, the edges that depend
    rdep_lag: Array
    rdep_token: Array
    token: Array  # int64[K] of each edge: counters, then when the messages of a window can be at hand
    call: Array
    done: Array  # int64[C] calls that have completed, in no order
    live: Array  # int64[C] calls under way, likewise
    load: Array  # int64[L] scratch
    log: Array  # int64[4 G] arrivals and departures of inputs near a threshold: key, bytes, next of the same input, (place, input)
    log_head: Array  # int64[L]
    scratch: Array  # int64[G]
    arrivals: Array  # int64[2 G] (time, meta) of what arrives at a switch in a window
    mine: Array  # int64[V] 1: played here; 0: played by the engine of another rank
