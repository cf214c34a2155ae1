"""Grouped sends and receives: all-to-all, gather, scatter, send/receive and the shift around a ring.

A message to a peer is cut over a few channels, each a stream of steps with eight in flight. To a peer on another node it leaves through
the NIC of the peer's rail where a GPU beside that NIC is in the communicator (PXN: over NVLink into that GPU's buffer, from there by
RDMA), so that all sources of a node share one connection per channel and rail; else through the sender's own NIC.
"""

from typing import NamedTuple

import numpy as np

from netsim.collectives.algorithms.ring import queue_pairs
from netsim.collectives.call import Call
from netsim.collectives.edges import Edges, Stream, stream
from netsim.collectives.geometry import geometry
from netsim.collectives.p2p_schedule import SLOTS_IN_FLIGHT, Transfer, bases, p2p_channels, transfer
from netsim.collectives.timing import Rates, close
from netsim.kernels.structs import Plan

LARGEST_BY_PAIR = 32
"""Nodes up to which each pair of nodes keeps a pace of its own; beyond, all pairs at one offset share one."""


class Routed(NamedTuple):
    """How messages between pairs of members leave the node."""

    relay: np.ndarray  # member that hands the data to the NIC
    nic_src: np.ndarray
    nic_dst: np.ndarray


def build(call: Call) -> Plan:
    """Build the plan of a grouped send and receive."""
    place, ranks = call.place, call.place.ranks
    nodes = call.shape_nodes
    over_bus = call.platform.kind == "pcie" or place.spans_islands or not call.nccl.p2p
    channels = p2p_channels(call.total_channels, call.platform, nodes, call.ranks, call.nccl, over_bus and place.width > 1)
    each = -(-call.nbytes // ranks) if call.op in ("all_to_all", "gather", "scatter") else call.nbytes
    cut = transfer(each, nodes > 1, nodes, call.ranks, channels, call.nccl, over_bus)
    if (nodes == 1 or call.nccl.NCCL_ALLOC_P2P_NET_LL_BUFFERS) and each <= cut.parts * call.nccl.NCCL_P2P_LL_THRESHOLD:
        call = call._replace(geometry=geometry("ll", call.nccl))
    wire = call.geometry.wire
    what = stream(wire(cut.nbytes), -(-cut.nbytes // cut.step), SLOTS_IN_FLIGHT, wire(cut.step))
    edges = Edges()
    if call.op == "all_to_all" and place.nodes > 1 and _uniform(call) and _pxn(call):
        _all_to_all(call, edges, cut, what, channels[0])
    else:
        src, dst, bundle = _pairs(call)
        _messages(call, edges, src, dst, bundle, cut, what, channels[0])
    peers = 1 if call.op in ("sendrecv", "ring_shift") else max(1, ranks - 1)  # that the busiest member sends to or receives from
    used = call._replace(channels=min(channels[0], cut.parts * peers))
    figures, p = call.figures, call.geometry.number
    hops = figures.nvlink_hop_us[0], figures.net_hop_us[2]
    beside = call.op != "all_to_all" or call.platform.kind == "pcie"  # thread blocks have time for it while buses are busy
    itself = 0.0 if beside else each / (channels[0] * figures.channel_rate[p]) * 1e6
    share = figures.nvlink_efficiency * (figures.p2p_efficiency if call.op == "all_to_all" else 1.0)
    return close(used, edges, Rates(figures.channel_rate[p], nvlink=share, hops_us=hops), itself)


def _uniform(call: Call) -> bool:
    place = call.place
    first = place.local[place.members[0]]
    return all(len(m) == len(first) and (place.local[m] == first).all() for m in place.members)


def _pxn(call: Call) -> bool:
    """Whether sends may relay through the GPU beside the peer's rail."""
    one_each = call.platform.nics_per_node == call.platform.gpus_per_node
    always = call.nccl.NCCL_P2P_PXN_LEVEL == 2 or (call.nccl.NCCL_P2P_PXN_LEVEL == 1 and call.platform.nics_per_switch == 1)
    return call.platform.pxn(call.nccl) and always and one_each


def _pairs(call: Call) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return senders, receivers and the bundle of each message."""
    ranks, member = call.place.ranks, np.arange(call.place.ranks)
    if call.op == "sendrecv":
        return np.array([0]), np.array([1]), np.array([0])
    if call.op == "ring_shift":
        return member, (member + 1) % ranks, member
    others = member[member != call.root]
    root = np.full(ranks - 1, call.root)
    if call.op == "gather":
        return others, root, np.arange(ranks - 1)
    if call.op == "scatter":
        return root, others, np.arange(ranks - 1)
    src, dst = np.repeat(member, ranks), np.tile(member, ranks)
    apart = src != dst
    src, dst = src[apart], dst[apart]
    node = call.place.node
    return src, dst, node[src].astype(np.int64) * call.place.nodes + node[dst]


def _route(call: Call, src: np.ndarray, dst: np.ndarray) -> Routed:
    """Choose NICs and relays for messages between nodes."""
    place, platform, nccl = call.place, call.platform, call.nccl
    beside = np.full((place.nodes, max(platform.nics_per_node, 1)), -1, np.int64)
    beside[place.node[::-1], place.near[::-1]] = np.arange(place.ranks)[::-1]
    beside[place.node[src], place.near[src]] = src
    own, theirs = place.near[src], place.near[dst]
    relay = beside[place.node[src], theirs]
    from_node = theirs if nccl.NCCL_CROSS_NIC == 0 or not platform.rails_joined else own
    if platform.pxn(nccl) and nccl.NCCL_P2P_PXN_LEVEL > 0:
        if nccl.NCCL_P2P_PXN_LEVEL == 1:  # the NIC of the peer's rail may be near enough to be used directly
            relay = np.where(theirs // platform.nics_per_switch == own // platform.nics_per_switch, src, relay)
        found = relay >= 0
        return Routed(np.where(found, relay, src), np.where(found, theirs, from_node), theirs)
    return Routed(src, from_node, theirs)


def _messages(
    call: Call, edges: Edges, src: np.ndarray, dst: np.ndarray, bundle: np.ndarray, cut: Transfer, what: Stream, channels: int
) -> None:
    """Add the edges of messages between arbitrary pairs."""
    place = call.place
    table = bases(place.nodes, max(len(m) for m in place.members), channels)
    inside = place.node[src] == place.node[dst]
    bundle = np.unique(bundle, return_inverse=True)[1]
    edges.add(src[inside], dst[inside], what, bundle[inside], cut.parts)
    if inside.all():
        return
    src, dst, bundle = src[~inside], dst[~inside], bundle[~inside]
    way = _route(call, src, dst)
    base = table[(place.node[dst] - place.node[src]) % place.nodes, (place.place[dst] - place.place[src]) % table.shape[1]]
    parts, part = queue_pairs(call, np.arange(cut.parts), what)
    q = len(parts)
    pieces = call.nccl.pieces
    qp = (base[:, None] + parts // pieces) % channels * pieces + parts % pieces
    apart = call.op == "sendrecv"
    lanes = (bundle[:, None] * q + np.arange(q) if apart else np.repeat(bundle, q)).ravel()
    turn = np.tile(np.arange(q) % call.platform.nics_per_gpu, len(src))
    net = edges.add(
        np.repeat(way.relay, q),
        np.repeat(dst, q),
        part,
        lanes,
        1,
        np.repeat(way.nic_src, q) + turn,
        np.repeat(way.nic_dst, q) + turn,
        qp.ravel(),
    ).reshape(-1, q)
    relayed = way.relay != src
    if relayed.any():
        over = edges.add(src[relayed], way.relay[relayed], what, bundle[relayed], cut.parts)
        edges.depend(net[relayed].ravel(), np.repeat(over, q), 0)


def _all_to_all(call: Call, edges: Edges, cut: Transfer, what: Stream, channels: int) -> None:
    """Add an all-to-all over equal nodes with PXN: the sources of a node share the connections of each rail."""
    place, nodes, width = call.place, call.place.nodes, call.place.width
    member = np.stack(place.members)  # [nodes, width]
    lanes = nodes * nodes if nodes <= LARGEST_BY_PAIR else 2 * nodes
    near = np.stack([place.near[m] for m in member])
    i, j = (a.ravel() for a in np.nonzero(~np.eye(width, dtype=bool)))
    here = np.repeat(np.arange(nodes), len(i))
    own = np.tile(i, nodes), np.tile(j, nodes)
    pair = here * (nodes + 1) if nodes <= LARGEST_BY_PAIR else here
    edges.add(member[here, own[0]], member[here, own[1]], what, pair, cut.parts)
    relay = edges.add(member[here, own[0]], member[here, own[1]], what, lanes + here, cut.parts * (nodes - 1))
    a, b, rail = (x.ravel() for x in np.meshgrid(np.arange(nodes), np.arange(nodes), np.arange(width), indexing="ij"))
    apart = a != b
    a, b, rail = a[apart], b[apart], rail[apart]
    parts, part = queue_pairs(call, np.arange(cut.parts), what)
    q = len(parts)
    base = bases(nodes, width, channels)[(b - a) % nodes, 0]
    qp = (base[:, None] * call.nccl.pieces + parts) % (channels * call.nccl.pieces)
    pair = a * nodes + b if nodes <= LARGEST_BY_PAIR else nodes + (b - a) % nodes
    rows = edges.add(
        np.repeat(member[a, rail], q), np.repeat(member[b, rail], q), part, np.repeat(pair, q), width,
        np.repeat(near[a, rail], q), np.repeat(near[b, rail], q), qp.ravel(),
    )  # fmt: skip
    if width == 1:
        return
    into = relay.reshape(nodes, width * (width - 1))[:, np.argsort(j, kind="stable")].reshape(nodes, width, width - 1)
    feeders = into[a, rail]  # [pairs, width - 1] rows that fill the rail's buffer
    edges.depend(np.repeat(rows.reshape(-1, q), width - 1, axis=1).ravel(), np.tile(feeders, (1, q)).ravel(), 0)
