"""Small fabrics and traffic for tests of the packet engine."""

from typing import Any

import numpy as np

import topologies
from netsim.config.network import CongestionControl, Network
from netsim.config.topology import Fabric, Link, Switch
from netsim.kernels.structs import Topology
from netsim.network.api import Flows
from netsim.network.packet.engine import PacketEngine

MIB = 1 << 20
PLAIN = Network(engine="packet", congestion_control=CongestionControl("none"))


def tree(hosts: int = 128, k: int = 8, **changes: Any) -> Fabric:
    """The three-tier fat tree of the reference cases: 400 Gb/s, 0.5 us of cable, 0.3 us of switch."""
    given = {"link": Link(rate=50e9, latency=500_000), "switch": Switch(radix=k, latency=300_000)} | changes
    return Fabric(builder="fat_tree", nodes=hosts, gpus_per_node=1, **given)


def flows(*rows: tuple[int, int, int] | tuple[int, int, int, int]) -> Flows:
    """Rows of (source NIC, destination NIC, bytes, start in ps)."""
    table = np.array([(*row, 0)[:4] for row in rows], np.int64).reshape(-1, 4)
    return Flows(table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), table[:, 2].copy(), table[:, 3].copy())


def engine(fabric: Fabric, network: Network, traffic: Flows | None = None, seed: int = 1) -> PacketEngine:
    """An engine on a fabric, with its flows under way."""
    topology = topologies.build(fabric)
    made = PacketEngine(topology, topologies.routes(topology, fabric, seed), network, seed)
    if traffic is not None:
        made.add_flows(traffic)
    return made


def ends(fabric: Fabric, network: Network, traffic: Flows, seed: int = 1) -> np.ndarray:
    """When the flows end."""
    made = engine(fabric, network, traffic, seed)
    made.finish()
    return made.flow_ends()


def random_fabric(rng: np.random.Generator) -> Fabric:
    """A small fat tree or leaf-spine with links of different speed and length."""
    link = Link(rate=float(rng.choice([25e9, 50e9, 33e9])), latency=int(rng.integers(100, 700)) * 1000)
    switch = Switch(radix=int(rng.choice([4, 6])), latency=int(rng.integers(0, 400)) * 1000, buffer=4 * MIB)
    hosts = int(rng.integers(4, 13))
    return Fabric(builder="fat_tree", nodes=hosts, gpus_per_node=1, link=link, switch=switch)


def random_traffic(rng: np.random.Generator, hosts: int, n: int) -> Flows:
    """Flows of 1 B to 40 packets, many to few hosts, starting at a few moments."""
    src = rng.integers(0, hosts, n)
    dst = np.where(rng.random(n) < 0.6, 0, rng.integers(0, hosts, n))
    dst = np.where(dst == src, (src + 1) % hosts, dst)
    start = rng.integers(0, 4, n) * int(rng.choice([0, 83_200, 1_000_000]))
    return Flows(src.astype(np.int32), dst.astype(np.int32), rng.integers(1, 160_000, n), start.astype(np.int64))


__all__ = ["MIB", "PLAIN", "Topology", "ends", "engine", "flows", "random_fabric", "random_traffic", "tree"]
