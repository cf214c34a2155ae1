"""NVLSTree: reduction in the scale-up switch of every node, the double binary tree between nodes, multicast in the switch.

Head h of every node joins a tree with the heads h of the other nodes over its own NIC, on even channels the first tree, on odd ones the
second. Per chunk: the switch reduces it into the head, the head adds what its children sent and sends it up; down it comes the same way
and is stored to all GPUs. Reduction and multicast of a loop are stages of their own here, with the tree between them: each has its
barriers.
"""

import math

import numpy as np

from netsim.collectives.algorithms.nvls import block_rate, switch_edges
from netsim.collectives.algorithms.ring import pairs, queue_pairs
from netsim.collectives.call import Call
from netsim.collectives.channels import split
from netsim.collectives.double_tree import tree
from netsim.collectives.edges import Edges, Stream, stream
from netsim.collectives.geometry import SLOTS
from netsim.collectives.timing import Rates, close
from netsim.kernels.structs import Plan

SHRINK = ((262144, 32), (131072, 16), (65536, 4), (32768, 1))
"""A chunk of so many bytes halves while the channel has less than so many loops of it."""


def largest_chunk(call: Call) -> int:
    """Bytes that NCCL allows a chunk between nodes."""
    given = call.nccl.NCCL_NVLSTREE_MAX_CHUNKSIZE
    if given is not None:
        return given
    nic = call.platform.nic_gbs
    if call.platform.arch == "blackwell" and nic >= 48:
        return 262144 if nic >= 96 and call.nodes > 2 else 131072
    return 65536 if call.nodes >= 4 else 131072


def chunk_size(call: Call, share: int, heads: int) -> int:
    """Bytes that a head handles in one loop, for a channel of `share` bytes."""
    chunk = min(call.nccl.NCCL_NVLS_CHUNKSIZE, largest_chunk(call))
    for size, loops in SHRINK:
        if chunk == size and share < loops * heads * chunk:
            chunk //= 2
    return chunk


def build(call: Call) -> Plan:
    """Build the plan of an all-reduce on NVLSTree."""
    place = call.place
    heads = place.width
    shares = split(call.nbytes, 2, call.channels)
    share = -(-call.nbytes // len(shares))
    chunk = chunk_size(call, shares[0], heads)
    loops = max(1, math.ceil(share / (heads * chunk)))
    edges = Edges()
    for which in range(min(2, len(shares))):
        _one_tree(call, edges, np.arange(which, len(shares), 2), share, loops, which)
    figures = call.figures
    barriers = loops * figures.nvls_loop_us
    rate = block_rate(call, share, 2 * barriers)
    rates = Rates(
        rate, 2 * rate, in_phase=False, overhead_us=(2 * barriers, barriers),
        hops_us=(figures.nvls_us / 2, figures.nvls_net_hop_us),
    )  # fmt: skip
    return close(call._replace(channels=len(shares)), edges, rates)


def _one_tree(call: Call, edges: Edges, channels: np.ndarray, share: int, loops: int, which: int) -> None:
    """Add the channels of one tree: streams through the switches of all nodes, up and down between heads, and what waits for what."""
    place = call.place
    heads, place_of = place.width, np.arange(place.width)
    sizes = np.array([len(m) for m in place.members])
    first = (np.cumsum(sizes) - sizes)[:, None]
    read, store = switch_edges(call, edges, place.members, share, loops, heads, len(channels), which)
    into = read[first + (place_of - 1) % sizes[:, None]]  # [nodes, heads] rows that bring a head its reduced chunk
    out = store[first + place_of]
    member, over = np.stack([m[:heads] for m in place.members]), tree(place.nodes, which)
    child = np.flatnonzero(over >= 0)
    qps, part = queue_pairs(call, channels, stream(-(-share // heads), loops, SLOTS))
    up = _net_edges(call, edges, member[child], member[over[child]], part, qps, which)
    down = _net_edges(call, edges, member[over[child]], member[child], part, qps, which)
    q = len(qps)
    row = np.full(place.nodes, -1)
    row[child] = np.arange(len(child))
    below = row[over[child]]  # row of the parent's own edge, -1 under the root
    inner, top = np.flatnonzero(below >= 0), np.flatnonzero(below < 0)
    root = np.flatnonzero(over < 0)
    a, b = np.repeat(top, len(top)), np.tile(top, len(top))
    under = np.zeros(len(top), np.int64)
    for rows, n, on, m in (
        (up, q, into[child], 1),
        (out[child], 1, down, q),
        (out[root], 1, into[root], 1),
        (up[below[inner]], q, up[inner], q),
        (down[inner], q, down[below[inner]], q),
        (out[root][under], 1, up[top], q),
        (down[top], q, into[root][under], 1),
        (down[a], q, up[b], q),
    ):
        edges.depend(*pairs(rows.ravel(), np.full(rows.size, n), on.ravel(), np.full(on.size, m)), 0)


def _net_edges(call: Call, edges: Edges, src: np.ndarray, dst: np.ndarray, part: Stream, qps: np.ndarray, bundle: int) -> np.ndarray:
    """Add edges between heads of nodes; return the first row of each, [edges, heads]."""
    near, q = call.place.near, len(qps)
    src, dst = np.repeat(src.ravel(), q), np.repeat(dst.ravel(), q)
    lanes = np.tile(qps, len(src) // q)
    turn = lanes % call.platform.nics_per_gpu
    ids = edges.add(src, dst, part, bundle, 1, near[src] + turn, near[dst] + turn, lanes)
    return ids[::q].reshape(-1, call.place.width)
