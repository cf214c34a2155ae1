"""Calls of collectives on the packet engine: messages, credits, completion, against hand-derived times."""

from dataclasses import replace

import numpy as np
import pytest

from netsim.config.topology import Fabric, Host, Link, ScaleUp, Switch
from netsim.kernels.structs import Array, Plan
from netsim.network.api import PS_NEVER
from tests import packet_cases as cases
from tests.packet_cases import PLAIN, tree

S, D, W, A = 83_200, 500_000, 300_000, 1_280
FOUR = 4 * 4096  # a message of four full packets


def plan(
    src: list[int], dst: list[int], msgs: int, nbytes: int, window: int, deps: list[list[tuple[int, int]]], nic: int = 0, **more: Array
) -> Plan:
    """Edges src -> dst with `msgs` messages of `nbytes`; deps[e] lists (edge, lag)."""
    n = len(src)
    ints = {name: np.zeros(n, np.int32) for name in ("edge_qp", "edge_bundle")} | {"edge_weight": np.ones(n, np.int32)}
    return Plan(
        "ring", "simple", 1, 7_000, 0, np.array(src, np.int32), np.array(dst, np.int32),
        edge_nic_src=np.full(n, nic, np.int32), edge_nic_dst=np.full(n, nic, np.int32),
        edge_bytes=np.full(n, msgs * nbytes), edge_msgs=np.full(n, msgs, np.int32), edge_msg_bytes=np.full(n, nbytes),
        edge_window=np.full(n, window, np.int32), dep_ptr=np.cumsum([0, *map(len, deps)]).astype(np.int32),
        dep_idx=np.array([e for d in deps for e, _ in d], np.int32), dep_lag=np.array([lag for d in deps for _, lag in d], np.int32),
        bundle_cap=np.full(1, np.inf), **{**ints, **more},
    )  # fmt: skip


def completion(fabric: Fabric, p: Plan, members: list[int], start: int = 0) -> int:
    """When a lone call completes, asked for in steps of the engine's own lower bounds."""
    engine = cases.engine(fabric, PLAIN)
    engine.start(np.array([5]), np.array([engine.register(p, np.array(members))]), np.array([start]))
    while True:
        bound = engine.next_time()
        assert bound < PS_NEVER
        done, when = engine.advance(bound)
        if done.size:
            assert done.tolist() == [5]
            assert engine.next_time() == PS_NEVER
            return int(when[0])


def message(packets: int, links: int = 2) -> int:
    """From the first bit's start until the last arrives."""
    return packets * S + (links - 1) * S + links * D + (links - 1) * W


BARE = tree(host=Host(latency=0))


def test_messages_follow_each_other_at_line_rate():
    assert completion(BARE, plan([0], [1], 6, FOUR, 8, [[]]), [0, 1]) == 7_000 + message(24)


def test_the_bus_adds_its_latency_at_both_ends():
    p = plan([0], [1], 1, FOUR, 8, [[]])
    assert completion(tree(host=Host(latency=400_000)), p, [0, 1], 1_000) == 1_000 + 7_000 + 2 * 400_000 + message(4)


def test_a_window_of_one_waits_for_the_credit():
    back = 2 * D + W + 2 * A
    assert completion(BARE, plan([0], [1], 3, FOUR, 1, [[]]), [0, 1]) == 7_000 + 3 * message(4) + 2 * back


def test_a_chain_forwards_message_by_message():
    p = plan([0, 1], [1, 2], 5, FOUR, 8, [[], [(0, 0)]])
    assert completion(BARE, p, [0, 1, 2]) == 7_000 + message(4) + message(20)


def test_software_latency_counts_for_each_message():
    p = plan([0], [1], 1, FOUR, 8, [[]], edge_delay_ps=np.array([250_000]))
    assert completion(BARE, p, [0, 1]) == 7_000 + 250_000 + message(4)


def test_a_message_is_consumed_when_it_has_been_passed_on():
    """Window 1 on both edges: edge 0 may send message 1 when member 1 has moved message 0 on towards member 2."""
    burst = np.full(2, FOUR / (4 * S) * 1e12)
    p = plan([0, 1], [1, 2], 2, FOUR, 1, [[], [(0, 0)]], edge_burst=burst)
    back = 2 * D + W + 2 * A
    first = message(4)  # at member 1, from where it leaves in 4 S
    second_leaves = first + 4 * S + back
    second_there = second_leaves + first
    credit_of_edge_1 = first + first + back
    assert completion(BARE, p, [0, 1, 2]) == 7_000 + max(second_there, credit_of_edge_1) + first


def test_a_ring_of_short_steps_moves_at_the_latency_of_a_slice():
    """Slice i of step k leaves at k message(4) + 4 i S, because a slice takes longer to come round than four take to leave."""
    n, slices = 4, 4
    deps = [[((e - 1) % n, slices)] for e in range(n)]
    p = plan(list(range(n)), [(e + 1) % n for e in range(n)], 3 * slices, FOUR, 8, deps)
    assert message(4) > 16 * S
    assert completion(BARE, p, [0, 1, 2, 3]) == 7_000 + 3 * message(4) + 12 * S


