"""Speed of the packet engine on the scenarios that others publish figures for: packet-hops per second of one core."""

import resource
import time
from collections.abc import Callable
from dataclasses import replace

import topologies
from netsim.config.network import Network
from netsim.config.topology import Fabric, Link, Switch
from netsim.config.traffic import Traffic
from netsim.kernels.packet import layout as k
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


SCENARIOS: dict[str, Callable[[Network], PacketEngine]] = {
    "permutation_128": lambda n: traffic(128, Traffic("traffic", "permutation", 2 * MIB), n),
    "permutation_1024": lambda n: traffic(1024, Traffic("traffic", "permutation", 2 * MIB), n),
    "incast_64": lambda n: traffic(128, Traffic("traffic", "incast", 4 * MIB, fan_in=64), n),
    "all_to_all_128": lambda n: traffic(128, Traffic("traffic", "all_to_all", 64 * 1024), n),
}


def measure(engine: PacketEngine) -> dict[str, float]:
    """Run to the end; returns hops of data packets, of all packets, and seconds."""
    before = time.process_time()
    engine.finish()
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
            network = replace(Network(engine="packet"), acks=acks)  # type: ignore[arg-type]
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
