"""The channels that NCCL's topology search finds on known machines, by rule rather than by search.

NCCL searches rings, trees and NVLS heads for a channel rate at which NVLink, PCIe and NICs hold. On NVSwitch nodes the outcome follows a
few rules, restated here and checked against the outcome of NCCL 2.30.7's own search for DGX A100, H100, B200 and B300 nodes and for
communicators that have 1, 2, 4 or 8 GPUs per node: one search channel per NIC at the highest trial rate that NIC and NVLink carry; doubled
at half the rate from 25 GB/s up (not above four channels below 50 GB/s on Hopper and later); the exit GPU reaches the ring's NIC through
its neighbour (PXN) where NVLink has room for that crossing, else pairs of rings swap rails from node to node (crossNic 2).

Where PCIe joins the GPUs, rings follow its tree: GPUs in order, so that a ring crosses from one CPU socket to the other once each way. The
search takes the rate and the number of channels that move most over the thinnest link: the bus of a GPU (less a sixth on Intel, which cuts
packets between GPUs in pieces), or the link between the sockets. So two GPUs of a socket get two search channels at 12 GB/s and rings over
two AMD sockets one at 15 GB/s, hence four and two thread blocks.
"""

from functools import lru_cache
from typing import NamedTuple

from netsim.collectives.platform import NVLINK_BELIEF, PCIE_BELIEF, Layout, Platform
from netsim.config.nccl import Nccl

NVL, PIX, PXB, PXN, PHB, SYS = 1, 4, 5, 7, 8, 9
"""Classes of paths, closest first, with NCCL's numbers."""

