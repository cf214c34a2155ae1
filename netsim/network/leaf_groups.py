"""Which rank plays which vertex of the network: whole planes, or where there are more ranks than planes, leaf groups.

A leaf group is what links from NICs to switches tie together (a leaf and its NICs; with two ports per NIC, a pair of leaves), and what
calls tie together: a GPU and the NICs that it uses, GPUs that pass messages on inside a node. It is never cut, so that all that crosses
ranks takes the way between a leaf and a spine or longer. Groups are dealt in stretches: rail by rail, neighbours together, for that is how
rings go. A switch above follows the leaves below it if most of them have one owner, else it goes to who has least to do.
"""

import numpy as np

from netsim.kernels.routing import first_nic, island_of
from netsim.kernels.structs import NIC, SWITCH, Array, Plan, Topology

PAIRS = np.zeros((0, 2), np.int64)


def owners(topology: Topology, planes: Array, ranks: Array, pairs: Array = PAIRS, least_nics: int = 1) -> Array:
    """int64[V]: rank of every vertex of `planes`; -1 for others.

    `ranks` share these planes, or the first of them, if others would have fewer than `least_nics` NICs. `pairs`: int64[n, 2] vertices that
    must not be separated.
    """
    top = topology
    inside = np.isin(top.vertex_plane, planes)
    inside[pairs.ravel()] = True
    n_nics = int((inside & (top.vertex_kind == NIC)).sum())
    n = max(1, min(len(ranks), n_nics // max(least_nics, 1)))
    owner = np.full(top.vertex_kind.size, -1, np.int64)
    if n == 1:
        owner[inside] = ranks[0]
        return owner
    group = _tied(top, pairs)
    part, load = _stretches(top, inside, group, n)
    _switches_above(top, inside, part, load)
    owner[inside] = ranks[part[inside]]
    return owner


def shared_planes(topology: Topology, n_ranks: int, least_nics: int = 1) -> Array:
    """int64[V]: rank of every NIC and switch, where nothing but packets ties them together: plane p goes to ranks p, p + planes, ..."""
    n_planes = int(topology.vertex_plane.max()) + 1
    every = [owners(topology, np.array([p]), np.arange(p % n_ranks, n_ranks, n_planes), PAIRS, least_nics) for p in range(n_planes)]
    return np.maximum.reduce(every)


def pairs_of(topology: Topology, plan: Plan, members: Array) -> Array:
    """int64[n, 2] vertices that a call ties together."""
    top, src, dst = topology, members[plan.edge_src].astype(np.int64), members[plan.edge_dst].astype(np.int64)
    nic_0, outside = first_nic(top), plan.edge_nic_src >= 0
    ends = [(gpu, gpu // top.gpus_per_node * top.nics_per_node + nic) for gpu, nic in ((src, plan.edge_nic_src), (dst, plan.edge_nic_dst))]
    found = [np.stack([gpu, nic_0 + nic], axis=1)[outside] for gpu, nic in ends]
    within = ~outside
    found.append(np.stack([src, dst], axis=1)[within])
    found.append(np.stack([src, top.n_gpus + island_of(top, src)], axis=1)[within])
    found.append(_across(top, src[within], dst[within]))
    after = np.repeat(np.arange(src.size), np.diff(plan.dep_ptr))
    found.append(np.stack([dst[plan.dep_idx], src[after]], axis=1))
    every = np.concatenate(found)
    return np.unique(every[every[:, 0] != every[:, 1]], axis=0)


def _across(top: Topology, src: Array, dst: Array) -> Array:
    """int64[n, 2] vertices that messages from island to island tie together: both islands, and the GPU that plays the port between them."""
    a, b = island_of(top, src), island_of(top, dst)
    a, b = a[a != b], b[a != b]
    ports = np.stack([a * (top.gpus_per_node // top.islands), top.n_gpus + a], axis=1)
    return np.concatenate([np.stack([top.n_gpus + a, top.n_gpus + b], axis=1), ports])


def components(n: int, pairs: Array) -> Array:
    """int64[n]: the least number that each number is connected to."""
    label, (a, b) = np.arange(n), pairs.T
    while True:
        before = label.copy()
        low = np.minimum(label[a], label[b])
        np.minimum.at(label, a, low)
        np.minimum.at(label, b, low)
        label = label[label]
        if (label == before).all():
            return label


def _tied(top: Topology, pairs: Array) -> Array:
    """Leaf group of every vertex, named by its first vertex."""
    kind = top.vertex_kind
    cable = (kind[top.link_src] == NIC) & (kind[top.link_dst] == SWITCH)
    return components(kind.size, np.concatenate([pairs, np.stack([top.link_src[cable], top.link_dst[cable]], axis=1)]))


def _stretches(top: Topology, inside: Array, group: Array, n: int) -> tuple[Array, Array]:
    """Part of every vertex in a group with NICs, -1 for others; and the ports that each part has to play."""
    nics = np.flatnonzero(inside & (top.vertex_kind == NIC))
    ports = np.bincount(top.link_src, (top.vertex_kind[top.link_src] >= NIC).astype(float), minlength=group.size) * inside
    names, first = np.unique(group[nics], return_index=True)
    number = nics[first] - first_nic(top)
    names = names[np.lexsort((number, number % top.nics_per_node))]
    weight = np.bincount(group, ports, minlength=group.size)[names]
    chosen = ((np.cumsum(weight) - weight / 2) * n / weight.sum()).astype(np.int64)
    part_of = np.full(group.size, -1, np.int64)
    part_of[names] = chosen
    return np.where(inside, part_of[group], -1), np.bincount(chosen, weight, minlength=n)


def _switches_above(top: Topology, inside: Array, part: Array, load: Array) -> None:
    """Deal the switches without NICs, from the bottom up."""
    order = np.argsort(top.link_src, kind="stable")
    ptr = np.searchsorted(top.link_src[order], np.arange(part.size + 1))
    for v in np.flatnonzero(inside & (top.vertex_kind == SWITCH) & (part < 0)).tolist():
        near = part[top.link_dst[order[ptr[v] : ptr[v + 1]]]]
        below = np.bincount(near[near >= 0], minlength=load.size)
        best = int(np.argmax(below))
        if 2 * below[best] <= below.sum():
            best = int(np.argmin(load))
        part[v] = best
        load[best] += ptr[v + 1] - ptr[v]
    rest = inside & (part < 0)
    assert (top.vertex_kind[rest] < NIC).all() or not rest.any(), np.flatnonzero(rest)
    part[rest] = 0

