"""Rail-only fabric: one switch per rail and nothing above, so that rails meet only in the scale-up links of the nodes.

After Wang et al., "Rail-only: A Low-Cost High-Performance Network for Training LLMs with Trillion Parameters", Hot Interconnects 2024.
Rails larger than one switch: builder rail_optimised with `spines: per_rail`.
"""

import numpy as np

from netsim.config.topology import Fabric
from netsim.errors import InputError
from netsim.kernels.structs import Topology
from topologies.clos import Leaves, clos


def build(fabric: Fabric) -> Topology:
    """Return the fabric; all ports of a switch look down."""
    radix, rails = fabric.leaf.radix or fabric.switch.radix, np.arange(fabric.nics)
    if fabric.nodes > radix:
        raise InputError(
            f"topology.nodes: expected at most {radix:,} nodes (one switch per rail with {radix} ports); got {fabric.nodes:,};"
            " builder rail_optimised with 'spines: per_rail' joins several switches of a rail"
        )
    return clos(fabric, Leaves(of_nic=np.tile(rails, fabric.nodes)[:, None], rail=rails, group=rails, zone=rails))
