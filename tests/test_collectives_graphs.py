"""Channels by rule against what NCCL's search finds, and graphs from files."""

import json

import pytest

from netsim.collectives.channels import compute_channels, nvls_channels, split
from netsim.collectives.graph_file import read
from netsim.collectives.graphs import PXN, graphs
from netsim.collectives.platform import Platform, layout
from netsim.config.nccl import Nccl
from netsim.errors import InputError
from tests.collectives_cases import A100, B200, B300, H100, comm

# machine, nodes, GPUs per node: ring channels x intra/inter, tree channels x intra/inter and pattern, channels of a communicator
SEARCHED = [
    (A100, 1, 8, (12, 20, 20), (12, 20, 20, "balanced_tree"), 24),
    (A100, 4, 8, (8, 24, 24), (8, 30, 24, "balanced_tree"), 16),
    (H100, 1, 8, (12, 30, 30), (12, 30, 30, "balanced_tree"), 24),
    (H100, 4, 8, (8, 48, 48), (8, 48, 48, "tree"), 16),
    (B200, 1, 8, (16, 45, 45), (16, 45, 45, "balanced_tree"), 32),
    (B200, 4, 8, (8, 48, 48), (8, 96, 48, "tree"), 16),
    (B300, 4, 8, (16, 48, 48), (16, 48, 48, "tree"), 32),
    (H100, 16, 1, (2, 24, 24), (2, 48, 24, "tree"), 4),
    (A100, 16, 1, (1, 24, 24), None, 2),
    (H100, 4, 2, (4, 24, 24), None, 8),
    (H100, 4, 4, (8, 24, 24), None, 16),
    (A100, 4, 2, (2, 24, 24), None, 4),
    (H100, 1, 2, (12, 30, 30), None, 24),
    (H100, 1, 4, (12, 30, 30), None, 24),
]


@pytest.mark.parametrize(("machine", "nodes", "width", "ring", "tree", "channels"), SEARCHED)
def test_searched_graphs(machine, nodes, width, ring, tree, channels):
    place, nccl = layout(comm(nodes, width), machine), Nccl()
    found = graphs(machine, place, nccl)
    assert (len(found.ring.channels), found.ring.bw_intra, found.ring.bw_inter) == ring
    if tree:
        assert (len(found.tree.channels), found.tree.bw_intra, found.tree.bw_inter, found.tree.pattern) == tree
    assert compute_channels(found, machine, place, nccl) == channels


def test_thread_blocks_of_nvls():
    assert [nvls_channels(m, layout(comm(n), m), Nccl()) for m, n in ((H100, 1), (H100, 4), (B200, 1), (B200, 2), (B200, 4))] == [
        16,
        16,
        24,
        32,
        24,
    ]


def test_ring_orders_of_hopper():
    """Channel 0 goes down from GPU 0 and leaves on rail 1, channel 1 up from GPU 1 and leaves on rail 0."""
    ring = graphs(H100, layout(comm(4), H100), Nccl()).ring
    assert ring.cross_nic == 2
    assert ring.channels[0] == (0, (0, 7, 6, 5, 4, 3, 2, 1), 1)
    assert ring.channels[1] == (1, (1, 2, 3, 4, 5, 6, 7, 0), 0)


def test_cross_nic_off_relays_at_45():
    ring = graphs(H100, layout(comm(4), H100), Nccl(NCCL_CROSS_NIC=0)).ring
    assert (ring.bw_inter, ring.type_inter, ring.channels[3].nic_out) == (45, PXN, 3)
    without = graphs(H100, layout(comm(4), H100), Nccl(NCCL_CROSS_NIC=0, NCCL_PXN_DISABLE=1)).ring
    assert (without.bw_inter, without.type_inter) == (40, 8)


@pytest.mark.parametrize(("nics", "rate"), [(4, 25e9), (4, 50e9), (8, 12.5e9), (16, 25e9), (1, 50e9)])
def test_other_numbers_of_nics(nics, rate):
    machine = Platform("hopper", 8, nics, rate)
    place = layout(comm(4), machine)
    ring = graphs(machine, place, Nccl()).ring
    assert {c.nic_in for c in ring.channels} == set(range(nics))
    assert all(sorted(c.gpus) == list(range(8)) for c in ring.channels)
    assert len(ring.channels) * ring.bw_inter <= nics * rate / 1e9


XML = """<graphs version="1"><graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="24" speedinter="24" typeintra="NVL"
typeinter="PIX">
<channel><net dev="0"/><gpu dev="2"/><gpu dev="0"/><gpu dev="1"/><net dev="1"/></channel></graph></graphs>"""


def test_graph_file_in_xml_and_json(tmp_path):
    (tmp_path / "g.xml").write_text(XML)
    ring = read(str(tmp_path / "g.xml")).ring
    assert (ring.channels, ring.bw_intra, ring.type_inter) == (((0, (2, 0, 1), 1),), 24.0, 4)
    entry = {"id": 0, "pattern": 4, "speedintra": 24, "speedinter": 24, "typeintra": "NVL", "typeinter": "PIX"}
    (tmp_path / "g.json").write_text(json.dumps({"graphs": [{**entry, "channels": [{"nets": [0, 1], "gpus": [2, 0, 1]}]}]}))
    assert read(str(tmp_path / "g.json")).ring == ring


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<graphs", "XML or JSON"),
        (XML.replace('typeinter="PIX"', 'typeinter="PXI"'), "did you mean"),
        (XML.replace('id="0"', 'id="1"'), "id 0, the ring"),
        (XML.replace('speedintra="24"', ""), "speedintra"),
    ],
)
def test_broken_graph_files_are_input_errors(tmp_path, text, words):
    (tmp_path / "g.xml").write_text(text)
    with pytest.raises(InputError, match=words):
        read(str(tmp_path / "g.xml"))


def test_missing_graph_file(tmp_path):
    with pytest.raises(InputError, match="can be read"):
        read(str(tmp_path / "none.xml"))


def test_split_of_a_buffer():
    assert split(2**28, 2, 16) == (2**24,) * 16
    assert split(2**23, 32, 16) == (524288,) * 16
    assert split(8, 2, 16) == (8,)
    assert sum(split(10**7 + 3, 2, 16)) == 10**7 + 3
    assert len(split(65536, 2, 16)) < 16
