"""Rings: all-reduce, all-gather and reduce-scatter around, broadcast and reduce along a chain.

A channel is one ring over all ranks. In an all-reduce each rank sends 2 (R - 1) chunks per loop, in an all-gather or reduce-scatter R - 1,
and what it sends in step s came in step s - 1 over the edge before: message j of an edge waits for message j - k of the edge before it, k
the slices of a chunk; only the first chunk is the rank's own. At a rank whose ring leaves through a NIC that is not near it, the data
first goes over NVLink to the GPU that is (PXN), which adds one edge that forwards slice by slice.
"""

import math
from typing import NamedTuple

import numpy as np

from netsim.collectives.call import Call
from netsim.collectives.channels import split
from netsim.collectives.edges import Edges, Stream, stream
from netsim.collectives.geometry import SLOTS, slices, up16
from netsim.collectives.graphs import PXN, Channel
from netsim.collectives.timing import Rates, close
from netsim.collectives.tuner import steps
from netsim.kernels.structs import Plan


class Ring(NamedTuple):
    """A ring over the members, and the rails on which it leaves and enters each node."""

    members: np.ndarray  # int32[R] in ring order
    exits: np.ndarray  # int64[N] positions whose next hop crosses to the next node; empty on one node
    nic_out: np.ndarray  # int64[N]
    nic_in: np.ndarray  # int64[N] NIC of the next node
    relay: np.ndarray  # int64[N] member that hands the data to the NIC; the exit itself where it is near


def ring_of(call: Call, channel: int) -> Ring:
    """Lay the ring of a search channel over the nodes of a communicator."""
    place, graph = call.place, call.graphs.ring
    shapes = [_shape(call, node, channel) for node in range(place.nodes)]
    parts = [group[[g for g in shape.gpus if g < len(group)]] for group, shape in zip(place.members, shapes, strict=True)]
    members = np.concatenate(parts)
    if place.nodes == 1:
        none = np.zeros(0, np.int64)
        return Ring(members, none, none, none, none)
    exits = np.cumsum([len(part) for part in parts]) - 1
    out = np.array([nics[shape.nic_out % len(nics)] for nics, shape in zip(place.nics, shapes, strict=True)])
    into = np.array([nics[shape.nic_in % len(nics)] for nics, shape in zip(place.nics, shapes, strict=True)])
    relay = members[exits].astype(np.int64)
    if graph.type_inter == PXN:
        relay = np.array([_near(call, node, int(nic), int(m)) for node, (nic, m) in enumerate(zip(out, relay, strict=True))])
    return Ring(members, exits, out, np.roll(into, -1), relay)


def _shape(call: Call, node: int, channel: int) -> Channel:
    """Channel of a node: pairs swap on odd nodes where rings cross NICs to stay on their rails; short nodes turn the same way."""
    graph, group = call.graphs.ring, call.place.members[node]
    odd = node % 2 == 1 and graph.cross_nic == 2 and len(graph.channels) % 2 == 0
    shape = graph.channels[(channel ^ 1 if odd else channel) % len(graph.channels)]
    missing = [g for g in range(len(group)) if g not in shape.gpus]
    return shape if not missing else shape._replace(gpus=(*shape.gpus[:-1], *missing, shape.gpus[-1]))


def _near(call: Call, node: int, nic: int, exit_member: int) -> int:
    """Return the member of a node whose nearest NIC is `nic`; the exit itself where it is near, or none of the members is."""
    place = call.place
    if nic in call.platform.nics_of(int(place.local[exit_member])):
        return exit_member
    near = [int(m) for m in place.members[node] if nic in call.platform.nics_of(int(place.local[m]))]
    return near[0] if near else exit_member


def traffic(op: str, ranks: int) -> int:
    """Bytes that a ring moves per byte of the split buffer."""
    return {"all_reduce": 2, "all_gather": ranks, "reduce_scatter": ranks}.get(op, 1)


