"""Fabrics from lists of cables."""

from pathlib import Path

import pytest

import topologies
from netsim.config.topology import Edge, Fabric
from netsim.errors import InputError

RING = tuple(Edge(f"nic n{i}.0", f"leaf {i}") for i in range(4)) + tuple(
    Edge(f"leaf {i}", f"leaf {(i + 1) % 4}", rate=25e9) for i in range(4)
)


def custom(*edges: Edge, **fields: int) -> Fabric:
    return Fabric(**({"builder": "custom", "nodes": 4, "gpus_per_node": 1, "edges": edges} | fields))


def test_a_ring_of_leaves() -> None:
    topology = topologies.build(custom(*RING))
    assert topology.n_switches == 4 and (topology.link_rate == 25e9).sum() == 8
    assert topologies.vertex_name(topology, topology.vertex_kind.size - 1) == "leaf 3"


def test_rails_and_tiers_come_from_names() -> None:
    topology = topologies.build(
        custom(Edge("leaf r1.s0", "nic n0.1"), Edge("nic n0.0", "leaf r0.s0"), Edge("core 0", "leaf r0.s0"), Edge("core 0", "leaf r1.s0"),
               nodes=1, gpus_per_node=2)
    )  # fmt: skip
    assert topology.vertex_tier[-3:].tolist() == [1, 1, 3] and topology.vertex_rail[-3:].tolist() == [0, 1, -1]


def test_a_csv_file_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "ring.csv"
    rows = [f"nic n{i}.0, leaf {i}, , , " for i in range(4)] + [f"leaf {i}, leaf {(i + 1) % 4}, 200 Gbps, 1 us, 1" for i in range(4)]
    file.write_text("\n".join(["a,b,rate,latency,count", *rows]))
    topology = topologies.build(Fabric(builder="custom", nodes=4, gpus_per_node=1, edges=str(file)))
    plain = topologies.build(custom(*RING))
    assert topology.link_rate.tolist() == plain.link_rate.tolist() and topology.link_src.tolist() == plain.link_src.tolist()
    assert topology.link_latency[-1] == 1_000_000 + 300_000


@pytest.mark.parametrize(
    ("edges", "sentences"),
    [
        ((*RING, Edge("leaf 0", "leaf 0")), ["topology.edges.8: expected a cable between two ends; got 'leaf 0' twice"]),
        ((*RING, Edge("tor 0", "leaf 0")), ["topology.edges.8: expected an end such as"]),
        ((*RING, Edge("nic n0.0", "nic n1.0")), ["topology.edges.8: expected a switch at one end"]),
        ((*RING, Edge("nic n4.0", "leaf 0")), ["topology.edges.8: expected a NIC of 4 nodes with 1 NICs; got 'nic n4.0'"]),
        ((*RING, Edge("leaf 6", "leaf 0")), ["numbered from 0 without gaps; got leaf 6 but only 5 of its kind"]),
        ((*RING[1:],), ["expected a cable from every NIC; got none from nic n0.0"]),
        ((Edge("x", "y"), Edge("z", "z")), ["topology.edges.0: expected an end", "topology.edges.1: expected an end"]),
        ((*RING, Edge("leaf 0", "leaf 1", count=65)), ["topology.leaf.radix: expected at least the 68 ports that leaf 0 uses; got 64"]),
    ],
)
def test_wrong_cables_are_told_all_at_once(edges: tuple[Edge, ...], sentences: list[str]) -> None:
    with pytest.raises(InputError) as error:
        topologies.build(custom(*edges))
    assert len(error.value.lines) == len(sentences)
    for line, sentence in zip(error.value.lines, sentences, strict=True):
        assert sentence in line


def test_wrong_csv_files_are_told(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"

    def lines(text: str | None) -> list[str]:
        if text is not None:
            file.write_text(text)
        with pytest.raises(InputError) as error:
            topologies.build(Fabric(builder="custom", edges=str(file)))
        return error.value.lines

    assert "no such file" in lines(None)[0]
    assert "expected a heading" in lines("a,b\n")[0]
    wrong = lines("a,b,rate,count\nnic n0.0,leaf 0,400 Gbs,1\nnic n1.0,,,x\n")
    assert [line.removeprefix(str(file)).split(";")[0] for line in wrong] == [
        ":2: rate: expected a rate such as '400 gbps'",
        ":3: b: field required",
        ":3: count: input should be a valid integer",
    ]
