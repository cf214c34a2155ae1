"""CollNetDirect: every GPU of a node is a head that owns its part of the data; the network's switches reduce between nodes.

Inside a node each GPU sends every head its part and receives the result back, directly. Between nodes a head sends its part to the switch
once and receives the sum once. The switch is not a member: the stream into it from node n and the stream out of it to node n + 1 are drawn
as one edge between their heads, which loads the NICs, and the leaf when it reduces, with exactly those bytes.
"""

import numpy as np

from netsim.collectives.algorithms.ring import pairs, queue_pairs
from netsim.collectives.call import Call
from netsim.collectives.channels import split
from netsim.collectives.edges import Edges, Stream, stream
from netsim.collectives.geometry import SLOTS
from netsim.collectives.timing import Rates, close
from netsim.kernels.structs import Plan


def switch_rows(call: Call, edges: Edges, heads: np.ndarray, what: Stream, channels: np.ndarray, bundle: int) -> tuple[np.ndarray, int]:
    """Add the streams of heads [nodes, heads] through the network's switches; return the first row that leaves each head, and rows per
    head."""
    qps, part = queue_pairs(call, channels, what)
    q = len(qps)
    src, dst = np.repeat(heads.ravel(), q), np.repeat(np.roll(heads, -1, axis=0).ravel(), q)
    lanes = np.tile(qps, heads.size)
    turn = lanes % call.platform.nics_per_gpu
    ids = edges.add(src, dst, part, bundle, 1, call.place.near[src] + turn, call.place.near[dst] + turn, lanes)
    return ids[::q].reshape(heads.shape), q


def build(call: Call) -> Plan:
    """Build the plan of a collective on CollNetDirect."""
    place, width = call.place, call.place.width
    shares = split(call.nbytes, 2 if call.op == "all_reduce" else 1, call.channels)
    share = -(-call.nbytes // len(shares))
    part = stream(-(-share // width), -(-share // width // call.geometry.slot), SLOTS)
    heads = np.stack([m[:width] for m in place.members])
    edges, channels = Edges(), np.arange(len(shares))
    leave, q = switch_rows(call, edges, heads, part, channels, 0)
    arrive = np.roll(leave, 1, axis=0)
    for node in range(place.nodes):
        i, j = (a.ravel() for a in np.nonzero(~np.eye(width, dtype=bool)))
        if call.op != "all_gather":
            gathered = edges.add(heads[node, i], heads[node, j], part, 0, len(shares))
            edges.depend(*pairs(leave[node, j], np.full(len(j), q), gathered, np.ones(len(j), np.int64)), 0)
        if call.op != "reduce_scatter":
            spread = edges.add(heads[node, j], heads[node, i], part, 0, len(shares))
            edges.depend(*pairs(spread, np.ones(len(j), np.int64), arrive[node, j], np.full(len(j), q)), 0)
    hops = call.figures.nvlink_hop_us[2], call.nccl.tables.hw_latency_net_collnet_direct[2]
    return close(call, edges, Rates(call.figures.channel_rate[2], hops_us=hops))
