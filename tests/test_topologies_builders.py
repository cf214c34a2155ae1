"""Counts of every builder against numbers worked out by hand or published, and what cannot be built."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topologies
from netsim.config.topology import Edge, Fabric, Host, Link, ScaleUp, Switch, Tier
from netsim.errors import InputError
from netsim.kernels.structs import GPU, NIC, SCALE_UP, SWITCH, Topology
from topologies.assemble import bus_pairs
from topologies.builders import builders

SMALL = Switch(radix=8)
FABRICS = {
    "rails": Fabric(nodes=16, gpus_per_node=4, switch=SMALL),
    "rails_shared": Fabric(nodes=4, gpus_per_node=4, switch=SMALL, spines="shared"),
    "rails_3_tiers": Fabric(nodes=32, gpus_per_node=2, switch=SMALL, tiers=3),
    "rails_3_tiers_apart": Fabric(nodes=32, gpus_per_node=2, switch=SMALL, tiers=3, cores="per_rail"),
    "rails_3_tiers_shared": Fabric(nodes=16, gpus_per_node=2, switch=SMALL, tiers=3, spines="shared"),
    "rail_only": Fabric(builder="rail_only", nodes=8, gpus_per_node=2, switch=SMALL),
    "single_tor": Fabric(builder="single_tor", nodes=8, gpus_per_node=2, switch=SMALL),
    "dual_plane": Fabric(builder="dual_plane", nodes=8, gpus_per_node=2, switch=SMALL),
    "leaf_spine": Fabric(builder="leaf_spine", nodes=32, gpus_per_node=1, switch=SMALL),
    "fat_tree": Fabric(builder="fat_tree", nodes=16, gpus_per_node=1, switch=Switch(radix=4)),
    "custom": Fabric(
        builder="custom",
        nodes=2,
        gpus_per_node=1,
        edges=(Edge("nic n0.0", "leaf 0"), Edge("nic n1.0", "leaf 1"), Edge("leaf 0", "spine 0", count=2), Edge("spine 0", "leaf 1")),
    ),
}
# leaves, spines, cores; NIC, spine, core cables; planes
COUNTS = {
    # 4 rails x 16 / 4 leaves; 4 leaves x 4 up = 16 ports = 2 spines of 8 per rail
    "rails": (16, 8, 0, 64, 64, 0, 4),
    # 4 leaves x 4 up = 16 ports = 2 spines
    "rails_shared": (4, 2, 0, 16, 16, 0, 1),
    # per rail 8 leaves in 2 pods of 4; 4 spines per pod; 4 groups x 4 up per spine number = 16 ports = 2 cores for each of 4
    "rails_3_tiers": (16, 16, 8, 64, 64, 64, 1),
    # cores of each rail: 2 groups x 4 up = 8 ports = 1 core for each of 4
    "rails_3_tiers_apart": (16, 16, 8, 64, 64, 64, 2),
    # 8 leaves in 2 pods of 2 segments x 2 rails; 4 spines per pod; 2 groups x 4 up = 1 core for each of 4
    "rails_3_tiers_shared": (8, 8, 4, 32, 32, 32, 1),
    "rail_only": (2, 0, 0, 16, 0, 0, 2),
    # 2 nodes x 2 NICs per ToR: 4 ToRs x 4 up = 2 spines
    "single_tor": (4, 2, 0, 16, 16, 0, 1),
    # per plane and rail 2 leaves x 4 up = 1 spine; NICs join the planes of a rail
    "dual_plane": (8, 4, 0, 32, 32, 0, 2),
    # 8 leaves x 4 up = 4 spines of 8
    "leaf_spine": (8, 4, 0, 32, 32, 0, 1),
    "fat_tree": (8, 8, 4, 16, 16, 16, 1),
    "custom": (2, 1, 0, 2, 3, 0, 1),
}


def counts(topology: Topology) -> tuple[int, ...]:
    tier, up = topology.vertex_tier, topology.vertex_tier[topology.link_src] < topology.vertex_tier[topology.link_dst]
    cables = np.bincount(topology.link_tier[up], minlength=5)[2:]
    return (*(int((tier == t).sum()) for t in (1, 2, 3)), *cables.tolist(), int(topology.vertex_plane.max()) + 1)


def check(topology: Topology) -> None:
    """What holds for every topology."""
    t, links = topology, np.arange(topology.link_src.size)
    n_vertices = t.n_gpus + t.n_nodes + t.n_nics + t.n_switches
    expected = np.repeat([GPU, SCALE_UP, NIC, SWITCH], [t.n_gpus, t.n_nodes, t.n_nics, t.n_switches])
    assert np.array_equal(t.vertex_kind, expected) and n_vertices == t.vertex_tier.size == t.vertex_rail.size == t.vertex_buffer.size
    assert np.all(np.diff(t.vertex_tier) >= 0)
    assert np.array_equal(t.link_reverse[t.link_reverse], links) and np.all(t.link_reverse != links)
    assert np.array_equal(t.link_src[t.link_reverse], t.link_dst)
    # GPU g: link g up to its node's scale-up switch, link n_gpus + g down from it
    g = np.arange(t.n_gpus)
    assert np.array_equal(t.link_src[g], g) and np.array_equal(t.link_dst[g], t.n_gpus + g // t.gpus_per_node)
    assert np.array_equal(t.link_reverse[g], t.n_gpus + g)
    # the host bus in the order of gpu_nic, then back
    bus = 2 * t.n_gpus + np.arange(t.gpu_nic_idx.size)
    assert np.array_equal(t.link_src[bus], np.repeat(g, np.diff(t.gpu_nic_ptr)))
    assert np.array_equal(t.link_dst[bus], t.n_gpus + t.n_nodes + t.gpu_nic_idx)
    assert np.array_equal(t.link_reverse[bus], bus + bus.size)
    assert all(t.nic_gpu[n] in g[t.gpu_nic_ptr[:-1].searchsorted(np.flatnonzero(t.gpu_nic_idx == n), "right") - 1] for n in range(t.n_nics))
    assert all(x.flags.c_contiguous for x in t if isinstance(x, np.ndarray))
    # the plane of a cable's ends is one
    cable = t.link_tier >= 2
    assert np.array_equal(t.vertex_plane[t.link_src[cable]], t.vertex_plane[t.link_dst[cable]])
    assert np.array_equal(topologies.planes(t), t.vertex_plane)


@pytest.mark.parametrize("name", FABRICS)
def test_counts(name: str) -> None:
    topology = topologies.build(FABRICS[name])
    check(topology)
    assert counts(topology) == COUNTS[name]


def test_every_builder_is_counted() -> None:
    assert {f.builder for f in FABRICS.values()} == set(builders())


@pytest.mark.parametrize(
    ("nodes", "leaves", "spines", "cores"),
    [(64, 16, 8, 0), (128, 32, 16, 0), (256, 64, 32, 0), (512, 128, 128, 64), (1024, 256, 256, 128), (2048, 512, 512, 256)],
)
def test_superpod_counts_are_those_of_nvidias_table(nodes: int, leaves: int, spines: int, cores: int) -> None:
    """DGX SuperPOD reference architecture B200, "Larger SuperPOD component counts": switches and cables per number of scalable units."""
    topology = topologies.build(Fabric(nodes=nodes, segment=32, spines="shared", tiers=3 if cores else 2))
    assert counts(topology) == (leaves, spines, cores, 8 * nodes, 8 * nodes, 8 * nodes if cores else 0, 1)


@pytest.mark.parametrize(("gpus", "nics"), [(8, 8), (8, 4), (8, 16), (8, 1), (1, 8), (8, 6), (4, 6)])
def test_nics_are_spread_over_gpus(gpus: int, nics: int) -> None:
    gpu, nic, nearest_gpu = bus_pairs(gpus, nics)
    assert set(gpu) == set(range(gpus)) and set(nic) == set(range(nics))
    assert {(int(g), n) for n, g in enumerate(nearest_gpu)} <= set(zip(gpu.tolist(), nic.tolist(), strict=True))
    if max(gpus, nics) % min(gpus, nics) == 0:
        assert gpu.size == max(gpus, nics)


def test_rails_are_nics_of_a_node() -> None:
    topology = topologies.build(Fabric(nodes=4, nics_per_node=4, link=Link(rate=25e9)))
    assert topology.nic_rail.tolist() == [0, 1, 2, 3] * 4
    assert topology.gpu_nic_idx[:8].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert np.all(topology.link_rate[topology.link_tier >= 2] == 25e9)


def test_rates_and_latencies_go_where_they_belong() -> None:
    fabric = Fabric(
        nodes=8, gpus_per_node=2, tiers=3, switch=SMALL, pod=1,
        scale_up=ScaleUp(rate=1e9, latency=7), host=Host(rate=2e9, latency=11), link=Link(rate=3e9, latency=100),
        leaf=Tier(latency=1), spine=Tier(rate=4e9, cable=200, latency=10), core=Tier(rate=5e9, buffer=99),
    )  # fmt: skip
    t = topologies.build(fabric)
    rates = [set(t.link_rate[t.link_tier == k].tolist()) for k in range(5)]
    assert rates == [{1e9}, {2e9}, {3e9}, {4e9}, {5e9}]
    both_ways = {(t.link_tier[k], t.vertex_tier[t.link_dst[k]]): int(t.link_latency[k]) for k in range(t.link_src.size)}
    # cable, plus the pipeline of the switch that is entered
    assert both_ways[2, 1] == 101 and both_ways[2, 0] == 100
    assert both_ways[3, 2] == 210 and both_ways[3, 1] == 201
    assert both_ways[4, 3] == 100 + SMALL.latency and both_ways[4, 2] == 110
    assert t.link_latency[0] + t.link_latency[t.n_gpus] == 7
    assert set(t.vertex_buffer[t.vertex_tier == 3].tolist()) == {99} and set(t.vertex_buffer[t.vertex_tier == 0].tolist()) == {0}


def test_oversubscription_splits_the_ports() -> None:
    from topologies.clos import ports

    assert ports(Fabric(), 1) == (32, 32)
    assert ports(Fabric(leaf=Tier(oversubscription=3)), 1) == (48, 16)
    assert ports(Fabric(link=Link(rate=25e9), spine=Tier(rate=50e9)), 1) == (42, 21)
    assert ports(Fabric(leaf=Tier(down=40, up=8)), 1) == (40, 8)
    assert ports(Fabric(leaf=Tier(up=8)), 1) == (56, 8)
    assert ports(Fabric(), 2) == (64, 0)


@pytest.mark.parametrize(
    ("fabric", "sentence"),
    [
        (Fabric(nodes=4096), "at most 64 leaf switches under one spine (64 ports down / 1 per leaf); got 128 for 4,096 nodes"),
        (
            Fabric(builder="fat_tree", nodes=129, gpus_per_node=1, switch=SMALL),
            "128 nodes (k^3 / 4 = 8^3 / 4 = 128 ports / 1 NICs); got 129",
        ),
        (Fabric(builder="fat_tree", nodes=17, gpus_per_node=8, switch=SMALL), "16 nodes (k^3 / 4 = 8^3 / 4 = 128 ports / 8 NICs)"),
        (Fabric(builder="fat_tree", switch=Switch(radix=7)), "even number"),
        (Fabric(builder="rail_only", nodes=65), "at most 64 nodes"),
        (Fabric(builder="single_tor", gpus_per_node=64), "within the 32 ports down"),
        (Fabric(segment=33), "at most the 32 ports down"),
        (Fabric(leaf=Tier(down=60)), "down + up of at most the radix of 64; got 60 down and 60 up"),
        (Fabric(spine=Tier(parallel=5)), "divisor of the 32 ports up"),
        (Fabric(tiers=3, spines="shared", pod=4), "at least the 8 leaves of one segment"),
        (Fabric(builder="rail_optimized"), "did you mean 'rail_optimised'?"),
        (Fabric(builder="names"), "expected one of custom, dual_plane"),
    ],
)
def test_what_cannot_be_built_is_said_with_the_arithmetic(fabric: Fabric, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        topologies.build(fabric)
    assert len(error.value.lines) == 1
    assert error.value.lines[0].startswith("topology.") and sentence in error.value.lines[0]


def test_rules_between_fields() -> None:
    from netsim.config.topology import Fault

    def fields(fabric: Fabric) -> list[str]:
        return [field for field, _ in fabric.problems()]

    assert fields(Fabric()) == []
    assert fields(Fabric(link=Link(rate=0.0), spine=Tier(rate=0.0))) == ["link.rate", "spine.rate"]
    assert fields(Fabric(leaf=Tier(down=40, up=40))) == ["leaf"]
    assert fields(Fabric(edges="x.csv")) == ["edges"] and fields(Fabric(builder="custom")) == ["edges"]
    assert fields(Fabric(faults=(Fault("a -> b", from_=5, until=5), Fault("a -> b", until=5)))) == ["faults.0.until"]
    assert fields(Fabric(nodes=2**21)) == ["nodes"] and fields(Fabric(gpus_per_node=2000)) == ["gpus_per_node"]


@st.composite
def any_fabric(draw: st.DrawFn) -> Fabric:
    """A small fabric of any builder but custom; many cannot be built."""
    whole = lambda low, high: draw(st.integers(low, high))  # noqa: E731
    return Fabric(
        builder=draw(st.sampled_from([b for b in builders() if b != "custom"])),
        nodes=whole(1, 20),
        gpus_per_node=whole(1, 4),
        nics_per_node=draw(st.none() | st.integers(1, 4)),
        switch=Switch(radix=whole(2, 12)),
        leaf=Tier(oversubscription=draw(st.sampled_from([0.5, 1.0, 2.0, 3.0]))),
        spine=Tier(parallel=draw(st.none() | st.integers(1, 3)), rate=draw(st.sampled_from([None, 100e9]))),
        tiers=draw(st.sampled_from([2, 3])),
        segment=draw(st.none() | st.integers(1, 4)),
        pod=draw(st.none() | st.integers(1, 4)),
        spines=draw(st.sampled_from(["per_rail", "shared"])),
        cores=draw(st.sampled_from(["per_rail", "shared"])),
        planes=whole(1, 3),
    )


@settings(max_examples=150, deadline=None)
@given(any_fabric())
def test_any_fabric_is_sound_or_an_input_error(fabric: Fabric) -> None:
    try:
        topology = topologies.build(fabric)
    except InputError as error:
        assert len(error.lines) == 1 and error.lines[0].startswith("topology.")
        return
    check(topology)
    used = np.bincount(topology.link_src, minlength=topology.vertex_kind.size)[topology.vertex_kind == SWITCH]
    radix = np.array([0, *(fabric.tier(t).radix for t in (1, 2, 3))])
    assert np.all(used <= radix[topology.vertex_tier[topology.vertex_kind == SWITCH]])
