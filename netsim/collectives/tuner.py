"""NCCL's cost model: which algorithm and protocol a call takes, on how many channels.

For every algorithm a and protocol p:  t = latency(a, p) + nbytes / bandwidth(a, p), and the smallest wins; ties go to the first in the
order of `ALGORITHMS` and `PROTOCOLS`. `nbytes` is the whole buffer: what an all-gather ends with, what a reduce-scatter starts from.
Latencies are microseconds and rates GB/s, NCCL's own units. Restated from NCCL 2.30.7-1 (src/graph/tuning.cc, src/enqueue.cc); its numbers
stand in `netsim.config.nccl_tables`. These times choose; how long a call takes is another matter (`netsim.collectives.timing`).
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from netsim.collectives.channels import compute_channels, nvls_channels
from netsim.collectives.graphs import NVL, PXB, PXN, Graph, Graphs, graphs
from netsim.collectives.platform import Communicator, Layout, Platform, layout
from netsim.config.nccl import ALGORITHMS, PROTOCOLS, Nccl, choices
from netsim.errors import InputError

FUNCTION = {
    "all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter", "broadcast": "broadcast", "reduce": "reduce"
}  # fmt: skip
"""Collectives that the tuner decides on, and NCCL's names for them; all others are grouped sends and receives."""

ALLOWED = {
    "all_reduce": ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree"),
    "all_gather": ("ring", "collnet_direct", "nvls", "pat"),
    "reduce_scatter": ("ring", "collnet_direct", "nvls", "pat"),
    "broadcast": ("ring",),
    "reduce": ("ring",),
}


class Choice(NamedTuple):
    """What the tuner decides on for one call."""

    algorithm: str
    protocol: str
    channels: int
    threads: int
    time_us: float  # what NCCL's model expects


class Case(NamedTuple):
    """Everything that the cost model looks at but the size."""

    op: str
    place: Layout
    platform: Platform
    nccl: Nccl
    graphs: Graphs
    channels: int

    @property
    def ppn(self) -> float:
        return self.place.ranks / self.place.nodes


@lru_cache(maxsize=1024)
def case_of(op: str, comm: Communicator, platform: Platform, nccl: Nccl) -> Case:
    """Gather what a call of `op` on a communicator depends on."""
    place = layout(comm, platform)
    found = graphs(platform, place, nccl)
    return Case(op, place, platform, nccl, found, compute_channels(found, platform, place, nccl))


def steps(op: str, ranks: int) -> int:
    """Return the steps of a ring."""
    return {"all_reduce": 2 * (ranks - 1), "all_gather": ranks - 1, "reduce_scatter": ranks - 1}.get(op, ranks)


def graph_of(case: Case, algorithm: str) -> Graph | None:
    """Return the graph that an algorithm runs on."""
    if algorithm in ("ring", "pat"):
        return case.graphs.ring
    if algorithm == "tree":
        return case.graphs.tree
    return case.graphs.nvls


@lru_cache(maxsize=4096)
def rate(case_key: tuple[str, Communicator, Platform, Nccl], algorithm: str, protocol: str) -> float:
    """Return the algorithm bandwidth in GB/s before the correction by size; 0 where the algorithm is not available."""
    case = case_of(*case_key)
    if not available(case, algorithm, protocol):
        return 0.0
    bus = _bus_rate(case, algorithm, protocol)
    ranks = case.place.ranks
    if algorithm in ("ring", "nvls", "nvls_tree") and not (algorithm != "ring" and case.op != "all_reduce"):
        return bus * ranks / steps(case.op, ranks)
    return bus * 0.5 if case.op == "all_reduce" else bus


def available(case: Case, algorithm: str, protocol: str) -> bool:
    """Say whether NCCL would consider an algorithm with a protocol."""
    place, nccl, arch = case.place, case.nccl, case.platform.arch
    collnet = nccl.NCCL_COLLNET_ENABLE == 1 and place.nodes >= nccl.NCCL_COLLNET_NODE_THRESHOLD
    if algorithm not in ALLOWED[case.op] or algorithm not in choices(nccl.NCCL_ALGO, FUNCTION[case.op], ALGORITHMS):
        return False
    if protocol not in choices(nccl.NCCL_PROTO, FUNCTION[case.op], PROTOCOLS):
        return False
    if algorithm not in ("tree", "ring") and protocol != "simple":
        return False
    graph = graph_of(case, algorithm)
    if protocol == "ll128" and graph is not None:
        return graph.type_inter <= (PXB if arch == "ampere" else PXN) and graph.type_intra <= NVL + 1
    if algorithm in ("nvls", "nvls_tree"):
        multi = place.nodes > 1
        fits = case.op == "all_reduce" or place.width <= 32
        return nccl.NCCL_NVLS_ENABLE > 0 and graph is not None and multi == (algorithm == "nvls_tree" or collnet) and fits
    if algorithm.startswith("collnet"):
        return collnet and place.width > 1
    return algorithm != "pat" or (nccl.NCCL_PAT_ENABLE > 0 and place.nodes == place.ranks and place.nodes > 1)


