"""The double binary tree and what runs on it."""

import numpy as np
import pytest

from netsim.collectives import Communicator, plan
from netsim.collectives.double_tree import tree
from netsim.config.nccl import Nccl
from tests.collectives_cases import A100, H100, comm, nic_bytes, nvlink_bytes, play


def test_trees_over_four_nodes():
    assert tree(4, 0).tolist() == [-1, 2, 0, 2]
    assert tree(4, 1).tolist() == [1, 3, 1, -1]


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 64, 100])
@pytest.mark.parametrize("which", [0, 1])
def test_trees_have_one_root_reach_all_and_are_binary(nodes, which):
    up = tree(nodes, which)
    assert (up < 0).sum() == 1
    assert np.bincount(up[up >= 0], minlength=nodes).max(initial=0) <= 2
    depth = 0
    above = np.arange(nodes)
    while (above >= 0).any():
        above = np.where(above >= 0, up[above], -1)
        depth += 1
        assert depth <= nodes.bit_length() + 1


@pytest.mark.parametrize("nodes", [4, 8, 16, 64])
def test_inner_nodes_of_one_tree_are_leaves_of_the_other(nodes):
    """So that no node sends more than its share: in even numbers, every node but the two roots has children in one tree only."""
    first, second = ({int(n) for n in tree(nodes, w)} - {-1} for w in (0, 1))
    assert not first & second


def test_all_reduce_of_1_mib_on_4_nodes():
    built = plan("all_reduce", 2**20, comm(4), H100, Nccl())
    assert (built.algorithm, built.protocol, built.channels) == ("tree", "ll128", 16)
    assert set(built.edge_bytes) == {71_680} and set(built.edge_msgs) == {4} and set(built.edge_msg_bytes) == {18_432}
    for end in ("src", "dst"):
        assert nic_bytes(built, comm(4), end).tolist() == [[143_360] * 8, [286_720] * 8, [286_720] * 8, [143_360] * 8]
        assert (nvlink_bytes(built, 32, end) == 2_007_040).all()


@pytest.mark.parametrize(("machine", "nodes"), [(H100, 1), (H100, 4), (H100, 5), (A100, 3)])
def test_trees_can_be_played(machine, nodes):
    built = plan("all_reduce", 2**20, comm(nodes), machine, Nccl(NCCL_ALGO="Tree"))
    assert built.algorithm == "tree"
    assert play(built).tolist() == built.edge_msgs.tolist()


def test_every_rank_but_the_root_has_one_parent_up_and_down():
    built = plan("all_reduce", 2**20, comm(5), H100, Nccl(NCCL_ALGO="Tree"))
    for bundle in set(built.edge_bundle.tolist()):
        mine = built.edge_bundle == bundle
        assert mine.sum() == 2 * 39
        ups = {(int(a), int(b)) for a, b in zip(built.edge_src[mine], built.edge_dst[mine], strict=True)}
        assert ups == {(b, a) for a, b in ups}


def test_balanced_trees_spread_children_over_two_gpus():
    """On A100 the second child of a node hangs on the second GPU of the chain: no GPU has more than a parent and three children."""
    built = plan("all_reduce", 2**20, comm(8), A100, Nccl(NCCL_ALGO="Tree"))
    for bundle in set(built.edge_bundle.tolist()):
        assert np.bincount(built.edge_dst[built.edge_bundle == bundle]).max() <= 3


@pytest.mark.parametrize("algorithm", ["Ring", "Tree", "NVLSTree"])
@pytest.mark.parametrize("widths", [(8, 2), (2, 8, 3), (5, 5, 8, 5)])
def test_nodes_of_different_sizes(algorithm, widths):
    """Every member sends and receives its part, also those whose place the smallest node does not have."""
    c = Communicator(tuple(n for n, w in enumerate(widths) for _ in range(w)), tuple(g for w in widths for g in range(w)))
    size = 2**22
    built = plan("all_reduce", size, c, H100, Nccl(NCCL_ALGO=algorithm, NCCL_PROTO="Simple"))
    load = built.edge_bytes * built.edge_weight
    for end in (built.edge_src, built.edge_dst):
        assert np.bincount(end, weights=load, minlength=sum(widths)).min() >= size / sum(widths)
    assert play(built).tolist() == built.edge_msgs.tolist()
