"""PAT: all-gather and reduce-scatter in a logarithmic number of steps, where every node has one member.

Dimension i joins ranks 2^i apart. An all-gather goes from the farthest dimension to the nearest; on dimension i a rank sends its own shard
and those that the farther dimensions brought: as many as there are numbers below R whose lowest set bit is 2^i, R - 1 in all, as in a
ring. A reduce-scatter is its mirror. Small shards share messages. Source: NCCL src/include/collectives.h (PatAGAlgorithm, PatRSAlgorithm).
"""

import math

import numpy as np

from netsim.collectives.algorithms.ring import pairs, queue_pairs
from netsim.collectives.call import Call
from netsim.collectives.channels import split
from netsim.collectives.edges import Edges, stream
from netsim.collectives.geometry import SLOTS
from netsim.collectives.timing import Rates, close
from netsim.kernels.structs import Plan

STEP_US = 2.8
PIPELINED = 3.5
"""Cost of a step per rank, and the steps of the network that overlap (NCCL src/graph/tuning.cc)."""


def shards(ranks: int) -> list[int]:
    """Shards that each dimension carries, nearest first."""
    return [len(range(1 << i, ranks, 2 << i)) for i in range((ranks - 1).bit_length())]


def chunk_size(call: Call) -> int:
    """Bytes of a chunk."""
    chunk, factor = call.geometry.slot, 32 if call.op == "all_gather" else 16
    while chunk * call.channels * factor > call.nbytes and chunk > 65536:
        chunk //= 2
    return chunk


def aggregation(share: int, chunk: int, ranks: int) -> int:
    """Shards that one message takes."""
    together = 1
    while together * 2 <= ranks // 2 and chunk // (max(share, 1) * together) >= 2:
        together *= 2
    return together


def build(call: Call) -> Plan:
    """Build the plan of an all-gather or reduce-scatter on PAT."""
    ranks, place = call.place.ranks, call.place
    shares = split(-(-call.nbytes // ranks), ranks, call.channels)
    chunk = chunk_size(call)
    gather = call.op == "all_gather"
    counts = shards(ranks)
    edges, member = Edges(), np.arange(ranks)
    for bundle, share in enumerate(shares):
        qps, _ = queue_pairs(call, np.array([bundle]), stream(1, 1, 1))
        before: tuple[np.ndarray, int, np.ndarray] | None = None
        for i in reversed(range(len(counts))) if gather else range(len(counts)):
            msgs = counts[i] * math.ceil(share / chunk) if share >= chunk else math.ceil(counts[i] / aggregation(share, chunk, ranks))
            _, part = queue_pairs(call, np.array([bundle]), stream(counts[i] * share, msgs, SLOTS))
            peer = (member - (1 << i)) % ranks if gather else (member + (1 << i)) % ranks
            q = len(qps)
            src, dst = np.repeat(member, q), np.repeat(peer, q)
            lanes = np.tile(qps, ranks)
            turn = lanes % call.platform.nics_per_gpu
            first = edges.add(src, dst, part, bundle, 1, place.near[src] + turn, place.near[dst] + turn, lanes)[::q]
            if before is not None:
                rows, earlier, sender_to = before
                brought = np.empty(ranks, np.int64)
                brought[sender_to] = rows
                edges.depend(*pairs(first, np.full(ranks, q), brought, np.full(ranks, q)), max(0, part.msgs - earlier))
            before = first, part.msgs, peer
    hop = (math.log2(ranks) * call.hop_us(0, 1) / PIPELINED + STEP_US * ranks) / len(counts)
    rate = call.figures.channel_rate[2]
    return close(call._replace(channels=len(shares)), edges, Rates(rate, in_phase=False, hops_us=(0.0, hop)))
