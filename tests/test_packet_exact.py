"""The packet engine against a plain event-driven twin, on random small fabrics and traffic: the same picosecond everywhere, for every
window.
"""

from dataclasses import replace

import numpy as np
import pytest

import topologies
from netsim.config.network import Ecn, Pfc
from netsim.network.packet import buffers
from netsim.network.packet.footprint import whole_paths
from tests import packet_cases as cases
from tests.packet_oracle import Oracle


def played(seed: int, acks: str = "analytic", flow_control: str = "pfc"):
    """Return (fabric, network, traffic, oracle after its run) of a random case."""
    rng = np.random.default_rng(seed)
    fabric = cases.random_fabric(rng)
    traffic = cases.random_traffic(rng, fabric.nodes, int(rng.integers(2, 30)))
    xoff = int(rng.integers(5_000, 60_000))
    kmin = int(rng.integers(0, 30_000))
    pooled = flow_control == "pool"
    network = replace(
        cases.PLAIN,
        acks=acks,
        flow_control="pfc" if pooled else flow_control,
        sharing="dynamic" if pooled else "static",
        alpha=1 / float(rng.choice([64, 128, 256])),
        credits=int(rng.integers(5_000, 60_000)),
        ack_every=int(rng.integers(1, 4)),
        payload=int(rng.choice([1000, 4096])),
        pfc=Pfc(xon_offset=int(rng.integers(0, 20_000))) if pooled else Pfc(xoff=xoff, xon=int(rng.integers(0, xoff))),
        ecn=Ecn(kmin=kmin, kmax=kmin + int(rng.integers(0, 40_000)), pmax=float(rng.random())),
    )
    topology = topologies.build(fabric)
    qp = np.zeros(traffic.src.size, np.int64)
    ahead, back = whole_paths(topology, topologies.routes(topology, fabric, 1), traffic.src, traffic.dst, qp)
    split = [[links[ptr[i] : ptr[i + 1]].tolist() for i in range(qp.size)] for ptr, links in (ahead, back)]
    oracle = Oracle(topology, network, buffers.thresholds(topology, network), split[0], split[1], traffic, 1)
    oracle.run()
    return fabric, network, traffic, oracle


@pytest.mark.parametrize("acks", ["analytic", "simulated"])
@pytest.mark.parametrize("flow_control", ["pfc", "credits", "pool"])
@pytest.mark.parametrize("seed", range(20))
def test_engine_equals_the_twin(seed, acks, flow_control):
    fabric, network, traffic, oracle = played(seed, acks, flow_control)
    engine = cases.engine(fabric, network, traffic)
    engine.finish()
    assert engine.flow_ends().tolist() == oracle.ends
    for name, values in engine.counters().items():
        if name in oracle.ports[0].count:
            assert values.tolist() == [port.count[name] for port in oracle.ports], name


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("acks", ["analytic", "simulated"])
@pytest.mark.parametrize("flow_control", ["pfc", "credits", "pool"])
def test_results_do_not_depend_on_the_window(seed, acks, flow_control):
    fabric, network, traffic, oracle = played(100 + seed, acks, flow_control)
    for window in (1_000, 7_777, 50_001, 99_999):
        engine = cases.engine(fabric, replace(network, window=window), traffic)
        stops = np.random.default_rng(seed).integers(0, 20_000_000, 20)
        for t in np.sort(stops):
            engine.advance(int(t))
        engine.finish()
        assert engine.flow_ends().tolist() == oracle.ends, window
        assert engine.counters()["pause_ps"].tolist() == [port.count["pause_ps"] for port in oracle.ports]
