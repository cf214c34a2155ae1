"""Sends and receives: worked examples, the order of peers, relays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.collectives import Communicator, plan
from netsim.collectives.p2p_schedule import channel_base, node_offsets, p2p_channels, rounds
from netsim.collectives.platform import Platform
from netsim.config.nccl import Nccl
from tests.collectives_cases import A100, H100, comm, cross_rail_bytes, nic_bytes, nic_messages, nvlink_bytes, play


def test_all_to_all_with_relays():
    built = plan("all_to_all", 64 * 2**20, comm(4), H100, Nccl())
    for end in ("src", "dst"):
        assert (nic_bytes(built, comm(4), end) == 50_331_648).all()
        assert (nvlink_bytes(built, 32, end) == 58_720_256).all()
    assert (nic_messages(built, comm(4)) == 384).all()
    assert cross_rail_bytes(built) == 0
    assert set(built.edge_msg_bytes) == {131_072} and set(built.edge_bytes) == {524_288}
    net = built.edge_nic_src >= 0
    pairs = {(int(a), int(b)) for a, b in zip(built.edge_src[net], built.edge_dst[net], strict=True)}
    assert pairs == {(a, b) for a in range(32) for b in range(32) if a // 8 != b // 8 and a % 8 == b % 8}
    assert play(built).tolist() == built.edge_msgs.tolist()


def test_all_to_all_without_relays():
    built = plan("all_to_all", 64 * 2**20, comm(4), H100, Nccl(NCCL_PXN_DISABLE=1))
    assert (nic_bytes(built, comm(4)) == 50_331_648).all()
    assert cross_rail_bytes(built) == 32 * 44_040_192
    assert (nvlink_bytes(built, 32) == 14_680_064).all()
    net = built.edge_nic_src >= 0
    assert len(set(zip(built.edge_src[net].tolist(), built.edge_dst[net].tolist(), strict=True))) == 32 * 24


def test_all_to_all_inside_a_node():
    built = plan("all_to_all", 64 * 2**20, comm(1), H100, Nccl())
    assert set(built.edge_weight) == {4} and set(built.edge_msgs) == {4} and set(built.edge_msg_bytes) == {524_288}
    assert (nvlink_bytes(built, 8) == 58_720_256).all()


@pytest.mark.parametrize(("size", "messages"), [(6_291_456, 12), (16 * 2**20, 32)])
def test_send_from_stage_to_stage(size, messages):
    c = Communicator((0, 1), (3, 3), 8)
    built = plan("sendrecv", size, c, H100, Nccl())
    assert built.edge_bytes.tolist() == [size // 4] * 4 and built.edge_msgs.tolist() == [messages] * 4
    assert built.edge_msg_bytes.tolist() == [131_072] * 4 and built.edge_window.tolist() == [8 + 8] * 4
    assert built.edge_nic_src.tolist() == built.edge_nic_dst.tolist() == [3] * 4
    assert len(set(built.edge_qp)) == 4 and len(set(built.edge_bundle)) == 4


def test_order_of_peers_and_their_channels():
    order = rounds(4, 8)
    sends = [r.node * 8 + r.local for r in order]
    receives = [(-r.node % 4) * 8 + (-r.local % 8) for r in order]
    assert sends == [*range(8), *range(8, 16), *range(24, 32), *range(16, 24)]
    assert receives == [0, *range(7, 0, -1), 24, *range(31, 24, -1), 8, *range(15, 8, -1), 16, *range(23, 16, -1)]
    assert [channel_base(r, 4, 8, 16) for r in order[::8]] == [0, 8, 4, 12]
    assert [channel_base(r, 1, 8, 32) for r in rounds(1, 8)] == [0, 16, 8, 24, 4, 20, 12, 28]


@given(nodes=st.integers(1, 40), width=st.sampled_from([1, 2, 3, 4, 8]))
def test_every_peer_is_met_once(nodes, width):
    assert sorted(rounds(nodes, width)) == [(d, k) for d in range(nodes) for k in range(width)]
    assert sorted(node_offsets(nodes)) == list(range(nodes))


@pytest.mark.parametrize(
    ("machine", "nodes", "expected"),
    [(H100, 4, (16, 4)), (H100, 8, (16, 2)), (H100, 16, (16, 1)), (A100, 8, (16, 2)), (A100, 16, (16, 1)), (H100, 1, (32, 32))],
)
def test_channels_per_peer(machine, nodes, expected):
    total = 24 if nodes == 1 else 16
    assert p2p_channels(total, machine, nodes, 8 * nodes, Nccl()) == expected


def test_ring_shift_sends_every_rank_s_message_once():
    built = plan("ring_shift", 2**24, comm(2), H100, Nccl())
    net = nic_bytes(built, comm(2))
    assert net.sum() == 2 * 2**24
    assert net[:, 0].tolist() == [2**24] * 2, "GPU 7 hands its message to GPU 0, whose rail the next node's GPU 0 is on"
    assert cross_rail_bytes(built) == 0
    assert cross_rail_bytes(plan("ring_shift", 2**24, comm(2), H100, Nccl(NCCL_P2P_PXN_LEVEL=0))) == 2 * 2**24


def test_a_ring_shift_holds_the_thread_blocks_of_one_peer():
    """Every member sends to one and receives from one, on the same channels: those of a message to one peer, however long the ring."""
    shifts = [plan("ring_shift", 2**22, comm(1, ranks), H100, Nccl()) for ranks in (2, 4, 8)]
    assert [p.channels for p in shifts] == [int(p.edge_weight[0]) for p in shifts] == [16, 8, 4]
    assert plan("all_to_all", 8 * 2**22, comm(1), H100, Nccl()).channels == 7 * 4


@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_gather_and_scatter(op):
    built = plan(op, 2**24, comm(2), H100, Nccl())
    at_root = nic_bytes(built, comm(2), "dst" if op == "gather" else "src")
    assert at_root[0].sum() == 2**23
    assert nic_bytes(built, comm(2)).sum() == 2**23
    assert play(built).tolist() == built.edge_msgs.tolist()


def test_small_messages_inside_a_node_are_ll():
    built = plan("all_to_all", 8 * 16384, comm(1), H100, Nccl())
    assert built.protocol == "ll" and set(built.edge_bytes) == {32768}
    assert plan("all_to_all", 8 * 65536, comm(1), H100, Nccl()).protocol == "simple"


@pytest.mark.parametrize("nics", [1, 2, 4, 16])
def test_all_to_all_with_other_numbers_of_nics(nics):
    machine = Platform("hopper", 8, nics, 50e9)
    built = plan("all_to_all", 2**24, comm(3), machine, Nccl())
    sent = nic_bytes(built, comm(3), nics=nics)
    assert (sent > 0).all() and sent.sum() == pytest.approx(24 * 16 * 2**24 / 24, rel=1e-4)
    assert np.isfinite(built.bundle_cap).all()


def test_large_all_to_all_has_few_rows():
    built = plan("all_to_all", 2**26, comm(64), H100, Nccl())
    assert len(built.bundle_cap) < 200
    assert (nic_bytes(built, comm(64)) == 63 * 8 * 2**26 // 512).all()
