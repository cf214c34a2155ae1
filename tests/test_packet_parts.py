"""A fabric cut into parts gives what it gives as a whole: the same picoseconds, the same counters, wherever the cut runs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

import topologies
from netsim.collectives import Communicator, Platform, plan
from netsim.config.nccl import Nccl
from netsim.config.network import CongestionControl, Ecn, Network, Pfc, Recovery
from netsim.config.topology import Fabric, Link, ScaleUp, Switch
from netsim.kernels.structs import NIC, SWITCH
from netsim.network.api import PS_NEVER
from netsim.network.leaf_groups import owners, pairs_of, shared_planes
from netsim.network.packet.engine import PacketEngine
from netsim.network.packet.part import Part
from netsim.network.partition import Look
from netsim.network.planes import PlaneEngine
from netsim.network.traffic_planes import TrafficPlanes
from netsim.parallel import Comm
from netsim.simulate.share import merged
from tests import packet_cases as cases
from tests.parts import together

SCALE_UP = (ScaleUp(), ScaleUp(20e9, 1_000_000, "pcie", 2, 8e9), ScaleUp(450e9, 500_000, "nvlink", 4, 4e9))
PLATFORM = Platform("hopper", 8, 8, 50e9, "intel", 450e9, 5, False)


def random_network(rng):
    """Any combination that can be cut and that the configuration allows."""
    control, flow_control = CongestionControl(str(rng.choice(["none", "dcqcn", "swift"]))), str(rng.choice(["none", "pfc", "credits"]))
    lossy = flow_control == "none"
    recovery = Recovery(str(rng.choice(["go_back_n", "selective"])), 50_000_000)
    spreading = str(rng.choice(["flow", "spray", "adaptive", "flowlet"])) if not lossy or recovery.mode == "selective" else "flow"
    return Network(
        engine="packet", congestion_control=control, flow_control=flow_control, spreading=spreading, recovery=recovery,
        sharing=str(rng.choice(["static", "dynamic"])) if lossy else "static", acks=str(rng.choice(["analytic", "simulated"])),
        ack_every=int(rng.integers(1, 4)), ecn=Ecn(8_000, 40_000, 0.5), pfc=Pfc(xoff=30_000, xon=20_000), credits=20_000,
        qps=int(rng.integers(1, 3)),
    )  # fmt: skip


def random_failure(rng, topology):
    """A cable between switches or of a NIC that fails, and is back later: (times, links, rates)."""
    between = np.flatnonzero((topology.vertex_kind[topology.link_src] >= NIC) & (topology.vertex_kind[topology.link_dst] == SWITCH))
    link, t = int(rng.choice(between)), int(rng.integers(1, 20)) * 1_000_000
    both = np.array([link, topology.link_reverse[link]] * 2)
    return np.array([t, t, t + 7_000_000, t + 7_000_000]), both, np.array([0.0, 0.0, *[topology.link_rate[link]] * 2])


def dealt_at_random(rng, topology, n):
    """Leaf groups and switches above, each to any of `n` ranks."""
    owner = owners(topology, np.unique(topology.vertex_plane[topology.vertex_plane >= 0]), np.arange(10_000))
    return np.where(owner < 0, -1, rng.integers(0, n, owner.max() + 1)[owner])


def play(topology, routes, network, traffic, failure, comm, owner):
    """Play traffic to its end; returns (ends, counters, bytes that crossed from here)."""
    engine = PacketEngine(topology, routes, network, 1)
    engine.change_rates(*failure)
    part = Part(engine, comm, owner)
    part.add_flows(traffic)
    for until in (3_333_333, 10_000_000, PS_NEVER):
        part.advance(until)
    assert comm.size > 1 or (engine.flow_ends() >= 0).all()
    return engine.flow_ends(), engine.counters(), part.crossed


class Whenever(Look):
    """Shares a plane once it has been looked at so many times, whatever that costs."""

    def __init__(self, looks):
        self.ranks, self.looks = 1, looks

    def pays(self, played_s, windows):
        self.looks -= 1
        return self.looks < 0


def play_whole_at_first(topology, routes, network, traffic, failure, comm, owner, looks):
    """As `play`, but one rank plays everything until planes have been looked at so many times."""
    engine = PacketEngine(topology, routes, network, 1)
    engine.change_rates(*failure)
    planes = TrafficPlanes(engine, comm, traffic, topology.n_nics)
    planes._owner, planes._team, planes._look = owner, comm, Whenever(looks)
    for until in (*range(400_000, 12_000_000, 800_000), PS_NEVER):
        planes.advance(until)
        planes.exchange([0])
    assert planes._look is None
    return engine.flow_ends(), engine.counters(), planes.part.crossed


def random_case(rng, n):
    """(topology, routes, network, traffic, failure), and the owner of every vertex among n ranks."""
    fabric, network = cases.random_fabric(rng), random_network(rng)
    topology = topologies.build(fabric)
    routes = topologies.routes(topology, fabric, 1)
    traffic = cases.random_traffic(rng, fabric.nodes, int(rng.integers(3, 25)))
    return (topology, routes, network, traffic, random_failure(rng, topology)), dealt_at_random(rng, topology, n)


def same_as_a_whole(case, owner, parts):
    """Whether the ranks together found what one alone finds, whose counters are returned."""
    ends, counters, _ = play(*case, Comm(), np.minimum(owner, 0))
    assert np.maximum.reduce([of for of, _, _ in parts]).tolist() == ends.tolist()
    found = merged([of for _, of, _ in parts])
    for name, values in counters.items():
        assert found[name].tolist() == values.tolist(), name
    return counters


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.sampled_from([2, 3, 8]))
def test_planes_that_are_cut_on_the_way_give_what_they_give_as_a_whole(seed, n):
    rng = np.random.default_rng(seed)
    case, owner = random_case(rng, n)
    looks = int(rng.integers(0, 12))
    parts = together(n, lambda comm: play_whole_at_first(*case, comm, owner, looks))
    same_as_a_whole(case, owner, parts)
    target(float(np.sum([of for *_, of in parts])))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.sampled_from([2, 3, 8, 32]))
def test_traffic_in_parts_is_traffic_as_a_whole(seed, n):
    case, owner = random_case(np.random.default_rng(seed), n)
    parts = together(n, lambda comm: play(*case, comm, owner))
    counters = same_as_a_whole(case, owner, parts)
    between = bytes_between(case[0], owner, counters, n)
    assert [of.tolist() for *_, of in parts] == between
    target(float(np.sum(between)))


def bytes_between(topology, owner, counters, n):
    """[n, n] bytes on cables from vertices of one rank to those of another."""
    between, (src, dst) = np.zeros((n, n), np.int64), (owner[topology.link_src], owner[topology.link_dst])
    here = (src >= 0) & (dst >= 0) & (src != dst) & (topology.vertex_kind[topology.link_src] >= NIC)
    np.add.at(between, (src[here], dst[here]), (counters["bytes"] + counters["control_bytes"])[here])
    return between.tolist()


def training_fabric(rng):
    """Nodes of eight GPUs on several leaves: rails with spines of their own or shared, or all NICs of a node on one switch."""
    builder = str(rng.choice(["rail_optimised", "rail_optimised", "single_tor"]))
    spines = {"spines": str(rng.choice(["per_rail", "shared"]))} if builder == "rail_optimised" else {}
    return Fabric(
        builder=builder, nodes=int(rng.integers(3, 6)), segment=int(rng.integers(1, 3)), link=Link(rate=50e9, latency=150_000),
        switch=Switch(radix=64, latency=int(rng.integers(1, 8)) * 100_000, buffer=64 << 20), **spines,
        scale_up=SCALE_UP[int(rng.integers(0, len(SCALE_UP)))],
    )  # fmt: skip


def random_calls(rng, nodes):
    """(plan, members) of a few communicators: rings on a rail, over several GPUs of each node, and transfers."""
    calls = []
    for _ in range(int(rng.integers(2, 6))):
        chosen = np.sort(rng.choice(nodes, int(rng.integers(2, nodes + 1)), replace=False))
        local = np.arange(8)[: int(rng.choice([1, 1, 2]))] + int(rng.integers(0, 7))
        op = str(rng.choice(["all_gather", "reduce_scatter", "all_reduce", "sendrecv"]))
        if op == "sendrecv":
            chosen, local = chosen[:2], local[:1]
        at = [(int(i), int(g)) for i in range(len(chosen)) for g in local]
        call = plan(op, int(rng.integers(1, 300)) * 4096, Communicator(tuple(i for i, _ in at), tuple(g for _, g in at)), PLATFORM, Nccl())
        calls.append((call, np.array([8 * chosen[i] + g for i, g in at], np.int64)))
    return calls


def play_calls(topology, routes, network, calls, failure, comm, looks=-1):
    """Start every call, and each once more some time after it has ended.

    Returns (instance, time) of all ends, counters, bytes that crossed from here, and the rank of every vertex where planes are shared.
    """
    packets = PacketEngine(topology, routes, network, 1)
    packets.change_rates(*failure)
    engine = PlaneEngine(packets, comm, calls, partition="cut" if looks < 0 else "auto")
    if engine._look is not None:
        engine._look = Whenever(looks)
    n, ends = len(calls), []
    engine.start(np.arange(n), np.arange(n), 50_000 * np.arange(n))
    while engine.next_time() < PS_NEVER:
        done, times = engine.advance(engine.next_time())
        ends += zip(done.tolist(), times.tolist(), strict=True)
        again = done[done < n]
        if again.size:
            engine.start(again + n, again, times[done < n] + 1_234_567)
    crossed, owner = np.zeros(comm.size, np.int64), np.full(topology.vertex_kind.size, -1)
    if engine.part is not None:
        crossed[engine.mates] = engine.part.crossed
        owner = np.where(engine.part.cut.owner < 0, -1, engine.mates[engine.part.cut.owner])
    return ends, packets.counters(), crossed, owner


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(2, 12))
def test_calls_in_parts_are_calls_as_a_whole(seed, n):
    rng = np.random.default_rng(seed)
    fabric, network = training_fabric(rng), replace(random_network(rng), qps=1, pfc=Pfc())
    topology = topologies.build(fabric)
    routes, calls = topologies.routes(topology, fabric, 1), random_calls(rng, fabric.nodes)
    failure = random_failure(rng, topology)
    ends, counters, *_ = play_calls(topology, routes, network, calls, failure, Comm())
    assert len(ends) == 2 * len(calls)
    looks = int(rng.integers(-1, 12))  # of so many exchanges planes are whole
    parts = together(n, lambda comm: play_calls(topology, routes, network, calls, failure, comm, looks))
    assert all(of == ends for of, *_ in parts)
    found = merged([of for _, of, *_ in parts])
    for name, values in counters.items():
        assert found[name].tolist() == values.tolist(), name
    between = bytes_between(topology, np.maximum.reduce([of for *_, of in parts]), counters, n)
    crossed = np.array([of for *_, of, _ in parts])
    assert crossed.tolist() == between if looks < 0 else (crossed <= between).all()
    target(float(np.sum(between)))


def test_leaf_groups_are_dealt_out_whole_and_evenly():
    fabric = cases.tree(128, 8)
    topology = topologies.build(fabric)
    for n in (1, 2, 3, 8, 32):
        owner = shared_planes(topology, n)
        network = topology.vertex_kind >= NIC
        assert (owner[~network] == -1).all() and set(owner[network].tolist()) == set(range(n))
        nic = topology.vertex_kind[topology.link_src] == NIC
        nic &= topology.vertex_kind[topology.link_dst] == SWITCH
        assert (owner[topology.link_src[nic]] == owner[topology.link_dst[nic]]).all()
        ports = np.bincount(owner[topology.link_src[2 * topology.n_gpus :]] + 1, minlength=n + 1)[1:]
        assert ports.max() <= 1.4 * ports.mean(), n


def test_a_pod_stays_together_where_there_are_as_many_ranks_as_pods():
    topology = topologies.build(cases.tree(128, 8))
    owner = shared_planes(topology, 8)
    below = (topology.vertex_tier[topology.link_src] <= 1) & (topology.vertex_tier[topology.link_dst] >= 1)
    assert (owner[topology.link_src[below]] == owner[topology.link_dst[below]]).all()


def test_few_nics_take_few_ranks():
    topology = topologies.build(cases.tree(128, 8))
    assert len(np.unique(shared_planes(topology, 32, 32))) == 1 + 4
    assert len(np.unique(shared_planes(topology, 32, 1000))) == 1 + 1


def test_planes_of_their_own_share_nothing():
    fabric = Fabric(nodes=4, link=Link(rate=50e9, latency=150_000), switch=Switch(radix=64, latency=500_000))
    topology = topologies.build(fabric)
    owner = shared_planes(topology, 3)
    assert np.array_equal(owner[topology.vertex_plane >= 0], topology.vertex_plane[topology.vertex_plane >= 0] % 3)


def test_calls_tie_what_they_use():
    topology = topologies.build(Fabric(nodes=4, link=Link(rate=50e9, latency=150_000), switch=Switch(radix=64, latency=500_000)))
    ring = plan("all_gather", 1 << 20, Communicator((0, 0, 1, 1), (2, 3, 2, 3)), PLATFORM, Nccl())
    tied = {tuple(pair) for pair in pairs_of(topology, ring, np.array([2, 3, 10, 11])).tolist()}
    first_nic = topology.n_gpus + topology.n_nodes
    assert (2, 3) in tied or (3, 2) in tied
    assert any(first_nic <= b < first_nic + 8 and a in (2, 3) for a, b in tied)


@pytest.mark.parametrize("latency", [100_000, 700_000])
def test_lookahead_is_the_shortest_way_over_the_cut(latency):
    link, switch = Link(rate=50e9, latency=latency), Switch(radix=4, latency=50_000)
    fabric = Fabric(builder="leaf_spine", nodes=8, gpus_per_node=1, link=link, switch=switch)
    topology = topologies.build(fabric)
    owner = shared_planes(topology, 2)

    def one(comm):
        return Part(PacketEngine(topology, topologies.routes(topology, fabric, 1), cases.PLAIN, 1), comm, owner).lookahead_ps

    assert together(2, one) == [latency + 50_000] * 2
