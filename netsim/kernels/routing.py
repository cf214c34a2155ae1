"""Which link comes next, and whole paths: the reading side of `structs.Routes`.

Among n equal candidates the choice depends on the mode:

    STATIC  hash(seed, switch, source NIC, destination NIC)              one path per pair of NICs
    ECMP    hash(seed, switch, source NIC, destination NIC, queue pair)  one path per connection; the switch is part of the hash, so that
                                                                         consecutive tiers do not choose alike (no polarisation)
    DMODK   (destination number // divisor of the tier) mod n            Zahavi, "D-Mod-K routing providing non-blocking traffic for shift
                                                                         permutations on real life fat trees", 2010

A hash h in [0, 2^32) picks candidate h n / 2^32. The divisor of a tier is the product of the choices below it (ports of a NIC, times ports
up of a leaf, times ...), the same for the way up and for parallel cables on the way down; candidates are in order of peer, then of cable.
A NIC with several ports chooses among those whose leaf is nearest to the destination. Links are numbers of `Topology`.
"""

import numpy as np
from numba import njit

from netsim.kernels.hashing import mix_word
from netsim.kernels.structs import Array, Routes, Topology

STATIC, DMODK, ECMP = 0, 1, 2
MODES = {"static": STATIC, "dmodk": DMODK, "ecmp": ECMP}


