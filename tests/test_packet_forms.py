"""Closed forms of the packet engine to the picosecond, and the laws of incast."""

from dataclasses import replace

import pytest

from netsim.config.network import CongestionControl
from tests.packet_cases import MIB, PLAIN, ends, engine, flows, tree

S, A, D, W = 83_200, 1_280, 500_000, 300_000


def idle(packets: int, links: int) -> int:
    """P s + (L-1) s + 2 [L d + (L-1) w] + L a."""
    return packets * S + (links - 1) * S + 2 * (links * D + (links - 1) * W) + links * A


@pytest.mark.parametrize("acks", ["analytic", "simulated"])
@pytest.mark.parametrize("congestion", ["none", "dcqcn"])
@pytest.mark.parametrize(("target", "links"), [(1, 2), (5, 4), (100, 6)])
def test_one_flow_on_an_idle_path(target, links, congestion, acks):
    network = replace(PLAIN, acks=acks, congestion_control=CongestionControl(congestion))
    assert ends(tree(), network, flows((0, target, 2 * MIB))).tolist() == [idle(512, links)]


@pytest.mark.parametrize("flow_control", ["pfc", "credits"])
def test_two_flows_into_one_host_share_packet_by_packet(flow_control):
    network = replace(PLAIN, flow_control=flow_control)
    got = ends(tree(), network, flows((1, 0, 2 * MIB), (2, 0, 2 * MIB)))
    last = 87_882_560
    assert sorted(got.tolist()) == [last - S, last]


@pytest.mark.parametrize("flow_control", ["pfc", "credits"])
def test_incast_keeps_the_bottleneck_busy(flow_control):
    senders = [4, *range(21, 128, 16)]
    made = engine(tree(), replace(PLAIN, flow_control=flow_control), flows(*((src, 0, MIB) for src in senders)))
    made.finish()
    assert made.flow_ends().max() == 178_050_880


def test_large_incast_loses_nothing_and_never_idles_the_bottleneck():
    made = engine(tree(), PLAIN, flows(*((src, 0, MIB) for src in range(4, 68))))
    made.finish()
    nearest_at_last_switch = 3 * (S + D + W)
    bound = nearest_at_last_switch + 64 * 256 * S + D + 6 * D + 5 * W + 6 * A
    assert made.counters()["drops"].sum() == 0
    assert made.counters()["pause_ps"].sum() > 0
    assert made.flow_ends().max() <= 1.001 * bound


def test_odd_sizes_are_one_short_packet_at_the_end():
    made = engine(tree(), PLAIN, flows((0, 1, 4097), (4, 5, 1)))
    made.finish()
    short = (64 + 1) * 20
    first, second = made.flow_ends().tolist()
    assert second == 2 * short + 2 * D + W + (2 * D + W) + 2 * A
    assert first == 2 * S + short + 2 * (2 * D + W) + 2 * A


def test_slow_rates_round_each_packet_to_the_nearest_picosecond():
    fabric = tree(link=type(tree().link)(rate=33e9, latency=D))
    per = 4160 * 1e12 / 33e9
    got = ends(fabric, PLAIN, flows((0, 1, 4096)))[0]
    assert got == 2 * round(per) + 2 * (2 * D + W) + 2 * round(64 * 1e12 / 33e9)
