"""Names of vertices and links, and back."""

import numpy as np
import pytest

import topologies
from netsim.config.topology import Fabric
from netsim.errors import InputError
from tests.test_topologies_builders import FABRICS, SMALL


@pytest.mark.parametrize("name", FABRICS)
def test_every_name_leads_back(name: str) -> None:
    topology = topologies.build(FABRICS[name])
    names = [topologies.vertex_name(topology, v) for v in range(topology.vertex_kind.size)]
    assert len(set(names)) == len(names)
    assert [topologies.find_vertex(topology, n) for n in names] == list(range(len(names)))
    links = [topologies.link_name(topology, k) for k in range(topology.link_src.size)]
    assert topologies.link_names(topology).astype(str).tolist() == links
    for link in range(topology.link_src.size):
        assert topologies.find_links(topology, topologies.link_name(topology, link)).tolist() == [link]


def test_names_read_as_people_say_them() -> None:
    topology = topologies.build(Fabric(nodes=64))
    assert topologies.vertex_name(topology, 139) == "n17.g3"
    assert topologies.vertex_name(topology, 512 + 17) == "scale-up n17"
    assert topologies.vertex_name(topology, 512 + 64 + 139) == "nic n17.3"
    leaf = 512 + 64 + 512
    assert [topologies.vertex_name(topology, leaf + i) for i in (0, 1, 2, 16)] == ["leaf r0.s0", "leaf r0.s1", "leaf r1.s0", "spine r0.0"]
    link = int(topologies.find_links(topology, "nic n40.3 -> leaf r3.s1")[0])
    assert topologies.link_name(topology, link) == "nic n40.3 -> leaf r3.s1"
    parallel = topologies.find_links(topology, "leaf r3.s0 -> spine r3.0")
    assert parallel.size == 32 and topologies.link_name(topology, parallel[7]) == "leaf r3.s0 -> spine r3.0 (7)"
    assert topologies.find_links(topology, "n2.g5->nic n2.5").tolist() == [2 * 512 + 21]


def test_shared_switches_have_no_rail() -> None:
    topology = topologies.build(Fabric(builder="fat_tree", nodes=128, gpus_per_node=1, switch=SMALL))
    assert topologies.vertex_name(topology, topology.vertex_kind.size - 1) == "core 15"
    assert np.all(topology.vertex_rail[-topology.n_switches :] == -1)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("leaf r9.s0 -> spine r3.0", "did you mean 'leaf r"),
        ("leaf r3.s0 -> spine r4.0", "expected a link that exists (leaf r3.s0 has links to nic n0.3"),
        ("leaf r3.s0 -> spine r3.0 (32)", "expected a link that exists"),
        ("nic n64.0 -> leaf r0.s0", "nodes are n0 to n63"),
        ("nic n0.8 -> leaf r0.s0", "got 'nic n0.8'"),
        ("leaf r3.s0", "expected a link such as"),
        ("spin r3.0 -> leaf r3.s0", "did you mean 'spine r3.0'?"),
    ],
)
def test_wrong_names_are_told(name: str, sentence: str) -> None:
    topology = topologies.build(Fabric(nodes=64))
    with pytest.raises(InputError) as error:
        topologies.find_links(topology, name)
    assert sentence in error.value.lines[0]
