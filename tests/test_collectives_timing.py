"""How long calls take: the recursion over messages against hand-derived times, and the two engines against each other."""

import numpy as np
import pytest

import topologies
from netsim.collectives import Communicator, idle_us, plan, platform_of
from netsim.config.load import load_section
from netsim.config.nccl import Nccl
from netsim.config.network import Network
from netsim.config.topology import Fabric, Link, Switch
from netsim.kernels import messages
from netsim.simulate import alone
from netsim.validate import contention
from tests.collectives_cases import H100, comm


def ends(msgs, window, gap, copy, hop, back, deps):
    """When the last message of each edge is at hand; deps[e] lists (edge, lag)."""
    n = len(msgs)
    ptr = np.cumsum([0, *map(len, deps)])
    idx, lag = (np.array([d[i] for row in deps for d in row], np.int64) for i in (0, 1))
    _, both = messages.folded(np.arange(n), ptr, idx, lag)
    times = [np.full(n, float(x)) if np.isscalar(x) else np.array(x, float) for x in (gap, copy, copy, hop, back)]
    return messages.play(np.array(msgs), np.full(n, window), *times, *both).tolist()


def test_messages_of_an_edge_start_a_gap_apart():
    assert ends([6], 8, gap=10, copy=7, hop=100, back=0, deps=[[]]) == [5 * 10 + 7 + 100]


def test_a_window_holds_up_what_its_credit_does_not_free():
    assert ends([3], 1, gap=10, copy=10, hop=100, back=30, deps=[[]]) == [3 * 110 + 2 * 30]


def test_a_message_is_consumed_when_it_has_been_moved_on():
    """Edge 0 sends message 1 when edge 1 has moved message 0 (at 110 + 10) and word of it is back."""
    assert ends([2, 2], 1, 10, 10, 100, 5, [[], [(0, 0)]])[0] == 120 + 5 + 110


def test_steps_of_a_ring_last_as_long_as_their_slices_or_as_one_takes_to_come_over():
    ring = [[((e - 1) % 4, 2)] for e in range(4)]
    assert ends([6] * 4, 8, gap=10, copy=10, hop=100, back=0, deps=ring) == [2 * 110 + 10 + 110] * 4
    assert ends([6] * 4, 8, gap=10, copy=10, hop=3, back=0, deps=ring) == [6 * 10 + 3] * 4


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all", "broadcast"])
@pytest.mark.parametrize("algorithm", [None, "Tree"])
def test_one_edge_of_each_kind_stands_for_all(op, algorithm):
    built = plan(op, 2**22, comm(3), H100, Nccl(NCCL_ALGO=f"allreduce:{algorithm}" if algorithm else None))
    deps = tuple(a.astype(np.int64) for a in (built.dep_ptr, built.dep_idx, built.dep_lag))
    gap, copy = built.edge_msg_bytes / built.edge_pace, built.edge_msg_bytes / built.edge_burst
    hop = built.edge_delay_ps * 1e-12
    kind = messages.alike((built.edge_msgs, built.edge_window, gap * 1e12, copy * 1e12, hop * 1e12), *deps)
    assert kind.max() + 1 < len(kind) or op == "broadcast"
    found = []
    for group in (np.arange(len(kind)), kind):
        which, both = messages.folded(group, *deps)
        ints = (built.edge_msgs[which].astype(np.int64), built.edge_window[which].astype(np.int64))
        found.append(messages.play(*ints, gap[which], copy[which], copy[which], hop[which], 0 * hop[which], *both)[group])
    assert found[1] == pytest.approx(found[0], rel=1e-6)


PLACE = Fabric(nodes=12, link=Link(50e9, 150_000), switch=Switch(radix=64, latency=300_000))


