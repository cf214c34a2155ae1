"""Everything that a packet may meet: the laws that hold in every mode, and results that no window, no stop on the way and no split
changes.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netsim.config.network import CongestionControl, Network, Pfc, Recovery
from netsim.config.topology import Fabric, Link, Switch
from netsim.config.traffic import Traffic
from netsim.errors import InputError
from netsim.kernels.packet import layout as k
from netsim.network.packet import state
from netsim.network.packet.engine import PacketEngine
from netsim.network.traffic import expand
from tests import packet_cases as cases
from tests.packet_cases import MIB, PLAIN, tree

LOSSY = {"flow_control": "none", "recovery": Recovery("go_back_n", 200_000_000)}
MODES: dict[str, dict] = {
    "pfc": {},
    "pool": {"sharing": "dynamic", "alpha": 1 / 128, "pfc": Pfc(xon_offset=5_000)},
    "credits": {"flow_control": "credits"},
    "acks": {"acks": "simulated", "ack_every": 2},
    "dcqcn": {"congestion_control": CongestionControl("dcqcn")},
    "dcqcn, acks": {"congestion_control": CongestionControl("dcqcn"), "acks": "simulated"},
    "swift": {"congestion_control": CongestionControl("swift")},
    "hpcc": {"congestion_control": CongestionControl("hpcc")},
    "spray": {"spreading": "spray"},
    "adaptive": {"spreading": "adaptive"},
    "adaptive, acks": {"spreading": "adaptive", "acks": "simulated"},
    "flowlet": {"spreading": "flowlet", "flowlet_gap": 500_000},
    "go back n": LOSSY,
    "selective": LOSSY | {"recovery": Recovery("selective", 200_000_000)},
    "shared": LOSSY | {"sharing": "dynamic"},
    "qps": {"qps": 3},
}


def network(mode: str, **more: object) -> Network:
    return replace(PLAIN, **{"pfc": Pfc(xoff=30_000, xon=20_000)} | MODES[mode] | more)


def fabric(buffer: int = 4 * MIB):
    return tree(16, 4, switch=Switch(radix=4, latency=300_000, buffer=buffer))


def outcome(engine: PacketEngine) -> dict[str, list[int]]:
    return {"ends": engine.flow_ends().tolist()} | {name: values.tolist() for name, values in engine.counters().items()}


def conserved(engine: PacketEngine) -> None:
    """Data packets into every vertex are those out of it, dropped, queued, on the wires to it, or at their destination."""
    ring = engine.state.ring.reshape(-1, 1 << k.RING)[: engine.topology.link_src.size]
    count, top = engine.counters(), engine.topology
    arrived = count["packets"] - count["gone"] - (ring[:, k.MID] - ring[:, k.HEAD])
    switches = np.flatnonzero(top.vertex_kind == 3)
    into = np.bincount(top.link_dst, arrived, top.vertex_kind.size)
    left = count["packets"] + count["drops"] - count["gone"] + ring[:, k.TAIL] - ring[:, k.MID]
    out = np.bincount(top.link_src, left, top.vertex_kind.size)
    assert into[switches].tolist() == out[switches].tolist()


def delivered_once(engine: PacketEngine, nbytes: np.ndarray) -> None:
    """Every packet of plain flows on one queue pair each has been taken in its turn, once; what NICs sent beyond, they sent again."""
    tx, rx = (table.reshape(-1, width)[: nbytes.size] for table, width in ((engine.state.tx, 1 << k.TX), (engine.state.rx, 1 << k.RX)))
    packets = -(-nbytes // 4096)
    assert rx[:, k.EXPECT].tolist() == tx[:, k.AVAIL].tolist() == packets.tolist()
    count, top = engine.counters(), engine.topology
    up = count["packets"][(top.vertex_kind[top.link_src] == 2) & (top.vertex_kind[top.link_dst] == 3)].sum()
    assert up == packets.sum() + engine.flow_resent().sum()
    assert engine.flow_resent().sum() >= count["drops"].sum()
    for name in (k.QUEUE, k.READY):  # nothing waits for ever
        assert set(engine.state.port.reshape(-1, 1 << k.PORT)[top.n_gpus :, name].tolist()) <= {0, -1}
    if engine.state.scal[k.FLOW_CONTROL] == k.PFC_ON:
        assert not engine.state.pfc.reshape(-1, 1 << k.PFC)[:, [k.HELD, k.SENT_OFF, k.OVER]].any()


@pytest.mark.parametrize("mode", MODES)
def test_no_window_and_no_stop_changes_anything(mode):
    lossy = MODES[mode].get("flow_control") == "none"
    place = fabric(60_000 if lossy else 4 * MIB)
    traffic = cases.random_traffic(np.random.default_rng(3), 16, 40)
    whole = cases.engine(place, network(mode), traffic)
    whole.finish()
    expected = outcome(whole)
    assert (whole.flow_ends() > 0).all()
    assert not lossy or whole.counters()["drops"].sum() > 0
    for window, stops in ((60_000, 0), (None, 50), (123_457, 10)):
        engine = cases.engine(place, network(mode, window=window), traffic)
        for t in range(stops):
            engine.advance(t * 1_000_000)
            if not lossy:
                conserved(engine)
        engine.finish()
        assert outcome(engine) == expected


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 10**6),
    mode=st.sampled_from([m for m in MODES if MODES[m].get("flow_control") != "none"]),
    stop=st.integers(0, 30_000_000),
)
def test_packets_are_conserved_and_nothing_is_early(seed, mode, stop):
    rng = np.random.default_rng(seed)
    traffic = cases.random_traffic(rng, 16, int(rng.integers(1, 40)))
    engine = cases.engine(fabric(), network(mode), traffic)
    engine.advance(stop)
    conserved(engine)
    engine.finish()
    conserved(engine)
    packets = -(-traffic.nbytes // 4096)
    nic = engine.topology.vertex_kind[engine.topology.link_dst] == 2
    if mode != "qps":
        assert engine.counters()["packets"][nic].sum() == packets.sum()
    bound = (traffic.nbytes + 64 * packets) * 20 + 2 * (2 * 500_000 + 300_000)
    assert (engine.flow_ends() - traffic.start_ps >= bound).all()


@pytest.mark.parametrize(("spreading", "low", "high"), [("flow", 95, 135), ("spray", 50, 60), ("adaptive", 50, 57)])
def test_permutation_lies_in_the_range_that_others_see(spreading, low, high):
    ends = cases.ends(tree(), replace(PLAIN, spreading=spreading), expand(Traffic("traffic", "permutation", 2 * MIB), 128, 1))
    assert low < ends.mean() / 1e6 < high
    assert ends.min() > 45_284_159


@pytest.mark.parametrize("name", ["swift", "hpcc"])
def test_incast_keeps_the_queue_short(name):
    traffic = cases.flows(*((src, 0, 4 * MIB) for src in (20, 40, 60, 80)))
    queue = {}
    for choice in ("none", name):
        engine = cases.engine(tree(), replace(PLAIN, congestion_control=CongestionControl(choice)), traffic)
        engine.advance(200_000_000)
        engine.state.count[k.QUEUE_MAX :: 1 << k.COUNT] = 0
        engine.finish()
        queue[choice] = int(engine.counters()["queue_max"].max())
        total = engine.flow_ends().max()
    assert queue[name] < 0.25 * queue["none"]
    assert total < 1.1 * 4 * 1024 * 83_200


def test_dcqcn_holds_an_incast_at_the_marking_thresholds():
    """After the first, deep cut the rates come back and the queue stays between kmin and kmax."""
    network = replace(PLAIN, congestion_control=CongestionControl("dcqcn"))
    engine = cases.engine(tree(), network, cases.flows(*((src, 0, 512 * MIB) for src in range(20, 36, 2))))
    engine.advance(20_000_000_000)
    assert network.ecn is not None
    for ms in range(21, 31):
        engine.forget_queue_max()
        engine.advance(ms * 1_000_000_000)
        assert network.ecn.kmin / 2 < engine.counters()["queue_max"].max() < network.ecn.kmax


@pytest.mark.parametrize("name", ["dcqcn", "swift", "hpcc"])
def test_two_flows_converge_to_equal_shares(name):
    engine = cases.engine(
        tree(),
        replace(PLAIN, congestion_control=CongestionControl(name)),
        cases.flows((20, 0, 1024 * MIB), (40, 0, 1024 * MIB, 300_000_000)),
    )
    engine.advance(18_000_000_000)
    before = engine.counters()["bytes"]
    engine.advance(20_000_000_000)
    up = [int(engine.state.tx[(f << k.TX) + k.UPLINK]) for f in (0, 1)]
    one, two = (engine.counters()["bytes"] - before)[up].tolist()
    assert one + two > 0.9 * 50e9 * 2e-3
    assert 1 / 1.5 < one / two < 1.5


def test_a_link_that_fails_and_returns_has_lost_its_packets():
    engine = cases.engine(tree(), PLAIN)
    probe = cases.engine(tree(), PLAIN, cases.flows((0, 1, 2 * MIB)))
    link, packet, cable, switch = int(probe.state.path[1]), 83_200, 500_000, 300_000
    engine.change_rates(np.array([10_000_000, 20_000_000]), np.array([link] * 2), np.array([0.0, 50e9]))
    engine.add_flows(cases.flows((0, 1, 2 * MIB)))
    engine.finish()
    at_leaf = packet + cable + switch + packet * np.arange(512)
    there = at_leaf + packet + cable
    first_lost = int(np.searchsorted(there, 10_000_000, "right"))
    through = int(np.searchsorted(at_leaf, 20_000_000))  # the first packet that comes to the leaf when the link is back
    asked = int(there[through] + engine.state.tx[k.RETURN])
    again = -(-asked // packet) * packet  # behind the packet that is on the wire when the receiver's word arrives
    assert engine.flow_ends().tolist() == [45_284_160 + again - first_lost * packet]
    assert engine.counters()["drops"][link] + engine.counters()["drops"][int(probe.state.path[0])] == through - first_lost
    delivered_once(engine, np.array([2 * MIB]))


def test_adaptive_routing_avoids_a_dead_link():
    engine = cases.engine(tree(), replace(PLAIN, spreading="adaptive"), cases.flows((0, 100, 2 * MIB)))
    link = int(engine.state.path[1])
    engine.change_rates(np.array([1_000]), np.array([link]), np.array([0.0]))
    engine.finish()
    assert engine.counters()["packets"][link] == 0
    assert engine.flow_ends().tolist() == [52_022_080]


SPLIT = Fabric(builder="leaf_spine", nodes=8, gpus_per_node=1, segment=4, link=Link(50e9, 500_000), switch=Switch(radix=8, latency=300_000))


def detoured(hop: int, mode: str, **more: object) -> PacketEngine:
    """Flows across spines of which one loses, for good, the link that flow 0 takes at `hop`, both ways; routing converges 5 us later."""
    traffic = cases.flows((0, 7, 2 * MIB), (1, 6, MIB), (2, 7, MIB), (5, 0, MIB), (3, 2, MIB))
    engine = cases.engine(SPLIT, network(mode, convergence=5_000_000, **more))
    probe = cases.engine(SPLIT, network(mode), traffic)
    link = int(probe.state.path[hop])
    both = np.array([link, int(probe.topology.link_reverse[link])])
    engine.change_rates(np.full(2, 10_000_000), both, np.zeros(2))
    engine.add_flows(traffic)
    engine.finish()
    conserved(engine)
    delivered_once(engine, traffic.nbytes)
    assert (engine.flow_ends() > 0).all()
    sent = engine.counters()["packets"]
    assert engine.counters()["drops"].sum() > 0
    assert 0 < sent[both[0]] < 256 and sent[engine.topology.vertex_kind[engine.topology.link_dst] == 2].sum() >= 6 * 256
    return engine


@pytest.mark.parametrize("hop", [1, 2])
@pytest.mark.parametrize("mode", ["pfc", "pool", "credits", "dcqcn, acks", "spray", "go back n"])
def test_flows_finish_over_another_path_when_a_link_fails(mode, hop):
    assert outcome(detoured(hop, mode, window=123_457)) == outcome(detoured(hop, mode))


TWO_PORTS = Fabric(builder="dual_plane", nodes=4, gpus_per_node=1, link=Link(50e9, 500_000), switch=Switch(radix=8, latency=300_000))


def one_port_left(mode: str, *traffic: tuple[int, int, int]) -> list[PacketEngine]:
    """Engines on which NIC 0 loses one of its ports, each in turn."""
    made = []
    for port in (0, 1):
        engine = cases.engine(TWO_PORTS, network(mode, convergence=5_000_000))
        top = engine.topology
        link = np.flatnonzero((top.link_src == top.n_gpus + top.n_nodes) & (top.vertex_kind[top.link_dst] == 3))[port]
        engine.change_rates(np.full(2, 10_000_000), np.array([link, top.link_reverse[link]]), np.zeros(2))
        engine.add_flows(cases.flows(*traffic))
        made.append(engine)
    return made


@pytest.mark.parametrize("mode", ["pfc", "pool", "credits", "dcqcn, acks", "spray", "adaptive, acks", "go back n", "selective"])
def test_a_nic_with_two_ports_sends_again_on_the_other_plane(mode):
    rows = (0, 1, 2 * MIB), (0, 2, MIB), (3, 0, MIB), (1, 0, 2 * MIB)
    lost = 0
    for engine in one_port_left(mode, *rows):
        engine.finish()
        conserved(engine)
        delivered_once(engine, np.array([row[2] for row in rows]))
        lost += int(engine.counters()["drops"].sum())
    assert lost > 0


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), mode=st.sampled_from([mode for mode in MODES if mode != "qps"]))
def test_every_packet_is_delivered_once_whatever_fails(seed, mode):
    """Cables of the network, some of them a NIC's only one, fail and return, while routing follows or not."""
    rng = np.random.default_rng(seed)
    traffic = cases.random_traffic(rng, 16, int(rng.integers(1, 40)))
    lossy = MODES[mode].get("flow_control") == "none"
    engine = cases.engine(fabric(60_000 if lossy else 4 * MIB), network(mode, convergence=int(rng.integers(1, 20)) * 1_000_000))
    top = engine.topology
    cables = np.flatnonzero((top.vertex_kind[top.link_src] >= 2) & (top.vertex_kind[top.link_dst] >= 2))
    failed = rng.choice(cables, int(rng.integers(1, 5)), replace=False)
    times = np.sort(rng.integers(0, 20_000_000, (2, failed.size)), axis=0) + np.array([[0], [1]])
    engine.change_rates(times.ravel(), np.tile(failed, 2), np.r_[np.zeros(failed.size), top.link_rate[failed]])
    engine.add_flows(traffic)
    engine.finish()
    conserved(engine)
    delivered_once(engine, traffic.nbytes)


