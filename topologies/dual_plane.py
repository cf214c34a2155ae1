"""Dual-plane fabric: every NIC has `planes` ports, each into a rail-optimised network of its own, so that a dead leaf costs half the rate.

After the dual-plane, dual-ToR design of Qian et al., "Alibaba HPN: A Data Center Network for Large Language Model Training", SIGCOMM 2024.
`link.rate` is the rate of one port.
"""

from netsim.config.topology import Fabric
from netsim.kernels.structs import Topology
from topologies.clos import clos
from topologies.rail_optimised import rail_leaves


def build(fabric: Fabric) -> Topology:
    """Return `fabric.planes` rail-optimised networks that share only the NICs."""
    return clos(fabric, rail_leaves(fabric, planes=fabric.planes))
