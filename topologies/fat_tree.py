"""Three-tier k-ary fat tree (Al-Fares, Loukissas, Vahdat, SIGCOMM 2008), k = `switch.radix`.

It has k pods of k/2 leaves and k/2 spines, k^2/4 cores and k^3/4 ports, always complete; hosts fill it from the first port.
"""

from dataclasses import replace

import numpy as np

from netsim.config.topology import Fabric
from netsim.errors import InputError
from netsim.kernels.structs import Topology
from topologies.clos import Leaves, check_capacity, clos


def build(fabric: Fabric) -> Topology:
    """Return the fabric."""
    k = fabric.switch.radix
    if k < 2 or k % 2:
        raise InputError(f"topology.switch.radix: expected an even number of ports for a k-ary fat tree; got {k}")
    check_capacity(fabric, k**3 // 4, f"k^3 / 4 = {k}^3 / 4")
    leaf = np.arange(k * k // 2)
    of_nic = np.arange(fabric.nodes * fabric.nics) // (k // 2)
    leaves = Leaves(of_nic=of_nic[:, None], rail=np.full(leaf.size, -1), group=leaf // (k // 2), zone=np.zeros(k, np.int64))
    return clos(replace(fabric, tiers=3), leaves)
