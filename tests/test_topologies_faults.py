"""Permanent faults in the topology, timed ones as events."""

import numpy as np
import pytest

import topologies
from netsim.config.topology import Fabric, Fault
from netsim.errors import InputError

LINK = "leaf r0.s0 -> spine r0.0 (0)"
MS = 10**9


def events(*faults: Fault) -> list[tuple[int, int, float]]:
    fabric = Fabric(nodes=64, faults=faults)
    t, link, rate = topologies.fault_events(topologies.build(fabric), fabric)
    assert t.dtype == np.int64 and link.dtype == np.int32 and rate.dtype == np.float64
    return list(zip(t.tolist(), link.tolist(), rate.tolist(), strict=True))


def links() -> tuple[int, int]:
    topology = topologies.build(Fabric(nodes=64))
    link = int(topologies.find_links(topology, LINK)[0])
    return link, int(topology.link_reverse[link])


def test_permanent_faults_are_there_from_the_start() -> None:
    link, back = links()
    topology = topologies.build(Fabric(nodes=64, faults=(Fault(LINK, both_ways=False), Fault("nic n3.2 -> leaf r2.s0", rate=25e9))))
    assert topology.link_rate[link] == 0 and topology.link_rate[back] == 50e9
    assert (topology.link_rate == 25e9).sum() == 2
    assert events(Fault(LINK)) == []


def test_timed_faults_come_and_go_in_order() -> None:
    link, back = links()
    assert events(Fault(LINK, from_=10 * MS, until=20 * MS)) == [
        (10 * MS, link, 0.0), (10 * MS, back, 0.0), (20 * MS, link, 50e9), (20 * MS, back, 50e9),
    ]  # fmt: skip
    assert events(Fault(LINK, from_=5, both_ways=False)) == [(5, link, 0.0)]
    assert events(Fault(LINK, until=5, both_ways=False)) == [(0, link, 0.0), (5, link, 50e9)]


def test_the_lowest_rate_of_overlapping_faults_holds() -> None:
    link, _ = links()
    slow = Fault(LINK, rate=10e9, both_ways=False)
    one = Fault(LINK, rate=20e9, from_=1, until=9, both_ways=False)
    two = Fault(LINK, rate=5e9, from_=3, until=5, both_ways=False)
    assert events(one, two) == [(1, link, 20e9), (3, link, 5e9), (5, link, 20e9), (9, link, 50e9)]
    assert events(slow, one, two) == [(3, link, 5e9), (5, link, 10e9)]


def test_routes_follow_the_events() -> None:
    fabric = Fabric(nodes=64, faults=(Fault("leaf r0.s0 -> spine r0.0", from_=1, until=2),))
    topology = topologies.build(fabric)
    _, link, rate = topologies.fault_events(topology, fabric)
    during = topologies.with_rates(topology, link[: link.size // 2], rate[: link.size // 2])
    pair = np.array([0]), np.array([63 * 8]), np.array([0])
    with pytest.raises(InputError, match="every way"):
        topologies.paths(during, topologies.routes(during, fabric), *pair)
    after = topologies.with_rates(during, link[link.size // 2 :], rate[link.size // 2 :])
    assert np.array_equal(after.link_rate, topology.link_rate)
    assert topologies.paths(after, topologies.routes(after, fabric), *pair)[1].size == 4


def test_all_wrong_names_at_once() -> None:
    with pytest.raises(InputError) as error:
        topologies.build(Fabric(faults=(Fault("leaf r0.s9 -> spine r0.0"), Fault(LINK), Fault("x"))))
    assert [line.split(":")[0] for line in error.value.lines] == ["topology.faults.0.link", "topology.faults.2.link"]
