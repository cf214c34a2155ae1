"""Links from GPU to GPU through the network: host bus, NIC, switches, NIC, host bus."""

import numpy as np
from numba import njit

from netsim.kernels import routing
from netsim.kernels.structs import Array, Routes, Topology


@njit(cache=True)
def edge_links(
    topology: Topology, routes: Routes, src_gpu: Array, dst_gpu: Array, src_nic: Array, dst_nic: Array, qp: Array
) -> tuple[Array, Array]:
    """Return (ptr int64[n + 1], links int32[...]): everything that edge i loads; empty where the destination cannot be reached."""
    path_ptr, path = routing.paths(topology, routes, src_nic, dst_nic, qp)
    n = src_gpu.size
    ptr = np.zeros(n + 1, np.int64)
    links = np.empty(path.size + 4 * n, np.int32)
    at = 0
    for i in range(n):
        if path_ptr[i + 1] > path_ptr[i]:
            near, far = routing.host_links(topology, src_gpu[i], src_nic[i])
            links[at] = near
            at += 1
            if far >= 0:
                links[at] = far
                at += 1
            for j in range(path_ptr[i], path_ptr[i + 1]):
                links[at] = path[j]
                at += 1
            near, far = routing.host_links(topology, dst_gpu[i], dst_nic[i])
            links[at] = topology.link_reverse[near]
            at += 1
            if far >= 0:
                links[at] = topology.link_reverse[far]
                at += 1
        ptr[i + 1] = at
    return ptr, links[:at]
