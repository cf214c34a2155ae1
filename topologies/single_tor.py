"""Single-ToR fabric: all NICs of a node, whatever their rail, hang on one top-of-rack switch that a group of nodes shares.

The classic data-centre network that Qian et al., SIGCOMM 2024, call DCN+ when it is built for training: no rails, traffic leaves the rack
through the aggregation tier (here: spines).
"""

import numpy as np

from netsim.config.topology import Fabric
from netsim.errors import InputError
from netsim.kernels.structs import Topology
from topologies.clos import clos, ports
from topologies.leaf_spine import pooled_leaves


def build(fabric: Fabric) -> Topology:
    """Return the fabric with `fabric.segment` nodes per ToR."""
    down, _ = ports(fabric, 1)
    segment = fabric.segment or down // fabric.nics
    if segment < 1 or segment * fabric.nics > down:
        raise InputError(
            f"topology.segment: expected nodes x {fabric.nics} NICs within the {down} ports down of a ToR; got {max(segment, 1)} nodes"
        )
    tor = np.repeat(np.arange(fabric.nodes) // segment, fabric.nics)
    return clos(fabric, pooled_leaves(fabric, tor))
