"""Collectives over PCIe and between CPU sockets: NCCL's choices, and how long calls take that share one link, on both engines."""

from functools import cache

import numpy as np
import pytest

import topologies
from netsim.collectives import Communicator, plan, platform_of
from netsim.collectives.graphs import SYS, graphs
from netsim.collectives.platform import layout
from netsim.collectives.tuner import case_of, choose, latency_us
from netsim.config.load import load_section
from netsim.config.nccl import Nccl
from netsim.config.network import Network
from netsim.config.topology import Fabric
from netsim.simulate import alone

GIB = 1 << 30
RATE, BETWEEN, COPY, REDUCE = 22.2e9, 17.2e9, 7.25e9, 5.94e9


@cache
def node(*settings: str):
    """(topology, routes, platform) of the ready node."""
    fabric = load_section("a100_pcie", Fabric, ["nodes=1", "segment=1", *settings])
    topology = topologies.build(fabric)
    return topology, topologies.routes(topology, fabric), platform_of(topology, "ampere", fabric, Nccl())


def calls(op: str, nbytes: int, groups: list[list[int]], *settings: str):
    """A call of each group of GPUs of the node."""
    platform = node(*settings)[2]
    made = [plan(op, nbytes, Communicator((0,) * len(g), tuple(g)), platform, Nccl()) for g in groups]
    return [(p, np.array([g], np.int32)) for p, g in zip(made, groups, strict=True)]


