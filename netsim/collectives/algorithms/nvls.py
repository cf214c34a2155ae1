"""NVLS on one node: the scale-up switch reduces and multicasts.

Head h (each GPU is one) owns 1/h of every loop: its multimem load reads that part from all GPUs through the switch, which returns one
reduced stream, and its multimem store comes back to all GPUs. Each GPU so sends and receives S (the data of all heads) plus S / heads (its
own result). The switch is not a member; the stream into it from GPU g and the stream out of it to GPU g + 1 are drawn as one edge g -> g +
1, which loads each port with exactly those bytes. Barriers around a loop cost the same time whatever its size, so that small chunks pay
more.
"""

import math

import numpy as np

from netsim.collectives.call import Call
from netsim.collectives.channels import split
from netsim.collectives.edges import Edges, stream
from netsim.collectives.geometry import SLOTS
from netsim.collectives.timing import Rates, close
from netsim.kernels.structs import Plan

SHRINK = ((65536, 64), (32768, 8), (16384, 2))
"""A chunk above so many bytes shrinks to them while the channel has less than so many loops of it."""


def chunk_size(share: int, heads: int, largest: int) -> int:
    """Bytes that a head handles in one loop, for a channel of `share` bytes."""
    chunk = largest
    for smaller, loops in SHRINK:
        if chunk > smaller and share < loops * heads * chunk:
            chunk = smaller
    return chunk


def switch_edges(
    call: Call, edges: Edges, nodes: tuple[np.ndarray, ...], nbytes: int, loops: int, heads: int, weight: int, bundle: int
) -> tuple[np.ndarray, np.ndarray]:
    """Add the streams of nodes through their switches; return the rows of the reduction and of the multicast, node by node, by member."""
    members = np.concatenate(nodes)
    following = np.concatenate([np.roll(m, -1) for m in nodes])
    read = edges.add(members, following, stream(nbytes, loops, SLOTS), bundle, weight)
    store = edges.add(members, following, stream(-(-nbytes // heads), loops, SLOTS), bundle, weight)
    return read, store


def build(call: Call) -> Plan:
    """Build the plan of an NVLS collective."""
    heads = len(call.place.members[0])
    shares = split(call.nbytes, 2 if call.op == "all_reduce" else 1, call.channels)
    share = -(-call.nbytes // len(shares))
    chunk = chunk_size(shares[0], heads, call.nccl.NCCL_NVLS_CHUNKSIZE)
    loops = max(1, math.ceil(share / (heads * chunk)))
    edges = Edges()
    read, store = switch_edges(call, edges, call.place.members, share, loops, heads, len(shares), 0)
    edges.depend(store, np.roll(read, 1), 0)
    figures = call.figures
    barriers = loops * figures.nvls_loop_us
    rate = block_rate(call, share, barriers)
    rates = Rates(rate, 2 * rate, overhead_us=(barriers, 0.0), hops_us=(figures.nvls_us / 2, 0.0))
    return close(call._replace(channels=len(shares)), edges, rates)


def block_rate(call: Call, share: int, barriers_us: float) -> float:
    """Bytes/s of its share that a thread block moves, barriers included."""
    return share / (share / call.figures.nvls_channel_rate + barriers_us * 1e-6)
