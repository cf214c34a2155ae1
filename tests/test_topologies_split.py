"""Partitions: whole planes first, then runs of leaves."""

import numpy as np
import pytest

import topologies
from netsim.config.topology import Fabric
from netsim.kernels.structs import NIC, SWITCH, Topology
from tests.test_topologies_builders import FABRICS


def nic_counts(topology: Topology, n_parts: int) -> list[int]:
    part = topologies.partition(topology, n_parts)
    assert part.dtype == np.int32 and part.size == topology.vertex_kind.size and part.min() >= 0 and part.max() < n_parts
    return np.bincount(part[topology.vertex_kind == NIC], minlength=n_parts).tolist()


@pytest.mark.parametrize("n_parts", [1, 2, 3, 4, 8])
def test_planes_stay_whole_while_there_are_enough(n_parts: int) -> None:
    topology = topologies.build(Fabric())
    part = topologies.partition(topology, n_parts)
    for p in range(8):
        assert np.unique(part[topology.vertex_plane == p]).size == 1
    # 8 planes of 128 NICs: nobody has more than one plane more than another
    assert np.ptp(nic_counts(topology, n_parts)) <= (0 if 8 % n_parts == 0 else 128)
    cables = topology.link_tier >= 2
    assert np.array_equal(part[topology.link_src[cables]], part[topology.link_dst[cables]])


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("n_parts", [1, 2, 5, 16, 40])
def test_any_number_of_parts(name: str, n_parts: int) -> None:
    topology = topologies.build(FABRICS[name])
    assert sum(nic_counts(topology, n_parts)) == topology.n_nics
    part = topologies.partition(topology, n_parts)
    # a NIC is with its first leaf, a GPU with its first NIC
    up = np.flatnonzero((topology.vertex_kind[topology.link_src] == NIC) & (topology.vertex_kind[topology.link_dst] == SWITCH))
    nic, first = np.unique(topology.link_src[up], return_index=True)
    if n_parts > topology.vertex_plane.max() + 1:
        assert np.array_equal(part[nic], part[topology.link_dst[up[first]]])
    assert np.array_equal(part[: topology.n_gpus], part[nic][topology.gpu_nic_idx[topology.gpu_nic_ptr[:-1]]])


def test_a_plane_is_cut_by_leaves_evenly() -> None:
    topology = topologies.build(Fabric())
    assert nic_counts(topology, 32) == [32] * 32
    assert nic_counts(topology, 16) == [64] * 16
    shared = topologies.build(Fabric(spines="shared"))
    assert nic_counts(shared, 8) == [128] * 8
    part = topologies.partition(shared, 8)
    # by rail, since leaves are numbered rail by rail; the 16 spines are dealt out too
    rail = shared.vertex_rail
    assert all(np.unique(part[(shared.vertex_kind == NIC) & (rail == r)]).size == 1 for r in range(8))
    assert np.bincount(part[shared.vertex_tier == 2]).tolist() == [2] * 8
