"""NCCL's variables: those that change times do, those that cannot are accepted with a reason."""

from dataclasses import fields

import numpy as np
import pytest

import topologies
from netsim.cli.topo import fabric_of
from netsim.collectives import Communicator, choose, idle_us, plan, platform_of
from netsim.collectives.platform import Platform
from netsim.config.nccl import NO_EFFECT, Nccl
from tests.collectives_cases import A100, H100, comm, cross_rail_bytes, nic_bytes, nvlink_bytes

RACK = Platform("blackwell", 72, 72, 100e9, "arm", 900e9, 6)


def test_every_variable_without_effect_is_a_field_and_has_a_reason():
    names = {f.name for f in fields(Nccl)}
    assert set(NO_EFFECT) <= names and all(NO_EFFECT.values())
    assert plan("all_reduce", 2**20, comm(2), H100, Nccl(NCCL_TOPO_FILE="a.xml")).launch_ps > 0


def test_sends_relay_by_level():
    """Level 0: over the sender's own NIC, across rails; 2: through the GPU on the peer's rail; 1: like 2, but a NIC on the sender's own
    PCIe switch is used without a relay, which only DGX A100 has."""
    levels = [[plan("all_to_all", 2**24, comm(2), m, Nccl(NCCL_P2P_PXN_LEVEL=n)) for n in range(3)] for m in (H100, A100)]
    for crossing, direct, relayed in levels:
        assert cross_rail_bytes(crossing) > 0 == cross_rail_bytes(direct) == cross_rail_bytes(relayed)
    (_, one, two), (_, near, far) = levels
    assert (nvlink_bytes(one, 16) == nvlink_bytes(two, 16)).all()
    assert (nvlink_bytes(near, 16) < nvlink_bytes(far, 16)).all() and (nic_bytes(near, comm(2)) == nic_bytes(far, comm(2))).all()


@pytest.mark.parametrize("variables", [{"NCCL_P2P_DISABLE": 1}, {"NCCL_P2P_LEVEL": "LOC"}])
def test_without_p2p_a_node_is_as_fast_as_its_bus(variables):
    off, size = Nccl(**variables), 2**28
    for nodes in (1, 2):
        choice = choose("all_reduce", size, comm(nodes), H100, off)
        assert choice.algorithm in ("ring", "tree") and choice.protocol != "ll128"
        slow, fast = (idle_us(plan("all_reduce", size, comm(nodes), H100, n)) for n in (off, Nccl()))
        assert slow > 3 * fast and size / slow / 1e3 < 48
    assert cross_rail_bytes(plan("all_to_all", size, comm(2), H100, off)) > 0, "no relay without NVLink"


def test_trays_are_nodes_without_multi_node_nvlink():
    ranks = Communicator((0,) * 16, tuple(range(16)))
    together, apart = (plan("all_reduce", 2**26, ranks, RACK, Nccl(NCCL_MNNVL_ENABLE=n)) for n in (2, 0))
    assert (together.edge_nic_src < 0).all() and (apart.edge_nic_src >= 0).any()
    assert idle_us(apart) > 1.5 * idle_us(together)
    inside = apart.edge_nic_src < 0
    assert (np.array(apart.edge_src[inside]) // 4 == np.array(apart.edge_dst[inside]) // 4).all()


def test_the_cpu_is_that_of_the_topology_unless_set():
    fabric = fabric_of("dgx_a100", ["nodes=20"])
    topology = topologies.build(fabric)
    assert platform_of(topology, "ampere", fabric, Nccl()).cpu == "amd"
    assert platform_of(topology, "ampere", fabric, Nccl(cpu="intel")).cpu == "intel"
