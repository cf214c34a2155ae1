"""Routing tables of a topology, and whole paths with an error for pairs that cannot reach each other."""

import numpy as np

from netsim.config.topology import Fabric
from netsim.errors import InputError
from netsim.kernels import routing
from netsim.kernels.shortest_paths import next_hops
from netsim.kernels.structs import NIC, SWITCH, Array, Routes, Topology
from topologies.names import vertex_name


def routes(topology: Topology, fabric: Fabric, seed: int = 0, mode: str | None = None) -> Routes:
    """Return equal-cost next hops over the links whose rate is not 0; `mode` (static, dmodk, ecmp) replaces `fabric.routing`."""
    return equal_cost(topology, routing.MODES[mode or fabric.routing], seed)


def equal_cost(topology: Topology, mode: int, seed: int) -> Routes:
    """Return `routes` for a mode of `kernels.routing`."""
    switch_0, nic_0 = routing.first_switch(topology), routing.first_nic(topology)
    alive = topology.link_rate > 0
    src_kind, dst_kind = topology.vertex_kind[topology.link_src], topology.vertex_kind[topology.link_dst]
    nic_up = _by_nic((src_kind == NIC) & (dst_kind == SWITCH), topology.link_src - nic_0, topology.n_nics)
    working = (nic_up >= 0) & alive[nic_up] & alive[topology.link_reverse[nic_up]]
    leaf = np.where(nic_up >= 0, topology.link_dst[nic_up] - switch_0, -1)
    nic_order, widths = _order(leaf), _ports_up(topology)
    nic_leaf = np.where(working, leaf, -1)
    nic_group, group_ptr, group_switch = _groups(nic_leaf)

    between = alive & (src_kind == SWITCH) & (dst_kind == SWITCH)
    link = np.flatnonzero(between)
    src, dst = topology.link_src[link] - switch_0, topology.link_dst[link] - switch_0
    out = np.lexsort((link, dst, src))
    into = np.argsort(dst, kind="stable")
    ends = np.arange(topology.n_switches + 1)
    hop_dist, hop_set, set_ptr, set_idx = next_hops(
        np.searchsorted(src[out], ends), link[out].astype(np.int32), dst[out].astype(np.int32),
        np.searchsorted(dst[into], ends), link[into].astype(np.int32), src[into].astype(np.int32), group_ptr, group_switch,
    )  # fmt: skip

    divisor = np.cumprod([1, max(1, nic_up.shape[1]), *widths])
    sample = set_idx[set_ptr[:-1]]
    lower = np.minimum(topology.vertex_tier[topology.link_src[sample]], topology.vertex_tier[topology.link_dst[sample]])
    return Routes(
        mode=mode,
        seed=seed,
        n_groups=group_ptr.size - 1,
        nic_group=nic_group,
        nic_order=nic_order,
        nic_up=np.where(working, nic_up, -1).astype(np.int32),
        nic_down=np.where(working, topology.link_reverse[nic_up], -1).astype(np.int32),
        nic_leaf=nic_leaf.astype(np.int32),
        hop_dist=hop_dist,
        hop_set=hop_set,
        set_ptr=set_ptr,
        set_idx=set_idx,
        set_div=divisor[lower].astype(np.int64),
    )


def paths(topology: Topology, table: Routes, src_nic: Array, dst_nic: Array, qp: Array) -> tuple[Array, Array]:
    """Return (ptr, links) of `kernels.routing.paths`; raises `InputError` that names the first pair of NICs without a way."""
    src_nic, dst_nic, qp = (np.ascontiguousarray(x, np.int64) for x in (src_nic, dst_nic, qp))
    ptr, links = routing.paths(topology, table, src_nic, dst_nic, qp)
    cut_off = np.flatnonzero((np.diff(ptr) == 0) & (src_nic != dst_nic))
    if cut_off.size:
        raise InputError(_unreachable(topology, int(src_nic[cut_off[0]]), int(dst_nic[cut_off[0]]), cut_off.size))
    return ptr, links


def _unreachable(topology: Topology, src: int, dst: int, count: int) -> str:
    nic_0 = routing.first_nic(topology)
    planes = topology.vertex_plane[nic_0 + src], topology.vertex_plane[nic_0 + dst]
    why = (
        "no cables join them (spines: shared, or three tiers, join rails)"
        if planes[0] != planes[1]
        else "every way between them has failed"
    )
    more = f" (and {count - 1:,} more pairs)" if count > 1 else ""
    return (
        f"topology: expected a way from {vertex_name(topology, nic_0 + src)} to {vertex_name(topology, nic_0 + dst)}{more}; got none: {why}"
    )


def _by_nic(mask: Array, nic: Array, n_nics: int) -> Array:
    """int[n_nics, ports]: the masked links of each NIC in order, -1 where it has fewer than others."""
    link = np.flatnonzero(mask)
    link = link[np.argsort(nic[link], kind="stable")]
    owner = nic[link]
    column = np.arange(link.size) - np.searchsorted(owner, owner)
    table = np.full((n_nics, int(column.max(initial=0)) + 1), -1, np.int64)
    table[owner, column] = link
    return table


def _order(leaf: Array) -> Array:
    """Destination numbers: NICs of a leaf are consecutive, and every leaf starts at a multiple of the fullest leaf's NICs."""
    first = leaf[:, 0]
    by_leaf = np.argsort(first, kind="stable")
    position = np.arange(first.size) - np.searchsorted(first[by_leaf], first[by_leaf])
    order = np.empty(first.size, np.int32)
    order[by_leaf] = np.maximum(first[by_leaf], 0) * (int(position.max(initial=0)) + 1) + position
    return order


def _ports_up(topology: Topology) -> list[int]:
    """The most links up that a switch of tiers 1, 2 and 3 has, failed ones included; 1 where it has none."""
    tier, widths = topology.vertex_tier, []
    for t in (1, 2, 3):
        up = (tier[topology.link_src] == t) & (tier[topology.link_dst] > t)
        widths.append(max(1, int(np.bincount(topology.link_src[up]).max(initial=1))))
    return widths


def _groups(nic_leaf: Array) -> tuple[Array, Array, Array]:
    """Return (nic_group int32[n_nics], group_ptr, group_switch): NICs with the same set of leaves are one group, in order of leaf."""
    rows, group = np.unique(np.sort(nic_leaf, axis=1), axis=0, return_inverse=True)
    first_seen = rows >= 0
    first_seen[:, 1:] &= rows[:, 1:] != rows[:, :-1]
    ptr = np.concatenate([[0], np.cumsum(first_seen.sum(axis=1))]).astype(np.int64)
    return group.reshape(-1).astype(np.int32), ptr, rows[first_seen].astype(np.int32)