def _index(nodes: int) -> int:
    return min(nodes, 3) - 1


def ll_max(case: Case) -> float:
    """Highest bus rate of LL; between nodes the CPU vendor picks the row."""
    tables, arch = case.nccl.tables, case.platform.arch
    if case.place.nodes > 1:
        arch = "ampere" if cpu(case) == "amd" else "volta"
    row: tuple[float, float, float] = getattr(tables, f"ll_max_bw_{arch}")
    return row[_index(case.place.nodes)]


def cpu(case: Case) -> str:
    """Vendor of the hosts' CPUs."""
    return case.nccl.cpu or case.platform.cpu


def net_overhead_us(case: Case) -> float:
    """Cost of posting a network message."""
    if case.nccl.NCCL_NET_OVERHEAD is not None:
        return case.nccl.NCCL_NET_OVERHEAD / 1000
    return case.nccl.tables.net_overhead_amd if cpu(case) == "amd" else case.nccl.tables.net_overhead_other


def _row(case: Case, name: str) -> float:
    row: tuple[float, float, float] = getattr(case.nccl.tables, f"{name}_{case.platform.arch}")
    return row[_index(case.place.nodes)]


def _bus_rate(case: Case, algorithm: str, protocol: str) -> float:
    graph, nodes = graph_of(case, algorithm), case.place.nodes
    if algorithm.startswith("collnet"):
        return _collnet_rate(case, algorithm)
    assert graph is not None
    count = len(graph.channels)
    if algorithm in ("nvls", "nvls_tree"):
        return count * _nvls_channel_rate(case, graph, algorithm)
    bus = count * (graph.bw_intra if nodes <= 2 else graph.bw_inter)
    if algorithm == "pat":
        return bus * 0.75
    if algorithm == "ring":
        if protocol == "simple":
            return bus
        return min(ll_max(case), bus / 2) if protocol == "ll" else min(0.92 * bus, count * _row(case, "ring_ll128"))
    bus = min(0.92 * bus, count * _row(case, "tree_simple"))
    if protocol == "ll":
        bus = min(bus / 3.8, ll_max(case))
    elif protocol == "ll128":
        bus = min(bus * (7 / 9 if nodes == 1 else 120 / 128), count * _row(case, "tree_ll128"))
    return bus * (0.85 if graph.pattern == "tree" else 1.0)


def _nvls_channel_rate(case: Case, graph: Graph, algorithm: str) -> float:
    count, nodes, ppn = len(graph.channels), case.place.nodes, case.ppn
    if count < 2:
        return 0.0
    efficiency: float = getattr(case.nccl.tables, f"nvls_efficiency_{case.platform.arch}")
    share = 2 if case.op == "all_reduce" else (ppn - 1) / ppn
    channel = min(
        graph.bw_intra * efficiency * (count - 1) / count * share, graph.bw_inter * (2 if nodes <= 2 and algorithm == "nvls_tree" else 1)
    )
    return min(channel, _row(case, "nvls_tree")) if algorithm == "nvls_tree" else channel


def _collnet_rate(case: Case, algorithm: str) -> float:
    ppn, graph = case.ppn, case.graphs.nvls or case.graphs.tree
    count = len(graph.channels)
    if algorithm == "collnet_chain":
        return count * graph.bw_intra
    if case.op != "all_reduce":
        return ppn * min(graph.bw_intra, 0.9 * graph.bw_inter)
    ratio = ppn / count
    return count * graph.bw_intra / (ratio - (ratio - 1) / 2) * (1.0 if case.platform.arch == "ampere" else 0.85)


def latency_us(case: Case, algorithm: str, protocol: str) -> float:
    """Return the latency term of the cost model."""
    tables, p = case.nccl.tables, PROTOCOLS.index(protocol)
    ranks, nodes, ppn = case.place.ranks, case.place.nodes, case.ppn
    base: float = getattr(tables, f"base_latency_{algorithm}")[p]
    link = "pci" if case.platform.kind == "pcie" or case.place.spans_islands else "nvlink"
    intra: float = getattr(tables, f"hw_latency_{link}_{algorithm}")[p]
    inter: float = getattr(tables, "hw_latency_net_tree" if ppn == 1 and algorithm == "ring" else f"hw_latency_net_{algorithm}")[p]
    hops = math.floor(math.log2(nodes))
    if algorithm == "ring":
        if case.op in ("broadcast", "reduce"):
            same = case.graphs.ring.same_channels
            row: tuple[float, float, float] = getattr(
                tables, f"hw_latency_{'net' if nodes > 1 else link}_{'tree' if protocol == 'simple' and not same else 'ring'}"
            )
            return base + (1 if same else ranks) * row[p]
        total = steps(case.op, ranks)
        across = 0 if nodes == 1 else (2 if case.op == "all_reduce" else 1) * (nodes - 1)
        post = net_overhead_us(case) * (3 if protocol == "simple" else 1) if nodes > 1 else 0.0
        return base + (total - across) * max(intra, post) + across * inter
    if algorithm == "tree":
        return base + 2 * ((ranks / nodes - 1) * intra + hops * inter)
    if algorithm == "collnet_direct":
        return base + 2 * (min(1, ppn - 1) * intra + 0.4 * (ppn - 1)) + inter
    if algorithm == "collnet_chain":
        return base + 2 * (ppn - 1) * intra + inter
    if algorithm == "nvls":
        return base + intra + (inter if nodes > 1 else 0.0)
    if algorithm == "nvls_tree":
        return base + intra + 2 * hops * inter
    return base + math.log2(nodes) * inter / 3.5 + 2.8 * ranks


