"""Closed forms of the packet engine to the picosecond, and the laws of incast."""

from dataclasses import replace

import pytest

from netsim.config.network import CongestionControl, Pfc
from netsim.config.topology import Fabric, Host, Switch
from netsim.kernels.packet import layout as k
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


@pytest.mark.parametrize("sharing", ["static", "dynamic"])
def test_large_incast_loses_nothing_and_never_idles_the_bottleneck(sharing):
    made = engine(tree(), replace(PLAIN, sharing=sharing, alpha=1 / 16), flows(*((src, 0, MIB) for src in range(4, 68))))
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


def test_the_first_pause_of_a_shared_buffer():
    """Two hosts send to a third on their leaf, alpha = 1/2; a pool of 20 packets is left by 8 headrooms.

    Pairs of packets arrive at T0 + j s with T0 = s + d + w, and one packet leaves at each of these moments, of the first input and of the
    second in turn. Before pair j the switch holds j - 1 packets: j - ceil((j + 1) / 2) of the first input, j - floor((j + 1) / 2) of the
    second. The second packet of pair 10 makes 6 of its input, more than (20 - 10) / 2; nothing before it is above its threshold.
    """
    headroom = 100_000
    place = tree(switch=Switch(radix=8, latency=W, buffer=8 * headroom + 20 * 4160))
    network = replace(PLAIN, sharing="dynamic", alpha=0.5, pfc=Pfc(headroom=headroom))
    made = engine(place, network, flows((1, 0, 2 * MIB), (2, 0, 2 * MIB)))
    made.advance(S + D + W + 10 * S + 1)
    first, second = (int(made.state.tx[(f << k.TX) + k.UPLINK]) for f in (0, 1))
    assert made.state.port[(first << k.PORT) + k.TOGGLE_TAIL] == 0
    assert made.state.port[(second << k.PORT) + k.TOGGLE_TAIL] == 1
    assert made.state.toggle[second << k.TOGGLES] == S + D + W + 10 * S + D + W + A
    made.finish()
    assert (made.flow_ends() > 0).all() and made.counters()["drops"].sum() == 0
    assert made.counters()["queue_max"].max() < 20 * 4160 + 2 * headroom


def test_a_bus_that_is_slower_than_the_nic_is_the_bottleneck():
    """PCIe gen 4 x16 moves 31.5 GB/s of payload: both ends take a packet's payload no faster."""
    place, at_bus = tree(host=Host(rate=31.5e9)), round(4096 * 1e12 / 31.5e9)
    assert ends(place, PLAIN, flows((0, 1, 2 * MIB))).tolist() == [513 * at_bus + 2 * (2 * D + W) + 2 * A]
    assert ends(place, PLAIN, flows((0, 5, 2 * MIB))).tolist() == [513 * at_bus + 2 * S + 2 * (4 * D + 3 * W) + 4 * A]
    made = engine(place, PLAIN, flows((1, 0, 2 * MIB), (2, 0, 2 * MIB)))
    made.finish()
    assert made.flow_ends().max() == 1025 * at_bus + 2 * (2 * D + W) + 2 * A


def test_the_ports_of_a_nic_share_its_bus():
    made = engine(Fabric(builder="dual_plane", nodes=4, gpus_per_node=2, planes=2, host=Host(rate=40e9)), PLAIN)
    top = made.topology
    up = (top.vertex_kind[top.link_src] == 2) & (top.vertex_kind[top.link_dst] == 3)
    assert made.state.port[k.SER :: 1 << k.PORT][up].tolist() == [round(4096 * 1e12 / 20e9)] * 16
