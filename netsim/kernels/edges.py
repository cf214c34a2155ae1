"""Links from GPU to GPU through the network: host bus, NIC, switches, NIC, host bus.

A bus stands for two slots in a row, that of the GPU and that of the NIC. What a GPU sends by another's NIC takes its own slot and that of
the NIC. Where GPUs of a PCIe switch send by each other's NICs, as rings on DGX A100 do, every slot is taken once, and so is every bus: the
one of the NIC is loaded, not also that of the GPU, whose share its neighbour has not used.
"""

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
    links = np.empty(path.size + 2 * n, np.int32)
    at = 0
    for i in range(n):
        if path_ptr[i + 1] > path_ptr[i]:
            near, far = routing.host_links(topology, src_gpu[i], src_nic[i])
            links[at] = far if far >= 0 else near
            at += 1
            for j in range(path_ptr[i], path_ptr[i + 1]):
                links[at] = path[j]
                at += 1
            near, far = routing.host_links(topology, dst_gpu[i], dst_nic[i])
            links[at] = topology.link_reverse[far if far >= 0 else near]
            at += 1
        ptr[i + 1] = at
    return ptr, links[:at]