def time_us(case_key: tuple[str, Communicator, Platform, Nccl], algorithm: str, protocol: str, nbytes: int) -> float:
    """Return what NCCL's model expects a call to take; infinity where the algorithm is not available."""
    bw = rate(case_key, algorithm, protocol)
    if bw <= 0:
        return math.inf
    case = case_of(*case_key)
    latency = latency_us(case, algorithm, protocol)
    place, tables = case.place, case.nccl.tables
    size = nbytes >> 6
    column = size.bit_length() - 1 if size else 0
    corrected = algorithm == "tree" or (algorithm == "nvls_tree" and case.platform.arch == "blackwell" and cpu(case) != "arm")
    if case.op == "all_reduce" and corrected and column < (23 if algorithm == "tree" else 24):
        bw *= getattr(tables, f"tree_correction_{protocol}")[column]
    if (
        algorithm == "ring"
        and protocol == "simple"
        and place.nodes > 1
        and case.op == "all_reduce"
        and nbytes / (case.channels * place.ranks) >= 64
    ):
        latency *= tables.ring_simple_plateau
    return latency + nbytes / (1000 * bw)


def threads_and_channels(case: Case, algorithm: str, protocol: str, nbytes: int) -> tuple[int, int]:
    """Return the threads per channel and the channels that NCCL keeps for a size."""
    nccl, ranks = case.nccl, case.place.ranks
    if algorithm in ("nvls", "nvls_tree"):
        count = nvls_channels(case.platform, case.place, nccl)
        return 640, min(count, case.channels) if case.place.nodes > 1 and algorithm == "nvls" else count
    if algorithm.startswith("collnet"):
        return 640, case.channels
    most = {"ll": 512, "ll128": 640, "simple": 512}[protocol]
    ring = case.graphs.ring
    if algorithm == "ring" and protocol == "simple" and ring.bw_intra * len(ring.channels) <= 12:
        most = 256
    if protocol == "ll128" and nccl.NCCL_LL128_NTHREADS:
        most = min(most, nccl.NCCL_LL128_NTHREADS)
    elif protocol != "ll128" and nccl.NCCL_NTHREADS:
        most = min(most, nccl.NCCL_NTHREADS)
    per_thread = {"ll": 8 * (ranks if algorithm == "ring" else 1), "ll128": 8, "simple": 64}[protocol]
    channels = max(1, min(case.channels, nbytes // (most * per_thread)))
    threads = most
    while threads % 128 == 0 and nbytes < channels * threads * per_thread:
        threads //= 2
    if algorithm == "ring" and protocol == "simple":
        threads += 32
    return (640 if algorithm in ("tree", "pat") else max(threads, 96)), channels


def choose(op: str, nbytes: int, comm: Communicator, platform: Platform, nccl: Nccl) -> Choice:
    """Return the fastest algorithm and protocol by NCCL's model, with the channels and threads it would run on.

    Raises InputError where NCCL_ALGO and NCCL_PROTO leave nothing for the operation.
    """
    key = (op, comm, platform, nccl)
    times = [(time_us(key, a, p, nbytes), i, a, p) for i, (a, p) in enumerate((a, p) for a in ALGORITHMS for p in PROTOCOLS)]
    best, _, algorithm, protocol = min(times)
    if math.isinf(best):
        raise InputError(_nothing_left(op, comm, platform, nccl))
    threads, channels = threads_and_channels(case_of(*key), algorithm, protocol, nbytes)
    return Choice(algorithm, protocol, channels, threads, best)


def _nothing_left(op: str, comm: Communicator, platform: Platform, nccl: Nccl) -> str:
    """Say what the variables leave out that the operation needs."""
    given = [name for name in ("NCCL_ALGO", "NCCL_PROTO") if getattr(nccl, name)] or ["NCCL_GRAPH_FILE"]
    free = (op, comm, platform, replace(nccl, NCCL_ALGO=None, NCCL_PROTO=None))
    able = {a: [p for p in PROTOCOLS if rate(free, a, p) > 0] for a in ALGORITHMS}
    offer = ", ".join(f"{a}/{p}" for a, ps in able.items() for p in ps)
    got = " and ".join(f"{name}={getattr(nccl, name)}" for name in given)
    return (
        f"nccl.{given[0]}: expected something that NCCL has for {op} on {len(comm.node)} ranks ({offer}); got {got}, which leave no "
        "algorithm; 'allreduce:tree' is for one function only"
    )
