"""Rail-optimised fat tree: NIC r of every node of a segment hangs on the leaf of rail r, so that traffic within a rail takes few hops.

Spines serve one rail each (then rails meet only in the cores, if there are three tiers, or in the nodes) or all rails (as NVIDIA cables a
DGX SuperPOD: reference architecture RA-11333, 2023). Also the lower part of `dual_plane`, which lays the same cables once per plane.
"""

import numpy as np

from netsim.config.topology import Fabric
from netsim.errors import InputError
from netsim.kernels.structs import Topology
from topologies.clos import Leaves, clos, leaves_per_pod, ports


def build(fabric: Fabric) -> Topology:
    """Return the fabric with one leaf per rail and segment."""
    return clos(fabric, rail_leaves(fabric, planes=1))


def rail_leaves(fabric: Fabric, planes: int) -> Leaves:
    """Return leaves in order of plane, spine group, rail and segment; port p of every NIC is in plane p."""
    down, _ = ports(fabric, 1)
    segment, rails = fabric.segment or down, fabric.nics
    if segment > down:
        raise InputError(f"topology.segment: expected at most the {down} ports down of a leaf; got {segment} nodes")
    n_segments = -(-fabric.nodes // segment)
    per_pod = _segments_per_pod(fabric, n_segments)

    # one row per leaf: plane, rail, segment
    plane, rail, seg = (x.ravel() for x in np.meshgrid(np.arange(planes), np.arange(rails), np.arange(n_segments), indexing="ij"))
    spine_rail = rail if fabric.spines == "per_rail" else np.zeros_like(rail)
    core_rail = spine_rail if fabric.cores == "per_rail" or fabric.tiers == 2 else np.zeros_like(rail)
    order = np.lexsort((seg, rail, seg // per_pod, spine_rail, core_rail, plane))
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)

    keys = np.stack([plane, core_rail, spine_rail, seg // per_pod])[:, order]
    group = np.concatenate([[0], np.cumsum(np.any(np.diff(keys, axis=1), axis=0))])
    zone_of_leaf = np.concatenate([[0], np.cumsum(np.any(np.diff(keys[:2], axis=1), axis=0))])
    zone = zone_of_leaf[np.searchsorted(group, np.arange(group[-1] + 1))]
    node_segment = np.arange(fabric.nodes) // segment
    of_nic = rank.reshape(planes, rails, n_segments)[:, :, node_segment].transpose(2, 1, 0).reshape(fabric.nodes * rails, planes)
    return Leaves(of_nic=of_nic, rail=rail[order], group=group, zone=zone)


def _segments_per_pod(fabric: Fabric, n_segments: int) -> int:
    if fabric.tiers == 2:
        return n_segments
    leaves = leaves_per_pod(fabric)
    per_pod = leaves if fabric.spines == "per_rail" else leaves // fabric.nics
    if per_pod < 1:
        raise InputError(f"topology.pod: expected at least the {fabric.nics} leaves of one segment under shared spines; got {leaves}")
    return per_pod
