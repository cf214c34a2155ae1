"""Routes over every kind of fabric: who reaches whom, over how many links, how evenly, and around what has failed."""

from dataclasses import replace

import numpy as np
import pytest

import topologies
from netsim.config.topology import Edge, Fabric, Fault, Link, Switch, Tier
from netsim.errors import InputError
from netsim.kernels.structs import Topology
from tests.test_topologies_builders import FABRICS, SMALL

FAT_TREE_8 = Fabric(builder="fat_tree", nodes=128, gpus_per_node=1, switch=SMALL)


def all_pairs(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    src, dst = (x.ravel() for x in np.meshgrid(np.arange(topology.n_nics), np.arange(topology.n_nics), indexing="ij"))
    plane = topology.vertex_plane[topology.n_gpus + topology.n_nodes :]
    keep = (src != dst) & (plane[src] == plane[dst])
    return src[keep], dst[keep]


@pytest.mark.parametrize("mode", ["ecmp", "static", "dmodk"])
@pytest.mark.parametrize("name", FABRICS)
def test_every_pair_of_a_plane_is_joined_up_then_down(name: str, mode: str) -> None:
    topology = topologies.build(FABRICS[name])
    table = topologies.routes(topology, FABRICS[name], mode=mode)
    src, dst = all_pairs(topology)
    ptr, links = topologies.paths(topology, table, src, dst, np.zeros(src.size))
    length = np.diff(ptr)
    back_ptr, _ = topologies.paths(topology, table, dst, src, np.zeros(src.size))
    assert np.array_equal(np.diff(back_ptr), length)
    for i in range(src.size):
        tiers = [0, *topology.vertex_tier[topology.link_dst[links[ptr[i] : ptr[i + 1]]]].tolist()]
        top = max(tiers)
        assert tiers == [*range(top), *range(top, -1, -1)] and length[i] == 2 * top


def test_lengths_in_a_fat_tree() -> None:
    """k = 8: of 127 others 3 are on the same leaf, 12 in the same pod, 112 across a core; latency is L d + (L - 1) w."""
    topology = topologies.build(FAT_TREE_8)
    src, dst = all_pairs(topology)
    ptr, links = topologies.paths(topology, topologies.routes(topology, FAT_TREE_8), src, dst, src)
    length = np.diff(ptr)
    assert np.bincount(length)[[2, 4, 6]].tolist() == [128 * 3, 128 * 12, 128 * 112]
    latency = np.add.reduceat(topology.link_latency[links], ptr[:-1])
    assert np.array_equal(latency, length * 500_000 + (length - 1) * 300_000)


SHIFTED = {
    "fat_tree": (FAT_TREE_8, 1),
    "leaf_spine, parallel cables": (Fabric(builder="leaf_spine", nodes=128, gpus_per_node=1, switch=Switch(radix=32)), 1),
    "rails": (FABRICS["rails"], 4),
    "rails, three tiers": (FABRICS["rails_3_tiers"], 2),
    "rails, three tiers, shared spines": (FABRICS["rails_3_tiers_shared"], 2),
    "single ToR": (FABRICS["single_tor"], 2),
    "dual plane": (FABRICS["dual_plane"], 2),
}


@pytest.mark.parametrize("name", SHIFTED)
def test_dmodk_carries_every_shift_without_collision(name: str) -> None:
    """Zahavi 2010: on a tree with full bisection, D-mod-k puts at most one flow of a shift permutation on any link."""
    fabric, step = SHIFTED[name]
    topology = topologies.build(fabric)
    table = topologies.routes(topology, fabric, mode="dmodk")
    src = np.arange(topology.n_nics)
    for shift in range(step, topology.n_nics, step):
        _, links = topologies.paths(topology, table, src, (src + shift) % topology.n_nics, np.zeros(src.size))
        assert np.bincount(links).max() == 1, f"shift by {shift}"


def test_ecmp_spreads_evenly_at_every_tier() -> None:
    fabric = Fabric(builder="fat_tree", nodes=1024, gpus_per_node=1, switch=Switch(radix=16))
    topology = topologies.build(fabric)
    rng = np.random.default_rng(5)
    n = 200_000
    src, dst, qp = rng.integers(0, 512, n), rng.integers(512, 1024, n), rng.integers(0, 64, n)
    _, links = topologies.paths(topology, topologies.routes(topology, fabric), src, dst, qp)
    load, up = (
        np.bincount(links, minlength=topology.link_src.size),
        topology.vertex_tier[topology.link_src] < topology.vertex_tier[topology.link_dst],
    )
    for tier in (3, 4):
        mine = load[(topology.link_tier == tier) & up]
        mine = mine[: mine.size // 2]
        # 512 links with 391 flows each on average: all within five standard deviations, and none wider spread than a binomial's
        assert np.all(np.abs(mine - n / 512) < 5 * np.sqrt(n / 512))
        assert 0.8 < mine.std() / np.sqrt(n / 512) < 1.2


def test_queue_pairs_take_different_paths_and_seeds_differ() -> None:
    topology = topologies.build(FAT_TREE_8)
    zeros = np.zeros(64, int)
    _, links = topologies.paths(topology, topologies.routes(topology, FAT_TREE_8), zeros, zeros + 127, np.arange(64))
    assert np.unique(links[1::6]).size == 4
    again = topologies.paths(topology, topologies.routes(topology, FAT_TREE_8), zeros, zeros + 127, np.arange(64))[1]
    other = topologies.paths(topology, topologies.routes(topology, FAT_TREE_8, seed=1), zeros, zeros + 127, np.arange(64))[1]
    assert np.array_equal(links, again) and not np.array_equal(links, other)


def test_dual_plane_uses_both_ports_and_never_crosses() -> None:
    fabric = FABRICS["dual_plane"]
    topology = topologies.build(fabric)
    ptr, links = topologies.paths(topology, topologies.routes(topology, fabric), np.zeros(64), np.full(64, 14), np.arange(64))
    first, last = links[ptr[:-1]], links[ptr[1:] - 1]
    ports = topologies.routes(topology, fabric)
    up, down = ports.nic_up[0].tolist(), ports.nic_down[14].tolist()
    assert {up.index(k) for k in first} == {0, 1}
    assert [up.index(k) for k in first] == [down.index(k) for k in last]


def test_failed_links_are_avoided() -> None:
    fabric = replace(FAT_TREE_8, faults=(Fault("leaf 0 -> spine 0"), Fault("spine 1 -> core 4"), Fault("leaf 31 -> spine 31")))
    topology = topologies.build(fabric)
    assert (topology.link_rate == 0).sum() == 6
    src, dst = all_pairs(topology)
    for mode in ("ecmp", "dmodk"):
        ptr, links = topologies.paths(topology, topologies.routes(topology, fabric, mode=mode), src, dst, src + dst)
        assert np.all(topology.link_rate[links] > 0)
        assert np.bincount(np.diff(ptr))[[2, 4, 6]].tolist() == [128 * 3, 128 * 12, 128 * 112]


def test_one_dead_port_of_a_dual_plane_nic_leaves_the_other() -> None:
    plain = FABRICS["dual_plane"]
    fabric = replace(plain, faults=(Fault("nic n0.0 -> leaf r0.s0"),))
    topology = topologies.build(fabric)
    table = topologies.routes(topology, fabric)
    assert (table.nic_up[0] >= 0).tolist() == [False, True]
    for src, dst in ((0, 14), (14, 0)):
        _, links = topologies.paths(topology, table, np.full(32, src), np.full(32, dst), np.arange(32))
        assert np.all(topology.link_rate[links] > 0)


def test_pairs_without_a_way_are_named() -> None:
    fabric = FABRICS["rails"]
    topology = topologies.build(fabric)
    with pytest.raises(InputError, match=r"from nic n0\.1 to nic n1\.2 \(and 1 more pairs\); got none: no cables join them"):
        topologies.paths(topology, topologies.routes(topology, fabric), np.array([0, 1, 2]), np.array([4, 6, 7]), np.zeros(3))
    dead = replace(fabric, faults=(Fault("nic n3.1 -> leaf r1.s0"),))
    topology = topologies.build(dead)
    with pytest.raises(InputError, match=r"from nic n0\.1 to nic n3\.1; got none: every way between them has failed"):
        topologies.paths(topology, topologies.routes(topology, dead), np.array([0, 1]), np.array([4, 13]), np.zeros(2))
    assert topologies.paths(topology, topologies.routes(topology, dead), np.array([1]), np.array([1]), np.zeros(1))[0].tolist() == [0, 0]


def test_parallel_cables_of_a_leaf_to_one_nic_are_all_used() -> None:
    fabric = Fabric(
        builder="custom", nodes=2, gpus_per_node=1, edges=(Edge("nic n0.0", "leaf 0", count=2), Edge("nic n1.0", "leaf 0", count=3))
    )
    topology = topologies.build(fabric)
    _, links = topologies.paths(topology, topologies.routes(topology, fabric), np.zeros(60), np.ones(60), np.arange(60))
    assert np.unique(links[::2]).size == 2 and np.unique(links[1::2]).size == 3


def test_large_fabrics_stay_compact() -> None:
    """8,192 GPUs, three tiers: the candidate lists are far fewer than rows."""
    fabric = Fabric(nodes=1024, tiers=3, link=Link(), leaf=Tier())
    topology = topologies.build(fabric)
    table = topologies.routes(topology, fabric)
    assert table.hop_set.size == 640 * 256 and table.set_idx.size < table.hop_set.size / 2
