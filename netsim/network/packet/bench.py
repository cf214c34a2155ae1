"""Speed of the packet engine on the scenarios that others publish figures for: packet-hops per second of one core."""

import resource
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import topologies
from netsim.collectives import Communicator, Platform, plan
from netsim.config.nccl import Nccl
from netsim.config.network import Network
from netsim.config.topology import Fabric, Link, Switch
from netsim.config.traffic import Traffic
from netsim.kernels.packet import layout as k
from netsim.network.api import PS_NEVER
from netsim.network.packet.engine import PacketEngine
from netsim.network.traffic import expand

MIB = 1 << 20


def fabric(hosts: int) -> Fabric:
    """Three-tier k-ary fat tree of 400 Gb/s links with 0.5 us of cable and 0.3 us of switch."""
    radix = next(r for r in range(2, 256, 2) if r**3 // 4 >= hosts)
    return Fabric(
        builder="fat_tree", nodes=hosts, gpus_per_node=1, link=Link(rate=50e9, latency=500_000), switch=Switch(radix=radix, latency=300_000)
    )


def traffic(hosts: int, pattern: Traffic, network: Network) -> PacketEngine:
    """An engine with the flows of a pattern, about to run."""
    place = fabric(hosts)
    topology = topologies.build(place)
    engine = PacketEngine(topology, topologies.routes(topology, place, 1), network, 1)
    engine.add_flows(expand(pattern, topology.n_nics, 1))
    return engine


def rings(network: Network) -> PacketEngine:
    """A reduce-scatter of 64 MiB on each of 8 rails over 16 nodes, as NCCL does it with one GPU per node."""
    place = Fabric(nodes=16, link=Link(rate=50e9, latency=500_000), switch=Switch(radix=64, latency=300_000))
    topology = topologies.build(place)
    engine = PacketEngine(topology, topologies.routes(topology, place, 1), network, 1)
    platform = Platform("hopper", 8, 8, 50e9, "intel", place.scale_up.rate, 5, False)
    nodes = tuple(range(16))
    handles = []
    for rail in range(8):
        call = plan("reduce_scatter", 64 * MIB, Communicator(nodes, (rail,) * 16), platform, Nccl())
        handles.append(engine.register(call, 8 * np.arange(16) + rail))
    engine.start(np.arange(8), np.array(handles), np.zeros(8, np.int64))
    return engine


SCENARIOS: dict[str, Callable[[Network], PacketEngine]] = {
    "permutation_128": lambda n: traffic(128, Traffic("traffic", "permutation", 2 * MIB), n),
    "permutation_1024": lambda n: traffic(1024, Traffic("traffic", "permutation", 2 * MIB), n),
    "incast_64": lambda n: traffic(128, Traffic("traffic", "incast", 4 * MIB, fan_in=64), n),
    "ring_reduce_scatter_8x16": rings,
    "all_to_all_128": lambda n: traffic(128, Traffic("traffic", "all_to_all", 64 * 1024), n),
}


def run(engine: PacketEngine) -> None:
    """Play until nothing happens any more."""
    while engine.advance(PS_NEVER)[0].size:
        pass


def measure(engine: PacketEngine) -> dict[str, float]:
    """Run to the end; returns hops of data packets, of all packets, and seconds."""
    before = time.process_time()
    run(engine)
    seconds = time.process_time() - before
    counters = engine.counters()
    data = int(counters["packets"].sum())
    control = int(counters["control_bytes"].sum()) // engine.network.control
    return {"data_packet_hops": data, "packet_hops": data + control, "seconds": seconds, "windows": int(engine.state.scal[k.WINDOWS])}


def scenarios(repeat: int = 3) -> dict[str, dict[str, float | str]]:
    """Return the best of `repeat` runs of every scenario, with analytic and with simulated acknowledgements."""
    found: dict[str, dict[str, float | str]] = {}
    for name, build in SCENARIOS.items():
        for acks in ("analytic", "simulated"):
            network = replace(Network(engine="packet"), acks=acks)
            runs = [measure(build(network)) for _ in range(repeat)]
            best = min(runs, key=lambda run: run["seconds"])
            found[name if acks == "analytic" else f"{name}_acks"] = {
                "data_packet_hops_per_s": best["data_packet_hops"] / best["seconds"],
                "packet_hops_per_s": best["packet_hops"] / best["seconds"],
                "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "acks": acks,
                **best,
            }
    return found
