"""Rings: worked examples byte by byte, and laws that hold for every ring."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.collectives import plan
from netsim.collectives.plan import build
from netsim.collectives.platform import Communicator, Platform
from netsim.collectives.tuner import case_of
from netsim.config.nccl import Nccl
from netsim.kernels.structs import Plan
from tests.collectives_cases import A100, B200, H100, MACHINES, comm, cross_rail_bytes, nic_bytes, nic_messages, nvlink_bytes, play

RING = Nccl(NCCL_ALGO="Ring", NCCL_PROTO="Simple")


def test_all_reduce_of_256_mib_on_4_nodes():
    built = plan("all_reduce", 2**28, comm(4), H100, RING)
    assert (built.algorithm, built.protocol, built.channels) == ("ring", "simple", 16)
    assert set(built.edge_bytes) == {32_505_856} and set(built.edge_msgs) == {124} and set(built.edge_msg_bytes) == {262_144}
    net = built.edge_nic_src >= 0
    assert set(built.edge_window[~net]) == {4} and set(built.edge_window[net]) == {4 + 4}, "sender and receiver have slots"
    for end in ("src", "dst"):
        assert (nic_bytes(built, comm(4), end) == 65_011_712).all()
        assert (nvlink_bytes(built, 32, end) == 455_081_984).all()
    assert (nic_messages(built, comm(4)) == 248).all()
    assert cross_rail_bytes(built) == 0


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_all_gather_and_reduce_scatter_of_256_mib_on_4_nodes(op):
    built = plan(op, 2**28, comm(4), H100, Nccl())
    assert (built.algorithm, built.protocol, built.channels) == ("ring", "simple", 16)
    assert set(built.edge_bytes) == {16_252_928} and set(built.edge_msgs) == {62} and set(built.edge_msg_bytes) == {262_144}
    assert (nic_bytes(built, comm(4)) == 32_505_856).all()
    assert (nvlink_bytes(built, 32) == 227_540_992).all()


def test_ring_of_channel_0_in_order():
    """0 7 6 5 4 3 2 1 on even nodes, 1 2 3 4 5 6 7 0 on odd ones, rail 1 to rail 1 and rail 0 to rail 0 in turn."""
    built = plan("all_gather", 2**28, comm(2), H100, Nccl(NCCL_MAX_NCHANNELS=2, NCCL_ALGO="Ring", NCCL_PROTO="Simple"))
    first = built.edge_bundle == 0
    following = dict(zip(built.edge_src[first].tolist(), built.edge_dst[first].tolist(), strict=True))
    ring, rank = [0], following[0]
    while rank != 0:
        ring.append(rank)
        rank = following[rank]
    assert ring == [0, 7, 6, 5, 4, 3, 2, 1, 9, 10, 11, 12, 13, 14, 15, 8]
    net = first & (built.edge_nic_src >= 0)
    assert sorted(zip(built.edge_nic_src[net].tolist(), built.edge_nic_dst[net].tolist(), strict=True)) == [(0, 0), (1, 1)]


def test_odd_numbers_of_nodes_cross_rails_at_the_wrap():
    built = plan("all_gather", 2**28, comm(5), H100, RING)
    net = built.edge_nic_src >= 0
    assert (net & (built.edge_nic_src != built.edge_nic_dst)).sum() * 5 == net.sum()


def test_cross_nic_1_always_crosses_and_0_never():
    total = nic_bytes(plan("all_gather", 2**28, comm(4), H100, RING), comm(4)).sum()
    assert (
        cross_rail_bytes(plan("all_gather", 2**28, comm(4), H100, Nccl(NCCL_CROSS_NIC=1, NCCL_ALGO="Ring", NCCL_PROTO="Simple"))) == total
    )
    assert cross_rail_bytes(plan("all_gather", 2**28, comm(5), H100, Nccl(NCCL_CROSS_NIC=0, NCCL_ALGO="Ring", NCCL_PROTO="Simple"))) == 0


def test_relayed_rings_send_everything_over_nvlink_too():
    built = plan("all_gather", 2**28, comm(4), B200, RING)
    assert set(nvlink_bytes(built, 32)) == {260_046_848}
    net = np.flatnonzero(built.edge_nic_src >= 0)
    for e in net:
        feeding = built.dep_idx[built.dep_ptr[e] : built.dep_ptr[e + 1]]
        assert (built.edge_dst[feeding] == built.edge_src[e]).all() and (built.edge_nic_src[feeding] < 0).all()
        assert (built.dep_lag[built.dep_ptr[e] : built.dep_ptr[e + 1]] == 0).all()


def test_ring_on_a100_leaves_through_the_neighbour_of_its_switch():
    built = plan("all_gather", 2**28, comm(2), A100, RING)
    net = built.edge_nic_src >= 0
    assert (built.edge_src[net] % 8 // 2 == built.edge_nic_src[net] // 2).all()
    assert cross_rail_bytes(built) == 0


def test_one_gpu_per_node_uses_one_nic():
    c = Communicator(tuple(range(16)), (3,) * 16)
    built = plan("all_gather", 2**28, c, H100, RING)
    sent = nic_bytes(built, c)
    assert (sent[:, 3] == 15 * 2**24).all() and sent.sum() == sent[:, 3].sum()
    assert len(built.bundle_cap) == built.channels == 4


def test_queue_pairs_share_the_messages():
    nccl = [replace(RING, NCCL_IB_QPS_PER_CONNECTION=q, NCCL_IB_SPLIT_DATA_ON_QPS=1) for q in (1, 2)]
    one, two = (plan("all_gather", 2**28, comm(2), H100, choice) for choice in nccl)
    assert (nic_bytes(one, comm(2)) == nic_bytes(two, comm(2))).all()
    assert len(set(two.edge_qp[two.edge_nic_src >= 0])) == 2 * len(set(one.edge_qp[one.edge_nic_src >= 0]))


def test_queue_pairs_that_carry_messages_in_turn_are_left_to_the_engines():
    in_turn = plan("all_gather", 2**28, comm(2), H100, replace(RING, NCCL_IB_QPS_PER_CONNECTION=2))
    assert in_turn.qps == 2
    assert in_turn.edge_qp.tolist() == plan("all_gather", 2**28, comm(2), H100, RING).edge_qp.tolist()


@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_chains_from_and_to_the_root(op):
    built = plan(op, 2**26, comm(2), H100, Nccl(NCCL_PROTO="Simple"))
    sent, received = nvlink_bytes(built, 16) + _by_rank(built, "src"), nvlink_bytes(built, 16, "dst") + _by_rank(built, "dst")
    assert (received if op == "broadcast" else sent)[0] == 0
    assert sent.sum() == received.sum() == 15 * 2**26
    assert play(built).tolist() == built.edge_msgs.tolist()


def _by_rank(built, end):
    net = built.edge_nic_src >= 0
    return np.bincount(getattr(built, f"edge_{end}")[net], weights=(built.edge_bytes * built.edge_weight)[net], minlength=16).astype(
        np.int64
    )


@settings(deadline=None, max_examples=60)
@given(
    op=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
    machine=st.sampled_from(["H100", "A100", "B200"]),
    nodes=st.integers(1, 6),
    width=st.sampled_from([1, 2, 4, 8]),
    size=st.integers(1, 2**31),
    cross=st.sampled_from([0, 2]),
)
def test_laws_of_every_ring(op, machine, nodes, width, size, cross):
    """Bytes per rank are those of a ring; every edge of a channel carries the same; NICs share them; NVLink carries the rest."""
    ranks = nodes * width
    if ranks < 2:
        return
    c, platform = comm(nodes, width), MACHINES[machine]
    nccl = Nccl(NCCL_ALGO="Ring", NCCL_PROTO="Simple", NCCL_CROSS_NIC=cross)
    built = plan(op, size, c, platform, nccl)
    channels = len(set(built.edge_bundle.tolist())) if width == 1 and nodes > 1 else built.channels
    assert all(len(set(built.edge_bytes[built.edge_bundle == b])) == 1 for b in set(built.edge_bundle))
    shard = -(-size // ranks)
    sent = 2 * (ranks - 1) / ranks * size if op == "all_reduce" else (ranks - 1) * shard
    net = nic_bytes(built, c)
    if nodes > 1:
        per_node = net.sum(axis=1)
        assert (per_node == per_node[0]).all()
        assert sent <= per_node[0] <= sent + 2 * channels * ranks * 16
        assert (nic_bytes(built, c, "dst").sum(axis=1) == per_node).all()
    if cross == 0 or nodes % 2 == 0:
        assert cross_rail_bytes(built) == 0
    inside = nvlink_bytes(built, ranks)
    if nodes == 1:
        assert sent <= inside[0] <= sent + 2 * channels * ranks * 16
    relayed = case_of(op, c, platform, nccl).graphs.ring.type_inter == 7 and width > 1
    if nodes > 1:
        exits = 0 if relayed else net.sum()
        assert inside.sum() == net.sum() * width - exits


@pytest.mark.parametrize(("op", "machine", "nodes"), [("all_reduce", H100, 2), ("all_gather", B200, 3), ("reduce_scatter", A100, 1)])
def test_rings_can_be_played(op, machine, nodes):
    built = plan(op, 2**24, comm(nodes), machine, RING)
    assert play(built).tolist() == built.edge_msgs.tolist()


def test_identical_channels_share_rows():
    """128 nodes of 8: per ring 896 edges inside nodes for both of its channels, 128 to the next node for each."""
    built = plan("all_reduce", 2**30, comm(128), H100, RING)
    assert len(built.edge_src) == 8 * (896 + 2 * 128)
    assert set(built.edge_weight[built.edge_nic_src < 0]) == {2} and set(built.edge_weight[built.edge_nic_src >= 0]) == {1}


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "broadcast", "all_to_all", "sendrecv"])
def test_rail_7_is_rail_0_on_other_nics(op: str) -> None:
    """What `plan` takes as given, against the plan that is built for the rail itself."""
    platform, rail = Platform("hopper", 8, 8, 50e9), 7
    members = Communicator((0, 1) if op == "sendrecv" else tuple(range(6)), (rail,) * (2 if op == "sendrecv" else 6))
    moved, built = plan(op, 3 << 20, members, platform, Nccl()), build(op, 3 << 20, members, platform, Nccl())
    assert (built.edge_nic_src == rail).any()
    for field, a, b in zip(Plan._fields, moved, built, strict=True):
        assert np.array_equal(a, b), field
