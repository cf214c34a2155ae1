"""Struct-of-arrays that numba takes whole; every floor above speaks in these.

Conventions: time int64 picoseconds, sizes int64 bytes, rates float64 bytes per second. A CSR pair is `<x>_ptr`, `<x>_idx`: the entries of
row `i` are `idx[ptr[i]:ptr[i + 1]]`. An index of -1 means "none". All arrays are C-contiguous and are not written after they are built.
"""

from typing import NamedTuple

import numpy as np

Array = np.ndarray

# --- the fabric --------------------------------------------------------------------------------------------------------------------------

GPU, SCALE_UP, NIC, SWITCH = 0, 1, 2, 3
"""Kinds of vertex."""


class Topology(NamedTuple):
    """A fabric as a directed multigraph, the same on every rank.

    Vertices are numbered in this order: GPUs (node-major: GPU g sits in node g // gpus_per_node), one scale-up switch per island of
    each node (a node has one island, the NVSwitch complex, unless its GPUs hang on several), NICs (node-major), network switches (tier by
    tier, from leaf up). Cables are two directed links, one each way. Link order: GPU -> scale-up (link g belongs to GPU g), scale-up -> GPU
    (link n_gpus + g), GPU -> NIC, NIC -> GPU (the host bus), island -> island (node by node, by source, then by destination), then the
    cables.
    """

    gpus_per_node: int
    nics_per_node: int
    islands: int  # of a node
    n_gpus: int
    n_nodes: int
    n_nics: int
    n_switches: int
    vertex_kind: Array  # int8[V]
    vertex_tier: Array  # int8[V] 0 for hosts; 1 leaf, 2 spine, 3 core for switches
    vertex_rail: Array  # int16[V] rail of a NIC or switch; -1 where it serves all rails
    vertex_plane: Array  # int16[V] connected component of the network (NICs and switches) a vertex is in; -1 for GPUs and scale-up
    vertex_buffer: Array  # int64[V] packet buffer of a switch, bytes
    link_src: Array  # int32[L] vertex
    link_dst: Array  # int32[L] vertex
    link_rate: Array  # float64[L] bytes/s; 0 where the link has failed
    link_latency: Array  # int64[L] ps from the last bit leaving src until dst can forward: cable, plus pipeline of dst if it is a switch
    link_tier: Array  # int8[L] index into LINK_TIERS
    link_reverse: Array  # int32[L] the same cable the other way
    gpu_nic_ptr: Array  # int32[n_gpus + 1] NICs near a GPU, nearest first (NIC numbers 0 .. n_nics - 1, not vertices)
    gpu_nic_idx: Array  # int32[...]
    nic_gpu: Array  # int32[n_nics] the GPU nearest to a NIC (global number)
    nic_rail: Array  # int16[n_nics]

LINK_TIERS = ("scale_up", "host", "nic", "spine", "core", "between")
"""Tiers of links: GPU to scale-up switch, GPU to NIC, NIC to leaf, leaf to spine, spine to core, island to island of a node."""
CABLE_TIERS = slice(2, 5)
"""Those of `LINK_TIERS` that are cables of the network."""


