"""Double binary trees: reduce up, broadcast down, both at once.

A channel's tree joins the head GPU of each node by one of the two trees over nodes and runs as a chain through the GPUs of the node. A
rank sends chunk j to its parent when all its children's chunk j has arrived; down, it forwards chunk j when it comes from the parent; the
root turns them around. Up and down run on separate warps of the same thread block.
"""

import math

import numpy as np

from netsim.collectives.algorithms.ring import pairs, queue_pairs
from netsim.collectives.call import Call
from netsim.collectives.channels import split
from netsim.collectives.double_tree import tree
from netsim.collectives.edges import Edges, Stream, stream
from netsim.collectives.geometry import LL128_DATA, SLOTS
from netsim.collectives.timing import Rates, close
from netsim.kernels.structs import Plan


def chunk_size(call: Call, share: int) -> int:
    """Bytes of data in a chunk; LL128 shrinks it until the pipeline of the tree has enough of them."""
    g = call.geometry
    if g.protocol != "ll128":
        return g.slot
    size, ppn = g.slot, call.place.ranks / call.nodes
    depth = 1 + math.floor(math.log2(call.nodes)) + 0.1 * ppn
    while share / size < 64 * depth / ppn and size > 131072:
        size //= 2
    while share / size < 16 * depth / ppn and size > 32768:
        size //= 2
    return size // LL128_DATA * LL128_DATA


def whole_stream(call: Call, share: int, chunk: int) -> Stream:
    """What an edge carries that moves a channel's whole share in chunks."""
    g, full = call.geometry, share // chunk
    return stream(full * g.wire(chunk) + g.wire(share - full * chunk), 0, SLOTS, g.wire(min(chunk, share)))


def parents(call: Call, channel: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the parent of every member (-1 at the root) and the NIC place of its node if the edge crosses nodes (-1 inside)."""
    place, graph = call.place, call.graphs.tree
    count = len(graph.channels)
    over, shape = tree(place.nodes, channel // count % 2), graph.channels[channel % count]
    up, nic = np.full(place.ranks, -1, np.int64), np.full(place.ranks, -1, np.int64)
    first_child = 1 if graph.pattern == "balanced_tree" else 0
    chains = [group[_order(shape.gpus, len(group))] for group in place.members]
    seconds: dict[int, int] = {}
    for node, chain in enumerate(chains):
        up[chain[1:]] = chain[:-1]
        above = int(over[node])
        if above >= 0:
            taken = seconds.get(above, 0)
            seconds[above] = taken + 1
            up[chain[0]] = chains[above][min(first_child * taken, len(chains[above]) - 1)]
            nic[chain[0]] = shape.nic_in
    return up, nic


def _order(gpus: tuple[int, ...], size: int) -> list[int]:
    """Places of a node's members in its chain: those that the smallest node has too, as on that, then the others."""
    return [g for g in gpus if g < size] + [g for g in range(size) if g not in gpus]


def build(call: Call) -> Plan:
    """Build the plan of an all-reduce on trees."""
    shares = split(call.nbytes, 2, call.channels)
    edges, count = Edges(), len(call.graphs.tree.channels)
    lanes: dict[tuple[int, int], list[int]] = {}
    for c, share in enumerate(shares):
        lanes.setdefault((c % (2 * count), share), []).append(c)
    for bundle, ((shape, share), channels) in enumerate(lanes.items()):
        chunk = chunk_size(call, share)
        what = whole_stream(call, share, chunk)
        _tree_edges(call, edges, shape, np.array(channels), what, bundle)
    rate = call.figures.channel_rate[call.geometry.number]
    return close(call, edges, Rates(rate / streams(call), rate, in_phase=False))


def streams(call: Call) -> int:
    """Sends and receives of the busiest thread block."""
    busiest = 2
    for which in range(2 * len(call.graphs.tree.channels)):
        up, _ = parents(call, which)
        children = np.bincount(up[up >= 0], minlength=len(up))
        busiest = max(busiest, 2 * int((children + (up >= 0)).max()))
    return busiest


def _tree_edges(call: Call, edges: Edges, channel: int, channels: np.ndarray, what: Stream, bundle: int) -> None:
    place = call.place
    up, nic = parents(call, channel)
    member = np.flatnonzero(up >= 0)
    near = np.flatnonzero((up >= 0) & (nic < 0))
    far = np.flatnonzero((up >= 0) & (nic >= 0))
    qps, part = queue_pairs(call, channels, what)
    q = len(qps)
    rows, count = np.zeros((2, place.ranks), np.int64), np.zeros(place.ranks, np.int64)
    count[near], count[far] = 1, q
    for way in (0, 1):
        src, dst = (near, up[near]) if way == 0 else (up[near], near)
        rows[way, near] = edges.add(src, dst, what, bundle, len(channels))
        if len(far):
            nics = np.array([[_nic(call, int(m), int(nic[f])) for m in (f, up[f])] for f in far]).T
            ends = (far, up[far]) if way == 0 else (up[far], far)
            out, into = nics if way == 0 else nics[::-1]
            ids = edges.add(
                np.repeat(ends[0], q), np.repeat(ends[1], q), part, bundle, 1, np.repeat(out, q), np.repeat(into, q), np.tile(qps, len(far))
            )
            rows[way, far] = ids[::q]
    inner = member[up[up[member]] >= 0]
    for waits, on in (
        pairs(rows[0, up[inner]], count[up[inner]], rows[0, inner], count[inner]),
        pairs(rows[1, inner], count[inner], rows[1, up[inner]], count[up[inner]]),
    ):
        edges.depend(waits, on, 0)
    top = member[up[up[member]] < 0]
    a, b = np.repeat(top, len(top)), np.tile(top, len(top))
    edges.depend(*pairs(rows[1, a], count[a], rows[0, b], count[b]), 0)


def _nic(call: Call, member: int, place_in_node: int) -> int:
    nics = call.place.nics[call.place.node[member]]
    return nics[place_in_node % len(nics)]
