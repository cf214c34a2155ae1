"""Collectives alone on 64 nodes of DGX H100 (512 GPUs): seconds of processor time to plan a call, and to run it on each engine."""

import time
from typing import Any

import numpy as np

import topologies
from netsim.collectives import Communicator, plan, platform_of
from netsim.config.nccl import Nccl
from netsim.config.network import Network
from netsim.config.topology import Fabric, Link, Switch
from netsim.simulate import alone

MIB = 1 << 20
CASES = {
    "all_reduce_64m_512": ("all_reduce", 64 * MIB, None),
    "all_reduce_64m_512_ring": ("all_reduce", 64 * MIB, "Ring"),
    "all_reduce_1m_512": ("all_reduce", MIB, None),
    "all_gather_1g_512": ("all_gather", 1024 * MIB, None),
    "all_to_all_64m_512": ("all_to_all", 64 * MIB, None),
}
"""Name -> operation, bytes, NCCL_ALGO."""


def scenarios(repeat: int = 3) -> dict[str, dict[str, Any]]:
    """Return the best of `repeat` runs of every case; the first one compiles."""
    place = Fabric(nodes=64, link=Link(50e9, 150_000), switch=Switch(radix=64, latency=300_000))
    topology = topologies.build(place)
    way = topologies.routes(topology, place)
    members = np.arange(512, dtype=np.int32)[None]
    found: dict[str, dict[str, Any]] = {}
    for name, (op, nbytes, algorithm) in CASES.items():
        nccl = Nccl(NCCL_ALGO=algorithm)
        platform = platform_of(topology, "hopper", place, nccl)
        ranks = Communicator(tuple((members[0] // 8).tolist()), tuple((members[0] % 8).tolist()))
        seconds = np.full(3, np.inf)
        for _ in range(repeat):
            plan.cache_clear()
            clock = [time.process_time()]
            call = plan(op, nbytes, ranks, platform, nccl)
            clock.append(time.process_time())
            flow = alone.flow_us([[(call, members)]], topology, way)[0]
            clock.append(time.process_time())
            packet = alone.packet_us([(call, members)], topology, way, Network(engine="packet"))
            clock.append(time.process_time())
            seconds = np.minimum(seconds, np.diff(clock))
        found[name] = {
            "algorithm": f"{call.algorithm}/{call.protocol}", "channels": call.channels, "edges": len(call.edge_src),
            "plan_s": float(seconds[0]), "flow_s": float(seconds[1]), "packet_s": float(seconds[2]), "flow_us": flow, "packet_us": packet,
        }  # fmt: skip
    return found