class Routes(NamedTuple):
    """Equal-cost next hops of every switch towards every group of destinations.

    NICs that hang on the same working set of leaves form a destination group. At switch `s` (0 .. n_switches - 1) the row towards group
    `d` is `s * n_groups + d`. Rows with the same candidates share one set: the candidates are `set_idx[set_ptr[k]:set_ptr[k + 1]]` with
    `k = hop_set[row]`, because a leaf has few different sets and thousands of destinations. On a leaf that owns the destination
    (`hop_dist[row] == 1`) the hop is the NIC's own link (`nic_down`), and `hop_set` is -1.
    `mode` chooses among candidates: STATIC, DMODK or ECMP of `netsim.kernels.routing`, whose `next_hop` and `first_hop` read all this.
    """

    mode: int
    seed: int
    n_groups: int
    nic_group: Array  # int32[n_nics]
    nic_order: Array  # int32[n_nics] the destination number that D-mod-k divides: consecutive on a leaf, then in a pod
    nic_up: Array  # int32[n_nics, ports] link NIC -> leaf, -1 where unused or failed
    nic_down: Array  # int32[n_nics, ports] link leaf -> NIC, -1 likewise
    nic_leaf: Array  # int32[n_nics, ports] switch at the other end, -1 likewise
    hop_dist: Array  # int16[n_switches * n_groups] links from the switch to a NIC of the group; -1 where there is no way
    hop_set: Array  # int32[n_switches * n_groups] set of candidates, -1 where there is none
    set_ptr: Array  # int64[n_sets + 1]
    set_idx: Array  # int32[...] links, in ascending order of (peer, link)
    set_div: Array  # int64[n_sets] D-mod-k takes candidate (nic_order // set_div) % (number of candidates)


