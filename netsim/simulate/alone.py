"""Calls of collectives without a job around them: how long until the last of those that start together has ended."""

import numpy as np

from netsim.config.network import Network
from netsim.kernels import flow
from netsim.kernels.structs import Array, Plan, Routes, Topology
from netsim.network.api import PS_NEVER
from netsim.network.flow.fluid import Builder
from netsim.network.flow.state import state
from netsim.network.packet.engine import PacketEngine

Calls = list[tuple[Plan, Array]]
"""What starts at once: plans, each among the groups int32[G, R] of GPUs in rank order."""


def flow_us(rows: list[Calls], topology: Topology, routes: Routes, shared: bool = True, qps: int = 1) -> list[float]:
    """Time of each row on the flow engine; `shared=False`: every call as if it were alone; `qps` queue pairs of a connection."""
    builder = Builder(topology, routes, qps)
    calls = [np.concatenate([builder.add(plan, members, i)[0] for i, (plan, members) in enumerate(row)]) for row in rows]
    none = np.zeros(0, np.int64)
    fluid, now, times = state(builder.fluid(), (none, none, np.zeros(0)), shared), 0, []
    for row in calls:
        begin, left = now, len(row)
        for call in row:
            flow.start(fluid, call, now)
        while left:
            now = flow.next_time(fluid)
            assert now < flow.NEVER, f"{left} calls can never end"
            flow.step(fluid, now)
            left -= int(fluid.scalar[flow.DONE])
            fluid.scalar[flow.LOG] = 0
        times.append((now - begin) / 1e6)
    return times


def packet_us(row: Calls, topology: Topology, routes: Routes, network: Network) -> float:
    """Time of a row on the packet engine."""
    engine = PacketEngine(topology, routes, network)
    handles = [engine.register(plan, group) for plan, members in row for group in members]
    engine.start(np.arange(len(handles)), np.array(handles), np.zeros(len(handles), np.int64))
    left, last = len(handles), 0
    while left:
        done, when = engine.advance(PS_NEVER)
        assert len(done), f"{left} calls can never end"
        left, last = left - len(done), int(when.max())
    return last / 1e6
