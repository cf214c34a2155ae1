"""CollNetChain: a chain through the GPUs of a node reduces into its head; the network's switches reduce between nodes; the chain brings it
back."""

import numpy as np

from netsim.collectives.algorithms.collnet_direct import switch_rows
from netsim.collectives.algorithms.ring import pairs
from netsim.collectives.call import Call
from netsim.collectives.channels import split
from netsim.collectives.edges import Edges, stream
from netsim.collectives.geometry import SLOTS
from netsim.collectives.timing import Rates, close
from netsim.kernels.structs import Plan


def build(call: Call) -> Plan:
    """Build the plan of an all-reduce on CollNetChain."""
    place, width = call.place, call.place.width
    shares = split(call.nbytes, 2, call.channels)
    share = -(-call.nbytes // len(shares))
    what = stream(share, -(-share // call.geometry.slot), SLOTS)
    edges = Edges()
    for first in range(min(width, len(shares))):
        channels = np.arange(first, len(shares), width)
        chain = np.stack([np.roll(m[:width], -first) for m in place.members])  # [nodes, width], head first
        leave, q = switch_rows(call, edges, chain[:, :1], what, channels, first)
        arrive = np.roll(leave, 1, axis=0)
        if width == 1:
            continue
        up = edges.add(chain[:, 1:].ravel(), chain[:, :-1].ravel(), what, first, len(channels)).reshape(place.nodes, width - 1)
        down = edges.add(chain[:, :-1].ravel(), chain[:, 1:].ravel(), what, first, len(channels)).reshape(place.nodes, width - 1)
        edges.depend(up[:, :-1].ravel(), up[:, 1:].ravel(), 0)
        edges.depend(down[:, 1:].ravel(), down[:, :-1].ravel(), 0)
        one, each = np.ones(place.nodes, np.int64), np.full(place.nodes, q)
        edges.depend(*pairs(leave[:, 0], each, up[:, 0], one), 0)
        edges.depend(*pairs(down[:, 0], one, arrive[:, 0], each), 0)
    hops = call.figures.nvlink_hop_us[2], call.nccl.tables.hw_latency_net_collnet_chain[2]
    return close(call, edges, Rates(call.figures.channel_rate[2] * 0.5, hops_us=hops))