BUS_RATES = {
    "ampere": (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    "hopper": (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    "blackwell": (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
}
"""Rates that the search tries for channels inside a node, GB/s."""

INTER_RATES = {
    "ampere": (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    "hopper": (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    "blackwell": (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
}
"""Rates that the search tries for channels between nodes, GB/s."""


class Channel(NamedTuple):
    """One search channel inside a node: GPUs by their place among the node's members, NICs by their place in the node's list."""

    nic_in: int
    gpus: tuple[int, ...]
    nic_out: int


class Graph(NamedTuple):
    """The channels of one algorithm; rates in GB/s as NCCL writes them."""

    channels: tuple[Channel, ...]
    bw_intra: float
    bw_inter: float
    type_intra: int = NVL
    type_inter: int = PIX
    cross_nic: int = 0
    pattern: str = "ring"  # 'ring', 'tree' (one NIC GPU), 'balanced_tree', 'nvls'

    @property
    def same_channels(self) -> bool:
        """Whether all channels take the same way."""
        return len(set(self.channels)) == 1


class Graphs(NamedTuple):
    """What the search hands to the tuner."""

    ring: Graph
    tree: Graph
    nvls: Graph | None


@lru_cache(maxsize=256)
def _search(platform: Platform, nodes: int, width: int, nics: int, nccl_key: tuple[int, bool]) -> Graphs:
    cross_nic, pxn = nccl_key
    if nodes == 1:
        return _single_node(platform.arch, width)
    return Graphs(_ring(platform, width, nics, cross_nic, pxn), _tree(platform, width, nics), _nvls(platform.arch, width, platform.nic_gbs))


def graphs(platform: Platform, place: Layout, nccl: Nccl) -> Graphs:
    """Return the graphs of a communicator, from NCCL_GRAPH_FILE where it is set."""
    if nccl.NCCL_GRAPH_FILE:
        from netsim.collectives.graph_file import read

        return read(nccl.NCCL_GRAPH_FILE)
    nics = min(len(n) for n in place.nics)
    if place.width > 1 and (platform.kind == "pcie" or place.spans_islands):
        found = _over_bus(platform, place, nics, nccl.NCCL_CROSS_NIC if platform.rails_joined else 0)
    else:
        found = _search(platform, place.nodes, place.width, nics, (nccl.NCCL_CROSS_NIC if platform.rails_joined else 0, nccl.pxn))
    return found if nccl.p2p else _through_host(found, platform)


def _through_host(found: Graphs, platform: Platform) -> Graphs:
    """The graphs of a node without NVLink: two channels on one node, at what the bus carries; nothing that needs the scale-up switch."""
    out = []
    for graph in found[:2]:
        channels = graph.channels[:2] if graph.channels[0].nic_in < 0 else graph.channels
        rate = min(graph.bw_intra, PCIE_BELIEF[platform.pcie] / 2)
        out.append(graph._replace(channels=channels, bw_intra=rate, bw_inter=min(graph.bw_inter, rate), type_intra=PHB))
    return Graphs(out[0], out[1], None)


def _over_bus(platform: Platform, place: Layout, nics: int, cross_nic: int) -> Graphs:
    """The graphs of GPUs that PCIe joins, at least in part: rings along the tree, as many as the thinnest link of a node has room for.

    A ring that ends on another socket than it began leaves through a NIC there, where rails may be crossed.
    """
    bus = PCIE_BELIEF[platform.pcie] / (1.2 if platform.cpu == "intel" else 1.0)
    limit = min(bus, platform.sockets_gbs) if place.spans_islands else bus
    multi = place.nodes > 1
    count, rate = _most(platform.arch, limit, platform.nic_gbs if multi else limit, nics if multi else 32)
    orders = [up(_start(c, nics, place.width) if multi else 0, place.width) for c in range(count)]
    kind = SYS if place.spans_islands else PXB
    cross = cross_nic if multi and place.spans_islands and nics > 1 else 0
    outs = [order[-1] * nics // place.width if cross and nics <= place.width else c for c, order in enumerate(orders)]
    ends = zip(range(count), orders, outs, strict=True)
    channels = tuple(Channel(c, order, out) if multi else Channel(-1, order, -1) for c, order, out in ends)
    ring = Graph(channels, rate, rate, kind, PHB if multi else PIX, cross)
    trees = tuple(channel._replace(nic_out=channel.nic_in) for channel in channels)
    return Graphs(ring, Graph(trees, rate, rate, kind, PHB if multi else PIX, 0, "balanced_tree"), None)


def _most(arch: str, limit: float, channel: float, most: int) -> tuple[int, float]:
    """Channels and their rate that together move most, none faster than `channel`: slower ones down to half of the best are tried."""
    best = (0, 0.0)
    for rate in BUS_RATES[arch] if channel == limit else INTER_RATES[arch]:
        if rate > min(limit, channel) or (best[0] and rate / best[1] <= 0.49):
            continue
        count = min(most, int(limit / rate))
        if count * rate > best[0] * best[1]:
            best = count, rate
    count, rate = best if best[0] else (1, min(limit, channel))
    copies, rate = _duplicate(arch, count, rate)
    return count * copies, rate


def down(first: int, width: int) -> tuple[int, ...]:
    """GPUs of a node from `first` downwards, around."""
    return tuple((first - i) % width for i in range(width))


def up(first: int, width: int) -> tuple[int, ...]:
    """GPUs of a node from `first` upwards, around."""
    return tuple((first + i) % width for i in range(width))


def _single_node(arch: str, width: int) -> Graphs:
    count, rate = {"ampere": (12, 20), "hopper": (12, 30), "blackwell": (16, 45)}[arch]
    channels = (Channel(-1, tuple(range(width)), -1),) * count
    ring = Graph(channels, rate, rate)
    heads = None
    if arch != "ampere":
        intra, inter = {"hopper": (40, 60), "blackwell": (80, 90)}[arch] if width > 4 else {"hopper": (60, 60), "blackwell": (90, 90)}[arch]
        heads = Graph(tuple(Channel(-1, (h,), -1) for h in range(width)), intra, inter, pattern="nvls")
    return Graphs(ring, ring._replace(pattern="balanced_tree"), heads)


def _duplicate(arch: str, count: int, rate: float) -> tuple[int, float]:
    """Twice the channels at half the rate, where NCCL does so."""
    if rate < 25 or (arch != "ampere" and rate < 50 and count > 4):
        return 1, rate
    return 2, rate / 2


def _fastest(arch: str, limit: float) -> float:
    return next(rate for rate in INTER_RATES[arch] if rate <= limit + 1e-9)


def _start(nic: int, nics: int, width: int) -> int:
    """Place of the first member whose NIC stands at place `nic`."""
    return nic * width // nics if nics <= width else nic // (nics // width)


def _ring(platform: Platform, width: int, nics: int, cross_nic: int, pxn: bool) -> Graph:
    arch, limit = platform.arch, platform.nic_gbs
    nvlink = NVLINK_BELIEF[arch]
    paired = nics % 2 == 0 and width > 1 and nics == width
    starts = [_start(c, nics, width) for c in range(nics)]
    cross, kind, rate = 0, PIX, _fastest(arch, limit)
    if arch == "ampere":
        orders = [down(a, width) if c % 2 == 0 else up(a, width) for c, a in enumerate(starts)]
        outs, kind = list(range(nics)), PXB if width > 1 else PIX
    elif width == 1:
        orders, outs = [down(a, width) for a in starts], list(range(nics))
    elif cross_nic == 1 and paired:
        orders, outs, cross = [down(a, width) for a in starts], [(c + 1) % nics for c in range(nics)], 1
    elif cross_nic == 2 and paired and nics * rate > nvlink:
        orders = [down(a, width) if c % 2 == 0 else up(a, width) for c, a in enumerate(starts)]
        outs, cross = [c ^ 1 for c in range(nics)], 2
    else:
        kind = PXN if pxn else PHB
        rate = _fastest(arch, min(limit if pxn else limit / 1.2 if platform.cpu == "intel" else limit, nvlink / nics if pxn else limit))
        orders, outs = [down(a, width) for a in starts], list(range(nics))
    copies, rate = _duplicate(arch, nics, rate)
    channels = tuple(Channel(c, order, out) for c, (order, out) in enumerate(zip(orders, outs, strict=True))) * copies
    return Graph(channels, rate, rate, NVL, kind, cross)


def _tree(platform: Platform, width: int, nics: int) -> Graph:
    arch, limit = platform.arch, platform.nic_gbs
    rate = _fastest(arch, limit)
    copies, inter = _duplicate(arch, nics, rate)
    starts = [_start(c, nics, width) for c in range(nics)]
    if arch == "ampere":
        chains = [up(a, width) if c % 2 == 0 else down(a, width) for c, a in enumerate(starts)]
        intra = 30.0 if width * rate < NVLINK_BELIEF[arch] and width > 4 else inter
        return Graph(tuple(Channel(c, g, c) for c, g in enumerate(chains)) * copies, intra, inter, NVL, PXB, 0, "balanced_tree")
    intra = rate if arch == "hopper" or rate > 48 else 2 * rate
    intra = inter if rate > 48 else intra
    return Graph(tuple(Channel(c, up(a, width), c) for c, a in enumerate(starts)) * copies, intra, inter, NVL, PIX, 0, "tree")


def _nvls(arch: str, width: int, limit: float) -> Graph | None:
    if arch == "ampere" or width < 2:
        return None
    inter = _fastest(arch, limit)
    intra = (40.0 if width > 4 else 60.0) if arch == "hopper" else (80.0 if inter > 48 else 48.0)
    return Graph(tuple(Channel(h, (h,), h) for h in range(width)), intra, inter, NVL, PIX, 0, "nvls")
