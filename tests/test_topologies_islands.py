"""Nodes whose GPUs hang on several switches: links between islands, their names, faults on them, and what a run file may not say."""

from itertools import pairwise

import numpy as np
import pytest

import topologies
from netsim.config.load import load_section
from netsim.config.topology import Fabric, Fault, ScaleUp
from netsim.errors import InputError
from netsim.kernels import routing
from netsim.kernels.structs import LINK_TIERS
from topologies.measure import measure

TWO = ScaleUp(20e9, 1_000_000, "pcie", 2, 16e9, 300_000)
FABRICS = {
    "sockets": Fabric(nodes=3, scale_up=TWO),
    "one NIC": Fabric(nodes=2, nics_per_node=1, scale_up=TWO),
    "pairs": Fabric(nodes=3, nics_per_node=4, scale_up=ScaleUp(islands=4, between=16e9)),
}


@pytest.mark.parametrize("name", FABRICS)
def test_every_two_islands_of_a_node_are_joined_both_ways(name: str) -> None:
    fabric = FABRICS[name]
    top, k = topologies.build(fabric), fabric.scale_up.islands
    link = np.flatnonzero(top.link_tier == LINK_TIERS.index("between"))
    ends = {(int(top.link_src[i]) - top.n_gpus, int(top.link_dst[i]) - top.n_gpus) for i in link}
    assert ends == {(a, b) for a in range(top.n_nodes * k) for b in range(top.n_nodes * k) if a != b and a // k == b // k}
    assert (top.link_rate[link] == 16e9).all() and (top.link_latency[link] == 300_000).all()
    assert np.array_equal(top.link_src[top.link_reverse], top.link_dst) and np.array_equal(top.link_dst[top.link_reverse], top.link_src)
    assert np.array_equal(top.link_rate[top.link_reverse], top.link_rate)


@pytest.mark.parametrize("name", FABRICS)
def test_links_from_gpu_to_gpu_are_one_way(name: str) -> None:
    top = topologies.build(FABRICS[name])
    src, dst = np.divmod(np.arange(64), 8)
    for first in (0, top.n_gpus - 8):
        for a, b in zip((src + first).tolist(), (dst + first).tolist(), strict=True):
            up, across, down = (int(link) for link in routing.scale_up_links(top, np.int64(a), np.int64(b)))
            way = [up, down] if across < 0 else [up, across, down]
            assert top.link_src[up] == a and top.link_dst[down] == b
            assert all(top.link_dst[x] == top.link_src[y] for x, y in pairwise(way))
            assert (across < 0) == (routing.island_of(top, a) == routing.island_of(top, b))


@pytest.mark.parametrize("name", FABRICS)
def test_names_lead_back(name: str) -> None:
    top = topologies.build(FABRICS[name])
    names = [topologies.vertex_name(top, v) for v in range(top.vertex_kind.size)]
    assert [topologies.find_vertex(top, n) for n in names] == list(range(len(names)))
    assert topologies.link_names(top).astype(str).tolist() == [topologies.link_name(top, k) for k in range(top.link_src.size)]
    for link in range(top.link_src.size):
        assert topologies.find_links(top, topologies.link_name(top, link)).tolist() == [link]


def test_names_of_islands() -> None:
    top = topologies.build(FABRICS["sockets"])
    link = int(topologies.find_links(top, "scale-up n1.0 -> scale-up n1.1")[0])
    assert LINK_TIERS[top.link_tier[link]] == "between" and topologies.link_name(top, link) == "scale-up n1.0 -> scale-up n1.1"
    with pytest.raises(InputError, match=r"got 'scale-up n1'"):
        topologies.find_links(top, "scale-up n1 -> n8.g0")


def test_faults_on_the_link_between() -> None:
    slow = Fault("scale-up n0.1 -> scale-up n0.0", rate=4e9, both_ways=False)
    top = topologies.build(Fabric(nodes=2, scale_up=TWO, faults=(slow,)))
    between = top.link_rate[top.link_tier == LINK_TIERS.index("between")]
    assert between.tolist() == [16e9, 4e9, 16e9, 16e9]


def test_report_of_islands() -> None:
    fabric = FABRICS["sockets"]
    top = topologies.build(fabric)
    report = measure(top, fabric, topologies.routes(top, fabric))
    assert (report.islands, report.between_bytes_per_s, report.slow_links) == (2, 16e9, 0)
    assert report.cables == {"nic": 24}


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["scale_up.islands=3"], "scale_up.islands: expected a divisor of gpus_per_node: 8, such as 2 or 4; got 3"),
        (["scale_up.islands=1"], "scale_up.between: expected islands: 2 (or more) for a link to join; got islands: 1"),
        (["scale_up.between=null"], "scale_up.between: expected the rate of the link between two islands, such as '16 GB/s', with islands"),
        (["scale_up.between='0 GB/s'"], "scale_up.between: expected a rate above 0"),
    ],
)
def test_what_cannot_be(settings: list[str], line: str) -> None:
    with pytest.raises(InputError) as error:
        load_section("a100_pcie", Fabric, settings)
    assert len(error.value.lines) == 1 and line in error.value.lines[0]
