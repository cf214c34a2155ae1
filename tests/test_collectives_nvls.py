"""NVLS, NVLSTree, PAT and CollNet: bytes, messages and order."""

import numpy as np
import pytest

from netsim.collectives import idle_us, plan
from netsim.collectives.algorithms import nvls, pat
from netsim.config.nccl import Nccl
from tests.collectives_cases import B200, H100, comm, nic_bytes, nvlink_bytes, play


def test_nvls_tree_of_256_mib_on_4_nodes():
    built = plan("all_reduce", 2**28, comm(4), H100, Nccl())
    assert (built.algorithm, built.channels) == ("nvls_tree", 16)
    for end in ("src", "dst"):
        assert nic_bytes(built, comm(4), end).tolist() == [[33_554_432] * 8, [67_108_864] * 8, [67_108_864] * 8, [33_554_432] * 8]
        assert (nvlink_bytes(built, 32, end) == 301_989_888).all()
    net = built.edge_nic_src >= 0
    assert set(built.edge_msgs) == {32} and set(built.edge_msg_bytes[net]) == {65_536}


def test_nvls_on_one_node_moves_the_buffer_and_a_head_s_share():
    built = plan("all_reduce", 2**30, comm(1), H100, Nccl())
    assert (built.algorithm, built.channels) == ("nvls", 16)
    for end in ("src", "dst"):
        assert (nvlink_bytes(built, 8, end) == 2**30 + 2**27).all()
    assert play(built).tolist() == built.edge_msgs.tolist()


def test_chunks_of_nvls_shrink_with_the_share():
    sizes = [nvls.chunk_size(share, 8, 131072) for share in (2**26, 2**26 - 1, 2**22, 2**22 - 1, 2**19, 2**19 - 1)]
    assert sizes == [131072, 65536, 65536, 32768, 32768, 16384]


@pytest.mark.parametrize(("machine", "nodes"), [(H100, 2), (H100, 3), (H100, 4), (B200, 5)])
def test_nvls_tree_can_be_played(machine, nodes):
    built = plan("all_reduce", 2**25, comm(nodes), machine, Nccl(NCCL_ALGO="NVLSTree"))
    assert play(built).tolist() == built.edge_msgs.tolist()


def test_two_nodes_are_not_bound_by_their_nics():
    """Each byte crosses once, so the bus bandwidth of two nodes exceeds that of their NICs (published: 468 GB/s with 8 x 50 GB/s)."""
    size = 2**33
    assert size / idle_us(plan("all_reduce", size, comm(2), H100, Nccl())) / 1e3 * 30 / 16 > 400


def test_shards_of_pat():
    assert pat.shards(16) == [8, 4, 2, 1]
    assert pat.shards(6) == [3, 1, 1]
    assert all(sum(pat.shards(ranks)) == ranks - 1 for ranks in range(2, 200))


def test_messages_of_pat():
    """16 ranks: shards of 4 KiB travel in one message per dimension, shards of 512 KiB in eight times 8, 4, 2, 1."""
    assert pat.aggregation(4096, 65536, 16) == 8
    small = plan("all_gather", 16 * 4096, comm(16, 1), H100, Nccl(NCCL_ALGO="PAT", NCCL_MAX_NCHANNELS=1))
    assert set(small.edge_msgs) == {1} and len(small.edge_src) == 64
    large = plan("all_gather", 16 * 2**19, comm(16, 1), H100, Nccl(NCCL_ALGO="PAT", NCCL_MAX_NCHANNELS=1))
    chunk = 262144  # 512 KiB halved while chunk x 32 exceeds 8 MiB
    assert sorted(set(large.edge_msgs.tolist())) == [2**19 // chunk * n for n in (1, 2, 4, 8)]


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("ranks", [2, 5, 6, 16])
def test_pat_sends_what_a_ring_sends_in_fewer_steps(op, ranks):
    size = ranks * 65536
    built = plan(op, size, comm(ranks, 1), H100, Nccl(NCCL_ALGO="PAT"))
    assert built.algorithm == "pat"
    assert (nic_bytes(built, comm(ranks, 1)).sum(axis=1) == (ranks - 1) * 65536).all()
    distance = (built.edge_src - built.edge_dst) % ranks if op == "all_gather" else (built.edge_dst - built.edge_src) % ranks
    assert set(distance.tolist()) == {2**i for i in range((ranks - 1).bit_length())}
    assert play(built).tolist() == built.edge_msgs.tolist()


def test_all_gather_on_pat_goes_from_far_to_near():
    built = plan("all_gather", 2**20, comm(16, 1), H100, Nccl(NCCL_ALGO="PAT", NCCL_MAX_NCHANNELS=1))
    distance = (built.edge_src - built.edge_dst) % 16
    for e in range(len(built.edge_src)):
        for d in built.dep_idx[built.dep_ptr[e] : built.dep_ptr[e + 1]]:
            assert distance[d] == 2 * distance[e] and built.edge_dst[d] == built.edge_src[e]


@pytest.mark.parametrize("algorithm", ["CollnetDirect", "CollnetChain"])
def test_collnet_sends_each_head_s_part_once(algorithm):
    nccl = Nccl(NCCL_ALGO=algorithm, NCCL_COLLNET_ENABLE=1)
    built = plan("all_reduce", 2**26, comm(4), H100, nccl)
    for end in ("src", "dst"):
        assert (nic_bytes(built, comm(4), end) == 2**23).all()
    assert play(built).tolist() == built.edge_msgs.tolist()
    assert np.isfinite(idle_us(built))