def test_slices_inside_a_node_stream_through_its_switch():
    node = Fabric(
        builder="fat_tree",
        nodes=2,
        gpus_per_node=4,
        scale_up=ScaleUp(rate=400e9, latency=600_000),
        link=Link(rate=50e9, latency=D),
        switch=Switch(radix=4),
    )
    p = plan([0], [1], 5, 400_000, 8, [[]], nic=-1)
    assert completion(node, p, [0, 1]) == 7_000 + 5 * 1_000_000 + 600_000
    window = plan([0], [1], 2, 400_000, 1, [[]], nic=-1)
    assert completion(node, window, [0, 1]) == 7_000 + 2 * (1_000_000 + 600_000) + 600_000


def test_messages_keep_the_pace_of_their_edge():
    """A message moves in 10 S and is then on the way of `message(0)`, one starts every 15 S: its packets are there long before."""
    pace, burst = (np.array([FOUR / (n * S) * 1e12]) for n in (15, 10))
    p = plan([0], [1], 6, FOUR, 8, [[]], edge_pace=pace, edge_burst=burst, edge_delay_ps=np.array([9_000]))
    back = 2 * D + W + 2 * A
    assert completion(BARE, p, [0, 1]) == 7_000 + 5 * 15 * S + 10 * S + 9_000 + back


@pytest.mark.parametrize("qps", [1, 4])
def test_queue_pairs_take_turns_on_paths_of_their_own(qps):
    """Messages in turn on queue pairs that a hash sends over several spines; the NIC sends them all, so the time is the same."""
    place = Fabric(
        builder="leaf_spine", nodes=8, gpus_per_node=1, segment=4, host=Host(latency=0),
        link=Link(rate=50e9, latency=D), switch=Switch(radix=8, latency=W),
    )  # fmt: skip
    network, p = replace(PLAIN, qps=qps), plan([0], [1], 22, FOUR, 30, [[]])
    engine = cases.engine(place, network)
    engine.start(np.array([5]), np.array([engine.register(p, np.array([0, 7]))]), np.array([0]))
    done, when = engine.advance(PS_NEVER)
    assert (done.tolist(), when.tolist()) == ([5], [7_000 + message(88, 4)])
    top = engine.topology
    up = (top.vertex_tier[top.link_src] == 1) & (top.vertex_tier[top.link_dst] == 2)
    sent = engine.counters()["packets"][up]
    assert sent.sum() == 88 and (np.count_nonzero(sent) > 1) == (qps > 1)


def test_messages_of_a_connection_are_at_hand_in_order_whatever_queue_pair_brings_them():
    """A chain over two queue pairs, the last message short and alone on its turn: every byte counts once, in order."""
    p = plan([0, 1], [1, 2], 5, FOUR, 2, [[], [(0, 0)]])._replace(qps=3)
    p = p._replace(edge_bytes=p.edge_bytes - 10_000)
    engine = cases.engine(BARE, PLAIN)
    engine.start(np.array([0]), np.array([engine.register(p, np.array([0, 1, 2]))]), np.array([0]))
    assert engine.advance(PS_NEVER)[0].tolist() == [0]
    nic = engine.topology.vertex_kind[engine.topology.link_src] == 2
    assert engine.counters()["bytes"][nic].sum() == 2 * (5 * FOUR - 10_000 + 64 * 18)


def test_merged_channels_are_connections_of_their_own_between_nics():
    p = plan([0], [1], 2, FOUR, 8, [[]], edge_weight=np.array([3], np.int32))
    assert completion(BARE, p, [0, 1]) == 7_000 + message(24)


def test_calls_at_once_do_not_disturb_each_other_on_other_links():
    engine = cases.engine(BARE, PLAIN)
    one = engine.register(plan([0], [1], 6, FOUR, 8, [[]]), np.array([0, 1]))
    two = engine.register(plan([0], [1], 6, FOUR, 8, [[]]), np.array([2, 3]))
    engine.start(np.array([8, 9]), np.array([one, two]), np.array([0, 0]))
    engine.start(np.array([3]), np.array([two]), np.array([0]))  # a second call of the same communicator shares its NIC
    done, when = engine.advance(PS_NEVER)
    assert done.tolist() == [8] and when.tolist() == [7_000 + message(24)]
    done, when = engine.advance(PS_NEVER)
    while len(done) < 2:
        more, then = engine.advance(PS_NEVER)
        done, when = np.r_[done, more], np.r_[when, then]
    assert sorted(done.tolist()) == [3, 9]
    assert when.max() == 7_000 + message(48)


def test_a_call_starts_where_the_completion_before_it_left_off():
    engine = cases.engine(BARE, replace(PLAIN, window=1_000))
    handle = engine.register(plan([0], [1], 6, FOUR, 8, [[]]), np.array([0, 1]))
    now = 0
    for i in range(3):
        engine.start(np.array([i]), np.array([handle]), np.array([now]))
        done, when = engine.advance(PS_NEVER)
        assert done.tolist() == [i] and engine.now_ps == when[0]
        assert when[0] - now == 7_000 + message(24)
        now = int(when[0])
