"""Leaf-spine fabric: NICs fill the leaves port by port, in order of node, whatever their rail; two tiers, or three with pods of leaves."""

import numpy as np

from netsim.config.topology import Fabric
from netsim.kernels.structs import Topology
from topologies.clos import Leaves, clos, leaves_per_pod, ports


def build(fabric: Fabric) -> Topology:
    """Return the fabric."""
    return clos(fabric, pooled_leaves(fabric, np.arange(fabric.nodes * fabric.nics) // ports(fabric, 1)[0]))


def pooled_leaves(fabric: Fabric, leaf_of_nic: np.ndarray) -> Leaves:
    """Return leaves that serve all rails, in pods of `fabric.pod` leaves (three tiers) or in one group (two tiers)."""
    n_leaves = int(leaf_of_nic.max()) + 1
    per_pod = n_leaves if fabric.tiers == 2 else leaves_per_pod(fabric)
    group = np.arange(n_leaves) // per_pod
    return Leaves(of_nic=leaf_of_nic[:, None], rail=np.full(n_leaves, -1), group=group, zone=np.zeros(group[-1] + 1, np.int64))