def shard(op: str, nbytes: int, ranks: int) -> int:
    """Bytes of the buffer that is split over channels: all-gather and reduce-scatter split one rank's shard."""
    return -(-nbytes // ranks) if op in ("all_gather", "reduce_scatter") else nbytes


def edge_stream(call: Call, share: int) -> tuple[Stream, int]:
    """Return what every edge of a ring carries for a channel's `share`, and the slices of a chunk."""
    op, ranks, g = call.op, call.place.ranks, call.geometry
    if op in ("broadcast", "reduce"):
        msgs = math.ceil(share / g.slot)
        return stream(
            g.wire(min(share, g.slot)) * (msgs - 1) + g.wire(share - (msgs - 1) * min(share, g.slot)),
            msgs,
            SLOTS,
            g.wire(min(share, g.slot)),
        ), 0
    whole = op == "all_reduce"
    loops = max(1, math.ceil(share / (g.ring_chunk * (ranks if whole else 1))))
    mean = share / loops / (ranks if whole else 1)
    per_slot = 4 if g.protocol == "simple" else 1
    _, parts = slices(up16(mean), g.ring_chunk // 2, 2) if per_slot == 4 else (0, 1)
    count = loops * steps(op, ranks)
    data = math.ceil(count * mean) if g.protocol == "simple" else count * g.wire(math.ceil(mean))
    return stream(data, count * parts, SLOTS // (2 if per_slot == 4 else 1)), parts


def build(call: Call) -> Plan:
    """Build the plan of a ring collective."""
    place, op = call.place, call.op
    shares = split(shard(op, call.nbytes, place.ranks), traffic(op, place.ranks), call.channels)
    rings = len(call.graphs.ring.channels)
    edges, longest, bundle = Edges(), stream(1, 1, 1), 0
    stride = 1 if place.nodes == 1 else rings if place.width > 1 else len(shares)
    for first in range(min(stride, len(shares))):
        channels = range(first, len(shares), stride)
        for share in sorted({shares[c] for c in channels}, reverse=True):
            same = np.array([c for c in channels if shares[c] == share])
            what, lag = edge_stream(call, share)
            _ring_edges(call, edges, ring_of(call, first % rings), same, what, lag, bundle)
            longest = max(longest, what)
            bundle += 1
    rate = call.figures.channel_rate[call.geometry.number]
    drain = longest.nbytes / steps(op, place.ranks) if lag else longest.msg_bytes
    if call.platform.kind == "pcie":  # thread blocks are faster than the bus: what came before is copied while others send
        drain = longest.msg_bytes
    if call.geometry.protocol != "simple":  # received line by line, as it comes
        drain = 0.0
    return close(call, edges, Rates(rate, staged=True), drain / rate * 1e6)


def _ring_edges(call: Call, edges: Edges, ring: Ring, channels: np.ndarray, what: Stream, lag: int, bundle: int) -> None:
    """Add the edges of identical channels: NVLink edges once with a weight, network edges once per channel and queue pair."""
    ranks = len(ring.members)
    if ranks < 2:
        return
    following, cut = np.roll(ring.members, -1), _cut(call, ring)
    first, count = (
        np.zeros((2, ranks), np.int64),
        np.zeros((2, ranks), np.int64),
    )  # rows of a position: where data leaves its rank, where it arrives
    inside = np.setdiff1d(np.arange(ranks), np.append(ring.exits, cut))
    first[:, inside] = edges.add(ring.members[inside], following[inside], what, bundle, len(channels))
    count[:, inside] = 1
    crossing = np.flatnonzero(ring.exits != cut)
    if len(crossing):
        exits, relay = ring.exits[crossing], ring.relay[crossing]
        qps, part = queue_pairs(call, channels, what)
        q = len(qps)
        net = edges.add(
            np.repeat(relay, q), np.repeat(following[exits], q), part, bundle, 1,
            np.repeat(ring.nic_out[crossing], q), np.repeat(ring.nic_in[crossing], q), np.tile(qps, len(exits)),
        )  # fmt: skip
        first[:, exits], count[:, exits] = net[::q], q
        relayed = relay != ring.members[exits]
        if relayed.any():
            over = edges.add(ring.members[exits[relayed]], relay[relayed], what, bundle, len(channels))
            edges.depend(net.reshape(-1, q)[relayed].ravel(), np.repeat(over, q), 0)
            first[0, exits[relayed]], count[0, exits[relayed]] = over, 1
    waits, on = pairs(first[0], count[0], np.roll(first[1], 1), np.roll(count[1], 1))
    edges.depend(waits, on, lag)


def _cut(call: Call, ring: Ring) -> int:
    """Position whose edge a chain leaves out; -1 in a ring."""
    if call.op not in ("broadcast", "reduce"):
        return -1
    root = int(np.flatnonzero(ring.members == call.root)[0])
    return (root - 1) % len(ring.members) if call.op == "broadcast" else root


def queue_pairs(call: Call, channels: np.ndarray, what: Stream) -> tuple[np.ndarray, Stream]:
    """Return the queue pairs of channels and what each carries, where NCCL splits every message among several.

    Sender and receiver each have the slots of a connection, so twice as many messages may be under way as inside a node.
    """
    pieces = call.nccl.pieces
    part = what._replace(nbytes=-(-what.nbytes // pieces), msg_bytes=-(-what.msg_bytes // pieces), window=2 * what.window)
    return (np.asarray(channels)[:, None] * pieces + np.arange(pieces)).ravel(), part


def pairs(first_a: np.ndarray, count_a: np.ndarray, first_b: np.ndarray, count_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of the rows first_a[i] .. + count_a[i] with the rows first_b[i] .. + count_b[i], for every i."""
    each = count_a * count_b
    owner = np.repeat(np.arange(len(each)), each)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(each) - each, each)
    return first_a[owner] + place // count_b[owner], first_b[owner] + place % count_b[owner]