def test_destinations_that_are_lost_are_named():
    engine = cases.engine(SPLIT, replace(PLAIN, convergence=5_000_000))
    top = engine.topology
    last = np.flatnonzero(top.link_dst == top.n_gpus + top.n_nodes + 7)[-1:]
    engine.change_rates(np.array([10_000_000]), last, np.array([0.0]))
    with pytest.raises(InputError, match=r"expected a way from nic n0\.0 to nic n7\.0; got none.* from 10 us on"):
        engine.add_flows(cases.flows((0, 7, MIB, 20_000_000)))
    engine.add_flows(cases.flows((0, 7, MIB)))
    with pytest.raises(InputError, match=r"expected a way from nic n0\.0 to nic n7\.0; got none.* from 10 us on"):
        engine.finish()


def test_rings_move_to_a_fresh_arena_when_theirs_is_half_used(monkeypatch):
    traffic = cases.random_traffic(np.random.default_rng(5), 16, 60)
    plenty = cases.engine(fabric(), network("pfc"), traffic)
    plenty.finish()
    monkeypatch.setattr(state, "ARENA", 1 << 13)
    tight = cases.engine(fabric(), network("pfc"), traffic)
    sizes = set()
    for t in range(200):
        tight.advance(t * 200_000)
        sizes.add((tight.state.arena.ctypes.data, tight.state.arena.size))
    tight.finish()
    assert len(sizes) > 1
    assert outcome(tight) == outcome(plenty)


@pytest.mark.parametrize(("spreading", "refused"), [("flow", []), ("flowlet", []), ("spray", ["spreading"]), ("adaptive", ["spreading"])])
def test_hpcc_compares_reports_of_one_path(spreading, refused):
    network = Network(spreading=spreading, congestion_control=CongestionControl("hpcc"))
    assert [field for field, _ in network.problems()] == refused
    assert not list(replace(network, congestion_control=CongestionControl("swift")).problems())
