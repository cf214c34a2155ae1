"""What can be simulated apart: planes, and partitions of them."""

import numpy as np

from netsim.kernels.components import components
from netsim.kernels.routing import first_nic
from netsim.kernels.structs import NIC, SWITCH, Array, Topology


def planes(topology: Topology) -> Array:
    """Return int16[V]: the connected component of NICs and switches, by cables whether they work or not; -1 for GPUs and scale-up."""
    network = topology.vertex_kind[topology.link_src] >= NIC
    network &= topology.vertex_kind[topology.link_dst] >= NIC
    first = first_nic(topology)
    a, b = topology.link_src[network] - first, topology.link_dst[network] - first
    label = components(topology.n_nics + topology.n_switches, a, b).astype(np.int16)
    return np.concatenate([np.full(first, -1, np.int16), label])


def partition(topology: Topology, n_parts: int) -> Array:
    """Return int32[V]: the part (0 .. n_parts - 1) that simulates each vertex.

    Whole planes go to parts, the largest first to the least loaded. With more parts than planes, planes are cut into runs of leaves with
    about as many NICs each; NICs follow their first leaf, upper switches are dealt evenly. GPUs follow their first NIC, the
    scale-up switches their first GPU. With more parts than leaves some parts stay empty of hosts.
    """
    part = np.zeros(topology.vertex_kind.size, np.int32)
    plane, n_planes = topology.vertex_plane, int(topology.vertex_plane.max()) + 1
    weight = np.bincount(plane[topology.vertex_kind == NIC], minlength=n_planes)
    heaviest_first = np.argsort(-weight, kind="stable")
    if n_parts <= n_planes:
        load, part_of_plane = np.zeros(n_parts, np.int64), np.empty(n_planes, np.int32)
        for p in heaviest_first:
            part_of_plane[p] = np.argmin(load)
            load[part_of_plane[p]] += max(weight[p], 1)
        network = plane >= 0
        part[network] = part_of_plane[plane[network]]
    else:
        shares = _shares(weight, n_parts)
        starts = np.concatenate([[0], np.cumsum(shares)])
        for p in range(n_planes):
            _cut(topology, part, np.flatnonzero(plane == p), int(starts[p]), int(shares[p]))
    nic_0 = first_nic(topology)
    part[: topology.n_gpus] = part[nic_0 + topology.gpu_nic_idx[topology.gpu_nic_ptr[:-1]]]
    part[topology.n_gpus : nic_0] = part[: topology.n_gpus : topology.gpus_per_node // topology.islands]
    return part


def _shares(weight: Array, n_parts: int) -> Array:
    """Parts per plane: one each, the rest one by one to the plane with the most NICs per part."""
    shares = np.ones(weight.size, np.int64)
    for _ in range(n_parts - weight.size):
        shares[np.argmax(weight / shares)] += 1
    return shares


def _cut(topology: Topology, part: Array, members: Array, first: int, count: int) -> None:
    """Give the vertices of one plane to parts first .. first + count - 1."""
    kind, tier = topology.vertex_kind[members], topology.vertex_tier[members]
    nics, leaves, uppers = members[kind == NIC], members[(kind == SWITCH) & (tier == 1)], members[(kind == SWITCH) & (tier > 1)]
    leaf_of_nic = _first_leaf(topology)[nics - first_nic(topology)]
    hung = np.bincount(np.searchsorted(leaves, leaf_of_nic), minlength=leaves.size) if leaves.size else np.zeros(0, np.int64)
    middle = np.cumsum(hung) - hung / 2
    part[leaves] = first + np.minimum((middle * count / max(1, hung.sum())).astype(np.int64), count - 1)
    part[nics] = part[leaf_of_nic]
    part[uppers] = first + np.arange(uppers.size) * count // max(1, uppers.size)


def _first_leaf(topology: Topology) -> Array:
    """int[n_nics]: the switch vertex at the end of each NIC's first cable, the NIC itself where it has none."""
    nic_0 = first_nic(topology)
    leaf = nic_0 + np.arange(topology.n_nics)
    up = np.flatnonzero((topology.vertex_kind[topology.link_src] == NIC) & (topology.vertex_kind[topology.link_dst] == SWITCH))[::-1]
    leaf[topology.link_src[up] - nic_0] = topology.link_dst[up]
    return leaf