@pytest.mark.parametrize(
    ("op", "nbytes", "nodes", "width", "variables"),
    [
        ("all_reduce", 2**14, 8, 8, {}), ("all_reduce", 2**20, 9, 8, {}), ("all_reduce", 2**26, 8, 8, {}),
        ("all_reduce", 2**24, 8, 8, {"NCCL_ALGO": "Ring"}), ("all_reduce", 2**26, 8, 8, {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}),
        ("all_reduce", 2**26, 8, 8, {"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"}), ("all_gather", 2**28, 12, 8, {}),
        ("reduce_scatter", 2**20, 12, 8, {}), ("reduce_scatter", 2**26, 8, 8, {"NCCL_CROSS_NIC": 0}), ("all_gather", 2**22, 12, 1, {}),
        ("all_gather", 2**27, 8, 1, {}), ("all_to_all", 2**26, 8, 8, {}), ("ring_shift", 2**16, 8, 8, {}), ("broadcast", 2**24, 8, 8, {}),
        ("all_reduce", 2**24, 8, 8, {"NCCL_IB_QPS_PER_CONNECTION": 4}),
    ],
)  # fmt: skip
def test_engines_agree_where_nothing_queues(op, nbytes, nodes, width, variables):
    nccl, topology = Nccl(**variables), topologies.build(PLACE)
    way = topologies.routes(topology, PLACE)
    platform = platform_of(topology, "hopper", PLACE, nccl)
    ranks = [(n, g) for n in range(nodes) for g in range(width)]
    built = plan(op, nbytes, Communicator(*(tuple(column) for column in zip(*ranks, strict=True))), platform, nccl)
    members = np.array([[8 * n + g for n, g in ranks]], np.int32)
    flow = alone.flow_us([[(built, members)]], topology, way)[0]
    assert alone.packet_us([(built, members)], topology, way, Network(engine="packet")) == pytest.approx(flow, rel=0.03)


def test_rails_share_nothing():
    met = contention.rails()
    assert met.flow == pytest.approx(met.flow_alone, rel=1e-6) and met.packet == pytest.approx(met.packet_alone, rel=1e-3)
    assert met.packet == pytest.approx(met.flow, rel=0.03)


def test_jobs_share_spines_badly_by_hash_and_well_packet_by_packet():
    hashed, adaptive = contention.jobs("ecmp", "none"), contention.jobs("adaptive", "none")
    assert hashed.flow > 1.2 * hashed.flow_alone and hashed.packet > 1.2 * hashed.packet_alone
    assert hashed.packet == pytest.approx(hashed.flow, rel=0.2)
    assert adaptive.packet < 1.05 * adaptive.packet_alone < 0.8 * hashed.packet_alone


def test_sends_to_the_next_rail_collapse_in_thin_spines():
    same, crossing = contention.crossing(0, "none"), contention.crossing(1, "none")
    assert same.flow == pytest.approx(same.flow_alone, rel=1e-3) and same.packet == pytest.approx(same.packet_alone, rel=1e-3)
    assert crossing.flow > 3 * crossing.flow_alone and crossing.packet == pytest.approx(crossing.flow, rel=0.1)


@pytest.mark.parametrize(("card", "own", "like"), [
    ("dgx_a100", "rubin", "ampere"), ("dgx_h100", "rubin", "hopper"), ("dgx_b200", "ada", "blackwell"), ("dgx_b200", "hopper", "hopper"),
])  # fmt: skip
def test_an_architecture_of_your_own_is_as_the_generation_with_such_links(card, own, like):
    fabric = load_section(card, Fabric, ["nodes=2"])
    topology = topologies.build(fabric)
    platform = platform_of(topology, own, fabric, Nccl())
    assert platform == platform_of(topology, like, fabric, Nccl())
    assert plan("all_reduce", 2**20, comm(2), platform, Nccl()).channels > 0


@pytest.mark.parametrize("engine", ["flow", "packet"])
@pytest.mark.parametrize(("op", "card", "arch"), [
    ("all_gather", "dgx_a100", "ampere"), ("all_to_all", "dgx_a100", "ampere"), ("all_gather", "dgx_h100", "hopper"),
])  # fmt: skip
def test_a_lone_call_of_all_gpus_takes_its_time_on_ready_nodes(engine, op, card, arch):
    """On DGX A100 rings leave by the NIC of the neighbour on the same PCIe switch: no slot has more to carry than its NIC."""
    fabric = load_section(card, Fabric, ["nodes=2"])
    topology = topologies.build(fabric)
    way = topologies.routes(topology, fabric)
    built = plan(op, 2**26, comm(2), platform_of(topology, arch, fabric, Nccl()), Nccl(NCCL_PROTO="Simple"))
    call = [(built, np.arange(16, dtype=np.int32)[None])]
    took = alone.flow_us([call], topology, way)[0] if engine == "flow" else alone.packet_us(call, topology, way, Network(engine="packet"))
    assert took == pytest.approx(idle_us(built), rel=0.02)
