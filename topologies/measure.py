"""What a fabric amounts to: switches and ports per tier, oversubscription, bisection bandwidth, planes, lengths of paths.

Everything is read off the arrays, whichever builder laid the cables, so a wrong builder shows here.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from netsim.config.topology import TIER_NAMES, Fabric
from netsim.kernels.components import components
from netsim.kernels.maxflow import max_flow
from netsim.kernels.routing import first_nic, first_switch
from netsim.kernels.structs import CABLE_TIERS, LINK_TIERS, NIC, SWITCH, Array, Routes, Topology
from topologies.tables import paths

MAX_FLOW_LINKS = 4_000_000
"""Above this many links the bisection bandwidth comes from `tier_bisection` instead of a maximum flow."""


@dataclass(frozen=True)
class TierReport:
    """Switches of one tier; oversubscription is the rate of all their links down over that of all links up, None for the top."""

    tier: str
    switches: int
    radix: int
    ports_used: int
    ports_free: int
    down_bytes_per_s: float  # all switches together
    up_bytes_per_s: float
    oversubscription: float | None


@dataclass(frozen=True)
class PathReport:
    """The shortest way from a NIC to the nearest other one that is reached through this tier."""

    across: str
    links: int
    latency_ps: int


@dataclass(frozen=True)
class Report:
    """All of it."""

    builder: str
    nodes: int
    gpus: int
    nics: int
    nic_ports: int
    tiers: list[TierReport]
    cables: dict[str, int]
    failed_links: int
    slow_links: int
    scale_up_bytes_per_s: float
    islands: int
    between_bytes_per_s: float | None  # from one island of a node to another
    injection_bytes_per_s: float
    bisection_bytes_per_s: float
    full_bisection_bytes_per_s: float
    planes: int
    switch_planes: int
    diameter_links: int
    unreachable_nic_pairs: int
    paths: list[PathReport]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(topology: Topology, fabric: Fabric, routes: Routes) -> Report:
    """Return the report of a built fabric."""
    healthy = np.bincount(topology.link_tier, minlength=len(LINK_TIERS))[CABLE_TIERS] // 2
    nic_side = topology.vertex_kind[topology.link_src] == NIC
    nic_side &= topology.vertex_kind[topology.link_dst] == SWITCH
    lost, diameter = _reach(topology, routes)
    nominal = _nominal_rates(fabric)
    return Report(
        builder=fabric.builder,
        nodes=topology.n_nodes,
        gpus=topology.n_gpus,
        nics=topology.n_nics,
        nic_ports=int(nic_side.sum()),
        tiers=tier_reports(topology, fabric),
        cables={name: int(count) for name, count in zip(LINK_TIERS[CABLE_TIERS], healthy, strict=True) if count},
        failed_links=int((topology.link_rate == 0).sum()),
        slow_links=int(((topology.link_rate > 0) & (topology.link_rate < nominal[topology.link_tier])).sum())
        if fabric.builder != "custom"
        else 0,
        scale_up_bytes_per_s=fabric.scale_up.rate,
        islands=topology.islands,
        between_bytes_per_s=fabric.scale_up.between,
        injection_bytes_per_s=float(topology.link_rate[nic_side].sum()),
        bisection_bytes_per_s=bisection(topology),
        full_bisection_bytes_per_s=float(topology.link_rate[nic_side & _first_half(topology)[topology.link_src]].sum()),
        planes=int(topology.vertex_plane.max()) + 1,
        switch_planes=switch_planes(topology),
        diameter_links=diameter,
        unreachable_nic_pairs=lost,
        paths=path_reports(topology, routes),
    )


def tier_reports(topology: Topology, fabric: Fabric) -> list[TierReport]:
    """Return one report per tier that exists, from leaf up."""
    reports = []
    src_tier, dst_tier = topology.vertex_tier[topology.link_src], topology.vertex_tier[topology.link_dst]
    for t, name in enumerate(TIER_NAMES, 1):
        count = int((topology.vertex_tier == t).sum())
        if count:
            mine = src_tier == t
            down, up = topology.link_rate[mine & (dst_tier < t)].sum(), topology.link_rate[mine & (dst_tier > t)].sum()
            radix = fabric.tier(t).radix or 0
            used = int(mine.sum())
            ratio = round(float(down / up), 4) if up > 0 else None
            reports.append(TierReport(name, count, radix, used, count * radix - used, float(down), float(up), ratio))
    return reports


def bisection(topology: Topology) -> float:
    """Return the bytes/s that the first half of the nodes can send to the second half: a maximum flow through the switches."""
    if topology.link_src.size > MAX_FLOW_LINKS:
        return tier_bisection(topology)
    switch_0 = first_switch(topology)
    source, sink = topology.n_switches, topology.n_switches + 1
    kind, half = topology.vertex_kind, _first_half(topology)
    src_kind, dst_kind = kind[topology.link_src], kind[topology.link_dst]
    between = (src_kind == SWITCH) & (dst_kind == SWITCH)
    enter = (src_kind == NIC) & (dst_kind == SWITCH) & half[topology.link_src]
    leave = (src_kind == SWITCH) & (dst_kind == NIC) & ~half[topology.link_dst]
    tail = np.where(enter, source, topology.link_src - switch_0)
    head = np.where(leave, sink, topology.link_dst - switch_0)
    used = between | enter | leave
    # parallel edges become one
    edge, inverse = np.unique(tail[used] * np.int64(sink + 1) + head[used], return_inverse=True)
    capacity = np.bincount(inverse, weights=topology.link_rate[used]).astype(np.int64)
    return float(max_flow(sink + 1, edge // (sink + 1), edge % (sink + 1), capacity, source, sink))


def tier_bisection(topology: Topology) -> float:
    """Return half the rate of the thinnest tier of cables: the bisection of a regular tree whose leaves do not straddle the halves."""
    up = topology.vertex_tier[topology.link_src] < topology.vertex_tier[topology.link_dst]
    per_tier = np.bincount(topology.link_tier[up], weights=topology.link_rate[up])[CABLE_TIERS]
    return float(per_tier[per_tier > 0].min() / 2)


def switch_planes(topology: Topology) -> int:
    """Return how many networks there are that share nothing but NICs."""
    switch_0 = first_switch(topology)
    between = (topology.link_src >= switch_0) & (topology.link_dst >= switch_0)
    return int(components(topology.n_switches, topology.link_src[between] - switch_0, topology.link_dst[between] - switch_0).max()) + 1


def path_reports(topology: Topology, routes: Routes) -> list[PathReport]:
    """Return the paths from NIC 0, one for every highest tier that is crossed."""
    dist = np.full(routes.n_groups, 32767)
    for leaf in routes.nic_leaf[0][routes.nic_leaf[0] >= 0]:
        row = routes.hop_dist[leaf * routes.n_groups : (leaf + 1) * routes.n_groups]
        dist = np.where(row > 0, np.minimum(dist, row), dist)
    others = np.arange(1, topology.n_nics)
    far = dist[routes.nic_group[1:]]
    reports: dict[str, PathReport] = {}
    for d in np.unique(far[far < 32767]):
        nic = others[far == d][:1]
        _, links = paths(topology, routes, np.zeros(1), nic, np.zeros(1))
        tier = TIER_NAMES[int(topology.vertex_tier[topology.link_dst[links]].max()) - 1]
        reports.setdefault(tier, PathReport(tier, links.size, int(topology.link_latency[links].sum())))
    return list(reports.values())


def _reach(topology: Topology, routes: Routes) -> tuple[int, int]:
    """Return how many ordered pairs of different NICs have no way, and the links of the longest shortest path."""
    members = np.bincount(routes.nic_group, minlength=routes.n_groups)
    dist = routes.hop_dist.reshape(topology.n_switches, routes.n_groups)
    lost, longest = 0, 0
    for g, nic in enumerate(np.unique(routes.nic_group, return_index=True)[1]):
        leaves = routes.nic_leaf[nic][routes.nic_leaf[nic] >= 0]
        reached = dist[leaves] > 0
        near = np.where(reached, dist[leaves], 32767).min(axis=0) if leaves.size else np.full(routes.n_groups, 32767)
        cut = near == 32767
        lost += int(members[g] * members[cut].sum()) - (int(members[g]) if cut[g] else 0)
        longest = max(longest, 1 + int(near[~cut].max(initial=0)))
    return lost, longest


def _first_half(topology: Topology) -> Array:
    """bool[V]: NICs of the first half of the nodes."""
    half = np.zeros(topology.vertex_kind.size, bool)
    nic_0 = first_nic(topology)
    half[nic_0 : nic_0 + (topology.n_nodes // 2) * topology.nics_per_node] = True
    return half


def _nominal_rates(fabric: Fabric) -> Array:
    return np.array([fabric.scale_up.rate, fabric.host.rate, *(fabric.tier(t).rate for t in (1, 2, 3)), fabric.scale_up.between or 0.0])