# --- collectives -------------------------------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """One collective call as both engines see it: directed edges, each a stream of messages (NCCL slices) on one channel's connection.

    Edges name *members* of the communicator (0 .. R - 1, in rank order), so that one plan serves every group of the same shape.
    Message j of an edge may leave its source once, for every dependency (e, lag), message `j - lag` of edge e has arrived at its
    destination (no condition while j < lag), once message `j - edge_window` of the edge itself has been consumed, and one message's time at
    `edge_pace` after the message before it. It takes its time at `edge_burst` to be moved, and is at hand `edge_delay_ps` and the latency
    of its links later, or when the network has brought it, whichever is later. A message is consumed when it is at hand and every message
    of the receiver that depends on it has been moved.
    The flow engine sees bundles: edges of one bundle move at one pace, that of the slowest; on edge e the bundle moves
    `edge_bytes[e]` while it progresses from 0 to 1. Identical channels may be merged: `edge_weight` such connections share the row, and
    `edge_bytes`, `edge_msg_bytes` are those of one of them.
    On an idle network a lone call takes launch_ps + max over bundles (heaviest edge_bytes / bundle_cap) + fill_ps: what comes out when its
    messages are played one by one. An engine that does so has no use for bundle_cap and fill_ps.
    """

    algorithm: str  # 'ring', 'tree', 'nvls', 'nvls_tree', 'collnet_direct', 'collnet_chain', 'pat', 'p2p'
    protocol: str  # 'll', 'll128', 'simple'
    channels: int  # thread blocks, hence SMs, that the call occupies on each member
    launch_ps: int  # from all members having called until the first byte may move
    fill_ps: int  # latency of the steps that cannot overlap the transfer (pipeline fill and drain)
    edge_src: Array  # int32[E] member
    edge_dst: Array  # int32[E] member
    edge_nic_src: Array  # int32[E] NIC of the source's node that sends (0 .. nics_per_node - 1); -1: over the scale-up links
    edge_nic_dst: Array  # int32[E] NIC of the destination's node that receives; -1 likewise
    edge_qp: Array  # int32[E] distinguishes connections between the same two NICs (channel number): the hash input of ECMP
    edge_weight: Array  # int32[E] connections that this row stands for
    edge_bytes: Array  # int64[E] bytes on the wire over the whole call, protocol overhead included
    edge_msgs: Array  # int32[E] messages
    edge_msg_bytes: Array  # int64[E] bytes of a full message; the last one takes what is left
    edge_window: Array  # int32[E] messages in flight before the sender waits for consumption
    edge_bundle: Array  # int32[E] bundle, 0 .. B - 1
    dep_ptr: Array  # int32[E + 1]
    dep_idx: Array  # int32[D] edge
    dep_lag: Array  # int32[D] messages
    bundle_cap: Array  # float64[B] highest pace in bytes/s of the heaviest edge, what latency and windows cost included; inf: unbounded
    edge_delay_ps: Array = np.zeros(0, np.int64)  # int64[E] software latency (thread block, proxy) before a message leaves; empty: 0
    edge_pace: Array = np.zeros(0)  # float64[E] bytes/s that thread block and ports leave to the edge; empty: unbounded
    edge_burst: Array = np.zeros(0)  # float64[E] bytes/s at which one of its messages moves, at least edge_pace; empty: unbounded
    edge_rest_ps: Array = np.zeros(0, np.int64)  # int64[E] from when the last message can be forwarded until all of it is there; empty: 0
    qps: int = 0  # queue pairs of each connection between NICs, which carry its messages in turn; 0: as many as `network.qps` says


# --- what the GPUs do --------------------------------------------------------------------------------------------------------------------

COMPUTE, COMM, HOST = 0, 1, 2
"""Kinds of operation."""


class Programs(NamedTuple):
    """What each class of GPU executes in an iteration, as CUDA sees it: streams of operations in order, and events between streams.

    All GPUs of a pipeline stage run the same program on different data (SPMD), so a program is stored once: P programs of S streams. The
    operations of stream s of program p are rows `stream_ptr[p * S + s] : stream_ptr[p * S + s + 1]`. An operation starts when the
    one before it on its stream and all rows of its `dep` list (same program, any stream) have completed; a COMM additionally when all
    members of its group have reached it. Stream 0 is the compute stream. An entry ~r of the list asks that row r has started, not more:
    with one launch queue a kernel reaches the GPU after those that the host launched before it, on whatever stream.
    A COMM on dimension d concerns the group `group_of[d, gpu]`; the k-th COMM that a member reaches on a group matches the k-th of the
    others.
    """

    n_programs: int
    n_streams: int
    stream_ptr: Array  # int64[P * S + 1]
    kind: Array  # int8[I] COMPUTE, COMM, or HOST: the processor issues what waits for it, nothing on the GPU disturbs that
    duration: Array  # int64[I] ps (COMPUTE: kernel time before jitter; HOST: time to issue; COMM: 0)
    dim: Array  # int16[I] COMM: group dimension; -1 for COMPUTE
    call: Array  # int32[I] COMM: row of the call table (operation, bytes); COMPUTE: row of the segment table; see workload
    category: Array  # int8[I] index into CATEGORIES
    microbatch: Array  # int16[I] -1 outside microbatches
    layer: Array  # int16[I] global layer, -1 outside layers
    timer: Array  # int8[I] index into TIMERS: what time on the compute stream counts as, and what a wait for other streams' rows does
    dep_ptr: Array  # int64[I + 1]
    dep_idx: Array  # int64[D] rows, ~row where it must have started only


CATEGORIES = ("forward", "backward", "recompute", "optimizer", "tp", "pp", "dp", "ep", "cp", "other")
"""What the time of an operation counts as; communication categories are named by the parallel dimension that they serve."""


TIMERS = (
    "forward-compute",
    "backward-compute",
    "forward-recv",
    "forward-send",
    "backward-recv",
    "backward-send",
    "forward-send-forward-recv",
    "forward-send-backward-recv",
    "backward-send-forward-recv",
    "backward-send-backward-recv",
    "forward-backward-send-forward-backward-recv",
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
    "all-grads-sync",
    "params-all-gather",
    "optimizer",
    "other",
)
"""Megatron's timers, by which the time of a GPU's compute stream is divided: forward and backward with the communication inside a pass,
waits for pipeline messages by the call that waits, waits for gradients and parameters, the optimizer with its norms."""


class Groups(NamedTuple):
    """Communicators: for each dimension the group of every GPU and the members of each group in rank order."""

    group_of: Array  # int32[dims, n_gpus] global group number; -1 where a GPU is in none
    member_ptr: Array  # int64[n_groups + 1]
    member_idx: Array  # int32[...] GPUs
    group_dim: Array  # int16[n_groups]
