"""Collectives that meet: what each scenario takes alone and together, on both engines.

* rails: an all-gather of 64 MiB over 16 nodes on each of eight rails at once. Rails share nothing, so nothing is slower than alone.
* jobs: the data-parallel groups of two jobs, 8 nodes each, one GPU per node. Neighbours in a ring sit under different leaves, so every hop
  crosses the spines: under ECMP connections that hash to one uplink share it, under adaptive routing packets take what is free.
* crossing: every GPU sends 64 MiB to one of the next node, as pipeline stages do, where leaves have one uplink for four NICs. On the same
  rail the data stay under their leaf; to the next rail all of it goes through the spines, four connections to an uplink.
"""

from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

import topologies
from netsim.collectives import Communicator, plan, platform_of
from netsim.config.nccl import Nccl
from netsim.config.network import CongestionControl, Network
from netsim.config.topology import Fabric, Link, Switch, Tier
from netsim.simulate import alone

MIB = 1 << 20
PLACE = Fabric(nodes=16, link=Link(50e9, 150_000), switch=Switch(radix=64, latency=300_000))


class Met(NamedTuple):
    """A scenario under some condition: us alone and together, flow engine, then packet engine; NaN where an engine cannot do it."""

    scenario: str
    condition: str
    flow_alone: float
    flow: float
    packet_alone: float
    packet: float


def _times(place: Fabric, first: alone.Calls, both: alone.Calls, network: Network, fluid: bool = True) -> tuple[float, float, float, float]:
    topology = topologies.build(place)
    way = topologies.routes(topology, place, 1)
    flows = alone.flow_us([first, both], topology, way) if fluid else [float("nan")] * 2
    return flows[0], flows[1], alone.packet_us(first, topology, way, network), alone.packet_us(both, topology, way, network)


def _network(control: str, spreading: Literal["flow", "adaptive"] = "flow") -> Network:
    return Network(engine="packet", spreading=spreading, congestion_control=CongestionControl(control))


def rails() -> Met:
    """Eight all-gathers, one per rail."""
    network, nodes = _network("dcqcn"), np.arange(16)
    platform = platform_of(topologies.build(PLACE), "hopper", PLACE, Nccl())
    calls: alone.Calls = []
    for rail in range(8):
        built = plan("all_gather", 64 * MIB, Communicator(tuple(nodes.tolist()), (rail,) * 16), platform, Nccl())
        calls.append((built, (8 * nodes + rail)[None].astype(np.int32)))
    return Met("rails", "each on a leaf, dcqcn", *_times(PLACE, calls[:1], calls, network))


def jobs(routing: str, control: str) -> Met:
    """Two data-parallel groups that share spines; `routing` is ecmp or adaptive, `control` the congestion control."""
    place = replace(PLACE, gpus_per_node=1, segment=8, switch=Switch(radix=16, latency=300_000), spines="shared")
    topology = topologies.build(place)
    platform = platform_of(topology, "hopper", place, Nccl())
    built = plan("all_gather", 64 * MIB, Communicator(tuple(range(8)), (0,) * 8), platform, Nccl())
    alternate = np.arange(16).reshape(2, 8).T.ravel()  # a node of the first leaf, one of the second, ...
    calls: alone.Calls = [(built, alternate[None, part].astype(np.int32)) for part in (slice(0, 8), slice(8, 16))]
    network = _network(control, "adaptive" if routing == "adaptive" else "flow")
    return Met("jobs", f"{routing}, {control}", *_times(place, calls[:1], calls, network, routing != "adaptive"))


def crossing(rails: int, control: str) -> Met:
    """Every GPU sends to the GPU of the next node that is `rails` rails on; the spines have a quarter of the leaves' rate."""
    place = replace(PLACE, nodes=4, spines="shared", leaf=Tier(oversubscription=4.0, down=4))
    platform = platform_of(topologies.build(place), "hopper", place, Nccl())
    calls: alone.Calls = []
    for node in range(4):
        for gpu in range(8):
            ends = np.array([[8 * node + gpu, 8 * ((node + 1) % 4) + (gpu + rails) % 8]], np.int32)
            comm = Communicator((0, 1), (gpu, (gpu + rails) % 8), ranks=32)
            calls.append((plan("sendrecv", 64 * MIB, comm, platform, Nccl()), ends))
    name = f"{'same' if rails == 0 else 'next'} rail, {control}"
    return Met("crossing", name, *_times(place, calls[:1], calls, _network(control)))


def scenarios() -> list[Met]:
    """All of them."""
    met = [jobs("ecmp", "none"), jobs("ecmp", "dcqcn"), jobs("adaptive", "dcqcn")]
    return [rails(), *met, crossing(0, "dcqcn"), crossing(1, "none"), crossing(1, "dcqcn")]


def table(found: list[Met]) -> str:
    """The rows in Markdown."""
    heads = ("scenario", "condition", "flow: alone (us)", "together (us)", "packet: alone (us)", "together (us)")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for met in found:
        times = " | ".join("-" if np.isnan(t) else f"{t:,.0f}" for t in met[2:])
        lines.append(f"| {met.scenario} | {met.condition} | {times} |")
    return "\n".join(lines)