def seconds_per_gib(op: str, groups: list[list[int]], engine: str, *settings: str) -> float:
    """How much longer calls at the same time take for each further GiB."""
    topology, routes, _ = node(*settings)
    rows = [calls(op, n, groups, *settings) for n in (GIB // 4, GIB // 2)]
    if engine == "flow":
        first, second = alone.flow_us(rows, topology, routes)
    else:
        first, second = (alone.packet_us(row, topology, routes, Network()) for row in rows)
    return (second - first) * 4e-6


ALL, SOCKETS = [list(range(8))], [[0, 1, 2, 3], [4, 5, 6, 7]]
PAIRS, RINGS = [[g, g + 4] for g in range(4)], [[0, 2, 4, 6], [1, 3, 5, 7]]


@pytest.mark.parametrize("engine", ["flow", "packet"])
@pytest.mark.parametrize(
    ("op", "groups", "expected"),
    [
        ("all_gather", [[0, 1]], 1 / 2 / RATE),  # one bus
        ("all_gather", SOCKETS, 3 / 4 / RATE),  # a ring in each socket: nothing between them
        ("all_gather", ALL, 7 / 8 / (2 * COPY)),  # one ring: two thread blocks cross
        ("reduce_scatter", ALL, 7 / 8 / (2 * REDUCE)),
        ("all_gather", PAIRS, 4 * 1 / 2 / BETWEEN),  # four pairs share the link each way
        ("reduce_scatter", RINGS, 2 * 3 / 4 / BETWEEN),  # two rings: each crosses once each way
        ("all_to_all", ALL, 4 * 4 / 8 / BETWEEN),  # four GPUs send half of their buffers
    ],
)
def test_known_answers(op: str, groups: list[list[int]], expected: float, engine: str) -> None:
    assert seconds_per_gib(op, groups, engine) == pytest.approx(expected * GIB, rel=0.01)


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_a_ring_is_bound_by_the_link_where_that_is_slower(engine: str) -> None:
    assert seconds_per_gib("all_gather", ALL, engine, "scale_up.between='8 GB/s'") == pytest.approx(7 / 8 * GIB / 8e9, rel=0.01)


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_a_slow_direction_holds_up_the_ring(engine: str) -> None:
    fault = ("faults=[{link: 'scale-up n0.1 -> scale-up n0.0', rate: '4 GB/s', both_ways: false}]",)
    assert seconds_per_gib("all_gather", ALL, engine, *fault) == pytest.approx(7 / 8 * GIB / 4e9, rel=0.02)


def test_measured_collectives_of_the_node() -> None:
    """SimuMax's fits of nccl-tests on eight A100 PCIe: (bandwidth over 30 GiB/s) of 2, 4 and 8 GPUs; all but the figures across sockets
    follow from the tree.
    """
    measured = {
        "all_gather": (0.6866, 0.6915, 0.4497), "all_reduce": (0.6965, 0.6924, 0.4176), "reduce_scatter": (0.6419, 0.6845, 0.3688),
    }  # fmt: skip
    for op, shares in measured.items():
        for ranks, share in zip((2, 4, 8), shares, strict=True):
            factor = (2 if op == "all_reduce" else 1) * (ranks - 1) / ranks
            expected = factor / (share * 30)
            assert seconds_per_gib(op, [list(range(ranks))], "flow") == pytest.approx(expected, rel=0.075), (op, ranks)


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
@pytest.mark.parametrize(("groups", "apart"), [(ALL, 0.005), ([[0, 4]], 0.005), (PAIRS, 0.06), (RINGS, 0.06)])
def test_engines_agree_on_small_calls(op: str, groups: list[list[int]], apart: float) -> None:
    topology, routes, _ = node()
    for nbytes in (1 << 12, 1 << 20):
        row = calls(op, nbytes, groups)
        flow, packet = alone.flow_us([row], topology, routes)[0], alone.packet_us(row, topology, routes, Network())
        assert packet == pytest.approx(flow, rel=apart), nbytes


@pytest.mark.parametrize(
    ("cpu", "gpus", "expected"),
    [
        ("amd", (0, 1), (2, 12)), ("amd", (0, 1, 2, 3), (2, 12)), ("amd", tuple(range(8)), (1, 15)), ("amd", (0, 4), (1, 15)),
        ("intel", (0, 1), (1, 20)), ("intel", tuple(range(8)), (1, 10)), ("arm", tuple(range(8)), (1, 6)),
    ],
)  # fmt: skip
def test_channels_that_the_search_finds(cpu: str, gpus: tuple[int, ...], expected: tuple[int, float]) -> None:
    """Between AMD sockets one channel at 15 GB/s and so two thread blocks, in one two at 12 and so four: what NCCL logs on such nodes
    (NCCL tuning guide of the RTX PRO 6000 community wiki).
    """
    platform = node(f"host.cpu={cpu}")[2]
    comm = Communicator((0,) * len(gpus), gpus)
    found = graphs(platform, layout(comm, platform), Nccl())
    assert (len(found.ring.channels), found.ring.bw_intra) == expected and found.nvls is None
    assert (found.ring.type_intra == SYS) == (4 in gpus)
    case = case_of("all_reduce", comm, platform, Nccl())
    assert case.channels == 2 * expected[0]
    assert latency_us(case, "ring", "simple") == pytest.approx(8.4 + 2 * (len(gpus) - 1) * 5.7)


@pytest.mark.parametrize(("gpus", "size", "expected"), [
    ((0, 1), 1 << 22, (2, 2)),  # four channels, two for a peer
    ((0, 4), 1 << 20, (1, 1)),
    ((0, 4), 1 << 22, (1, 1)),
    ((0, 4), (1 << 22) + 1, (2, 2)),  # no part above 32 chunks of 128 KiB
    ((0, 1, 2, 3), 1 << 20, (1, 1)),
])  # fmt: skip
def test_channels_of_sends(gpus, size, expected) -> None:
    (built, _), *_ = calls("ring_shift", size, [list(gpus)])
    assert (built.channels, int(built.edge_weight[0])) == expected
    assert set(built.edge_msg_bytes) == {131072} and built.edge_bytes[0] * built.edge_weight[0] >= size


def test_no_ll128_over_pcie() -> None:
    comm = Communicator((0,) * 4, (0, 1, 2, 3))
    for nbytes in (1 << k for k in range(8, 31)):
        assert choose("all_gather", nbytes, comm, node()[2], Nccl()).protocol != "ll128"


@pytest.mark.parametrize("nics", [1, 2, 4, 8])
def test_rings_of_several_nodes_cross_each_node_once_each_way(nics: int) -> None:
    topology, routes, platform = node("nodes=4", "segment=4", f"nics_per_node={nics}", "spines=shared")
    comm = Communicator(tuple(np.repeat(np.arange(4), 8).tolist()), tuple(range(8)) * 4)
    ring = graphs(platform, layout(comm, platform), Nccl()).ring
    assert ring.bw_inter * len(ring.channels) <= 16 and len(ring.channels) <= nics
    out = ring.channels[0].gpus[-1] * nics // 8
    assert all((c.nic_in, c.nic_out) == (i, out) for i, c in enumerate(ring.channels[:1]))
    built = plan("all_gather", 1 << 26, comm, platform, Nccl())
    inside, island = built.edge_nic_src < 0, layout(comm, platform).island
    crossing = inside & (island[built.edge_src] != island[built.edge_dst])
    assert np.bincount(built.edge_bundle[crossing]).max() == 4  # from the first socket to the second; the NIC is there
    members = np.arange(32, dtype=np.int32)[None]
    flow = alone.flow_us([[(built, members)]], topology, routes)[0]
    assert alone.packet_us([(built, members)], topology, routes, Network(engine="packet")) == pytest.approx(flow, rel=0.1)