@njit(cache=True)
def choose(routes: Routes, n: int, divisor: int, switch: int, src_nic: int, dst_nic: int, qp: int) -> int:
    """Return which of `n` candidates is taken at `switch` (-1: at the source NIC)."""
    if n == 1:
        return 0
    if routes.mode == DMODK:
        return (routes.nic_order[dst_nic] // divisor) % n
    h = mix_word(np.uint64(routes.seed) ^ (np.uint64(switch + 1) << np.uint64(32)))
    h = mix_word(h ^ (np.uint64(src_nic) << np.uint64(32)) ^ np.uint64(dst_nic))
    if routes.mode == ECMP:
        h = mix_word(h ^ np.uint64(qp))
    return int(np.int64(((h >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)))


@njit(cache=True)
def first_hop(routes: Routes, src_nic: int, dst_nic: int, qp: int) -> int:
    """Return the link on which NIC `src_nic` sends to NIC `dst_nic`; -1 where there is no way."""
    group, best, count = routes.nic_group[dst_nic], 1 << 14, 0
    ports = routes.nic_up.shape[1]
    for p in range(ports):
        leaf = routes.nic_leaf[src_nic, p]
        dist = routes.hop_dist[leaf * routes.n_groups + group] if leaf >= 0 else -1
        if dist >= 0 and dist < best:
            best, count = dist, 1
        elif dist == best:
            count += 1
    if count == 0:
        return -1
    pick = choose(routes, count, 1, -1, src_nic, dst_nic, qp)
    for p in range(ports):
        leaf = routes.nic_leaf[src_nic, p]
        if leaf >= 0 and routes.hop_dist[leaf * routes.n_groups + group] == best:
            if pick == 0:
                return routes.nic_up[src_nic, p]
            pick -= 1
    return -1


@njit(cache=True)
def last_hop(routes: Routes, switch: int, src_nic: int, dst_nic: int, qp: int) -> int:
    """Return the link from leaf `switch` to NIC `dst_nic`, which hangs on it."""
    count = 0
    for p in range(routes.nic_leaf.shape[1]):
        count += routes.nic_leaf[dst_nic, p] == switch
    pick = choose(routes, count, 1, switch, src_nic, dst_nic, qp)
    for p in range(routes.nic_leaf.shape[1]):
        if routes.nic_leaf[dst_nic, p] == switch:
            if pick == 0:
                return routes.nic_down[dst_nic, p]
            pick -= 1
    return -1


@njit(cache=True)
def candidates(routes: Routes, switch: int, dst_nic: int) -> tuple[int, int]:
    """Return (first, last) so that `set_idx[first:last]` are all equal links onwards.

    There are none on the destination's own leaf (see `last_hop`) and where there is no way.
    """
    k = routes.hop_set[switch * routes.n_groups + routes.nic_group[dst_nic]]
    if k < 0:
        return 0, 0
    return routes.set_ptr[k], routes.set_ptr[k + 1]


@njit(cache=True)
def next_hop(routes: Routes, switch: int, src_nic: int, dst_nic: int, qp: int) -> int:
    """Return the link on which switch `switch` (0 .. n_switches - 1) forwards; -1 where there is no way."""
    row = switch * routes.n_groups + routes.nic_group[dst_nic]
    if routes.hop_dist[row] == 1:
        return last_hop(routes, switch, src_nic, dst_nic, qp)
    k = routes.hop_set[row]
    if k < 0:
        return -1
    first, n = routes.set_ptr[k], routes.set_ptr[k + 1] - routes.set_ptr[k]
    return routes.set_idx[first + choose(routes, n, routes.set_div[k], switch, src_nic, dst_nic, qp)]


@njit(cache=True)
def first_switch(topology: Topology) -> int:
    """Return the vertex of switch 0."""
    return topology.vertex_kind.size - topology.n_switches


@njit(cache=True)
def paths(topology: Topology, routes: Routes, src_nic: Array, dst_nic: Array, qp: Array) -> tuple[Array, Array]:
    """Return (ptr int64[n + 1], links int32[...]): path i is `links[ptr[i]:ptr[i + 1]]`, from NIC to NIC.

    It is empty from a NIC to itself and where there is no way.
    """
    n, switch_0 = src_nic.size, first_switch(topology)
    ptr, start = np.zeros(n + 1, np.int64), np.empty(n, np.int32)
    for i in range(n):
        start[i] = -1 if src_nic[i] == dst_nic[i] else first_hop(routes, src_nic[i], dst_nic[i], qp[i])
        ptr[i + 1] = ptr[i]
        if start[i] >= 0:
            leaf = topology.link_dst[start[i]] - switch_0
            ptr[i + 1] += 1 + routes.hop_dist[leaf * routes.n_groups + routes.nic_group[dst_nic[i]]]
    links = np.empty(ptr[n], np.int32)
    for i in range(n):
        link = start[i]
        for j in range(ptr[i], ptr[i + 1]):
            links[j] = link
            if j + 1 < ptr[i + 1]:
                link = next_hop(routes, topology.link_dst[link] - switch_0, src_nic[i], dst_nic[i], qp[i])
    return ptr, links


@njit(cache=True)
def first_nic(topology: Topology) -> int:
    """Return the vertex of NIC 0."""
    return topology.n_gpus + topology.n_nodes * topology.islands


def island_of(topology: Topology, gpu: Array) -> Array:
    """Return the island of GPUs, numbered over all nodes: its scale-up switch is vertex n_gpus + island."""
    return gpu // (topology.gpus_per_node // topology.islands)


def between_links(topology: Topology, src: Array, dst: Array) -> Array:
    """Return the links that join islands `src` and `dst` of one node, numbers over all nodes as `island_of` has them; -1 from one to
    itself.
    """
    others = topology.islands - 1
    first = 2 * (topology.n_gpus + topology.gpu_nic_idx.size)
    return np.where(src == dst, -1, first + src * others + dst % topology.islands - (dst > src))


def scale_up_links(topology: Topology, src_gpu: Array, dst_gpu: Array) -> tuple[Array, Array, Array]:
    """Return the links GPU -> scale-up switch, island -> island (-1 where both are of one), scale-up switch -> GPU, of GPUs of one node."""
    across = between_links(topology, island_of(topology, src_gpu), island_of(topology, dst_gpu))
    return src_gpu, across, topology.n_gpus + dst_gpu


@njit(cache=True)
def _bus(topology: Topology, gpu: int, nic: int) -> int:
    for i in range(topology.gpu_nic_ptr[gpu], topology.gpu_nic_ptr[gpu + 1]):
        if topology.gpu_nic_idx[i] == nic:
            return 2 * topology.n_gpus + i
    return -1


@njit(cache=True)
def host_links(topology: Topology, gpu: int, nic: int) -> tuple[int, int]:
    """Return the bus links that data from `gpu` to `nic` (of one node) load; the second is -1 where the NIC is near the GPU.

    To a NIC that is not near, the data cross the bus of the GPU and that of the NIC. From NIC to GPU: `link_reverse` of each.
    """
    near = _bus(topology, gpu, nic)
    if near >= 0:
        return near, -1
    own = 2 * topology.n_gpus + topology.gpu_nic_ptr[gpu]
    return own, _bus(topology, topology.nic_gpu[nic], nic)
