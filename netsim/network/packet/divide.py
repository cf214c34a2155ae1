"""From one engine that has played a plane alone to an engine for each part: every rank gets a copy, and forgets what others play."""

import time

import numpy as np

from netsim.kernels.packet import cut as kernel
from netsim.kernels.packet import layout as k
from netsim.kernels.packet.advance import advance
from netsim.kernels.structs import Array
from netsim.network.packet.engine import PacketEngine
from netsim.network.packet.part import Part, borders, over_links
from netsim.parallel import Comm

ROUNDS = 50
"""Hand-overs of nothing by which their cost is measured."""


def hand_over_s(engine: PacketEngine, comm: Comm, owner: Array) -> float:
    """Return the seconds that handing over takes for each window, the same on all ranks of `comm`; the engine has nothing to play yet."""
    cut, took = borders(engine, owner, comm.rank), np.empty(ROUNDS)
    blocks, none = np.zeros((comm.size, kernel.HEADER + kernel.RECORD * kernel.ROOM), np.int64), np.zeros(0, np.int64)
    counts = np.zeros((2, comm.size), np.int64)
    for i in range(ROUNDS):
        began = time.perf_counter()
        advance(engine.tables, engine.cc, 0)
        kernel.hand_out(engine.tables, *cut, blocks, none, counts[0], counts[1])
        kernel.take_in(engine.tables, comm.swap(blocks), none)
        took[i] = time.perf_counter() - began
    per_window = max(1.0, float(engine.state.scal[k.WINDOW_PS]) / over_links(engine, owner))
    return float(comm.allgather(np.array([np.median(took)])).max()) * per_window


def divide(engine: PacketEngine, team: Comm, comm: Comm, owner: Array) -> Part:
    """Return the part of this rank of `comm`; what the plane has come to lies with the first rank of `team`, which keeps what it counted.

    No call may have completed without having been told of.
    """
    s = engine.state
    assert s.scal[k.DONE_CALLS] == 0
    found = team.bcast(engine.snapshot() if team.rank == 0 else None)
    if team.rank > 0:
        engine.restore(found)
    part = Part(engine, comm, owner)
    _share_counters(engine, team.rank == 0)
    _forget(engine)
    kernel.divide(engine.tables)
    part.find_calls()
    return part


def _share_counters(engine: PacketEngine, keeps: bool) -> None:
    """What was counted up to now stays with one engine, what comes with the one that plays it; queues have been there all along."""
    s = engine.state
    count, port = s.count.reshape(-1, 1 << k.COUNT), s.port.reshape(-1, 1 << k.PORT)
    others = s.mine[s.link_src] == 0
    waiting = port[:, k.QUEUE] * np.int64(engine.now_ps)
    if keeps:
        count[others, k.QUEUED] += waiting[others]
    else:
        count[:] = 0
        count[~others, k.QUEUED] = -waiting[~others]
        s.tx[k.RESENT :: 1 << k.TX] = 0
        engine.resent.clear()


def _forget(engine: PacketEngine) -> None:
    """Empty what others play: queues and lines of their ports, wires to them, events of their hosts, and the clocks that tell of these."""
    s, n = engine.state, engine.state.link_src.size
    ring, port = s.ring.reshape(-1, 1 << k.RING), s.port.reshape(-1, 1 << k.PORT)
    from_others, to_others = (np.flatnonzero(s.mine[ends] == 0) for ends in (s.link_src, s.link_dst))
    for first in (0, n):  # data, control
        ring[first + from_others, k.INQ] = ring[first + from_others, k.TAIL] = ring[first + from_others, k.MID]
        ring[first + to_others, k.HEAD] = ring[first + to_others, k.MID]
    others = np.flatnonzero(s.mine == 0)
    for r in (2 * n + from_others, 3 * n + from_others, 4 * n + from_others, 5 * n + others[others < engine.topology.n_gpus]):
        ring[r, k.HEAD] = ring[r, k.TAIL]
    port[from_others, k.QUEUE] = port[from_others, k.STARVED] = 0
    port[from_others, k.READY] = port[from_others, k.READY_TAIL] = -1
    port[from_others, k.TOGGLE_HEAD] = port[from_others, k.TOGGLE_TAIL]
    s.port_next[from_others] = s.wire_next[to_others] = k.NEVER
    for times, block in ((s.send_next, s.send_block), (s.receive_next, s.receive_block)):
        times[others] = k.NEVER
        block[:] = np.minimum.reduceat(times, np.arange(block.size) << k.BLOCK_SHIFT)
