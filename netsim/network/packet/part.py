"""One engine's part of a fabric that is cut between ranks: it plays as far as the lookahead allows, then all hand over what crosses."""

import time
from typing import NamedTuple

import numpy as np
from numba import types

from netsim.kernels.packet import cut as kernel
from netsim.kernels.packet import layout as k
from netsim.kernels.packet.advance import advance
from netsim.kernels.packet.bound import next_arrival, part_bounds
from netsim.kernels.packet.calls import retire
from netsim.kernels.packet.tables import TABLES
from netsim.kernels.structs import NIC, Array
from netsim.network.api import PS_NEVER, Flows
from netsim.network.packet.engine import PacketEngine
from netsim.parallel import Comm

LATEST = int(k.NEVER) - 1
NO_SURPLUS = np.zeros(0, np.int64)


class Part:
    """The packet engine of one rank, for the vertices that it owns. All ranks of `comm` make the same calls in the same order."""

    def __init__(self, engine: PacketEngine, comm: Comm, owner: Array) -> None:
        """`owner`: int64[V] rank of each vertex that takes part."""
        assert engine.divisible or comm.size == 1
        self.engine, self.comm = engine, comm
        self.cut = borders(engine, owner, comm.rank)
        engine.state.mine[:] = owner == comm.rank
        engine.state.scal[k.IN_PARTS] = 1
        self._blocks = np.zeros((comm.size, kernel.HEADER + kernel.RECORD * kernel.ROOM), np.int64)
        self._surplus = np.zeros(1 << 12, np.int64)
        self._start = np.zeros(comm.size, np.int64)
        self._first = LATEST if engine.n_flows == 0 else engine.now_ps  # nothing happens anywhere before
        self._calls: dict[int, tuple[int, int]] = {}  # instance -> (call, handle)
        self.lookahead_ps = over_links(engine, owner)
        """So long all may play without a word; the same on all ranks."""
        self._look_ahead_over_flows(0)
        self.crossed = np.zeros(comm.size, np.int64)  # bytes of packets from here to each rank
        self.hand_overs = 0
        self.handed_over_bytes = 0  # that this rank sent
        self.waited_s = 0.0

    def _look_ahead_over_flows(self, first: int) -> None:
        """Analytic acknowledgements of plain flows cross with the time of the way back."""
        s, f = self.engine.state, np.arange(first, self.engine.n_flows)
        f = f[s.tx[(f << k.TX) + k.TX_EDGE] < 0]
        source, end = s.link_src[s.tx[(f << k.TX) + k.UPLINK]], s.link_dst[s.rx[(f << k.RX) + k.RX_LAST]]
        apart = self.cut.owner[source] != self.cut.owner[end]
        if s.scal[k.ACKS] != k.SIMULATED:
            self._look_ahead(s.tx[(f[apart] << k.TX) + k.RETURN])

    # --- what all ranks do alike ---------------------------------------------------------------------------------------------------------

    def add_flows(self, flows: Flows) -> None:
        """As `PacketEngine.add_flows`; every NIC sends where it is played."""
        first = self.engine.n_flows
        self.engine.add_flows(flows)
        self._look_ahead_over_flows(first)
        self._first = min(self._first, int(flows.start_ps.min(initial=LATEST)))

    def register(self, handle_of_engine: int) -> None:
        """Take a handle that the engine has just made into account: word from the receivers of its calls crosses the cut, too."""
        fp, owner = self.engine.footprint_of(handle_of_engine), self.cut.owner
        apart = owner[fp.edges[:, k.SRC_GPU]] != owner[fp.edges[:, k.DST_GPU]]
        self._look_ahead(fp.edges[apart, k.CREDIT_PS])

    def _look_ahead(self, word_ps: Array) -> None:
        """Word that takes `word_ps` goes to other ranks."""
        self.lookahead_ps = min(self.lookahead_ps, int(word_ps.min(initial=LATEST)))
        assert self.lookahead_ps > 0

    def start(self, instance: Array, handle: Array, t_ps: Array) -> None:
        """As `PacketEngine.start`."""
        for i, h, call in zip(instance.tolist(), handle.tolist(), self.engine.start(instance, handle, t_ps), strict=True):
            self._calls[i] = call, h
        self._first = min(self._first, int(t_ps.min(initial=LATEST)))

    def advance(self, until_ps: int) -> tuple[Array, Array]:
        """Move to `until_ps`; returns (instances, times) of calls whose part here has completed. No call may complete as a whole before."""
        until, done = min(until_ps, LATEST), []
        if self.comm.size == 1:
            return self.engine.advance(until)
        while True:
            change = self.engine.next_change
            self._play(min(until, change))
            done.append(self.engine.advance(self.engine.now_ps))
            if change <= until:
                self._first = self.engine.now_ps
            elif self.engine.now_ps == until:
                return np.concatenate([d for d, _ in done]), np.concatenate([t for _, t in done])

    def find_calls(self) -> None:
        """Take note of calls that were under way before there was this part."""
        s = self.engine.state
        for call in s.live[: s.scal[k.LIVE_CALLS]].tolist():
            row = call << k.CALL
            self._calls[int(s.call[row + k.INSTANCE])] = call, int(s.call[row + k.HANDLE])

    def retire(self, instances: Array, times: Array) -> None:
        """Forget calls that have completed on all ranks; those of other planes are none of ours."""
        for instance, t in zip(instances.tolist(), times.tolist(), strict=True):
            if instance in self._calls:
                call, handle = self._calls.pop(instance)
                retire(self.engine.tables, call)
                self.engine.put_back(call, handle, t)

    def bounds(self) -> tuple[int, Array]:
        """Return a time before which no message arrives or ends here, and int64[C, 2]: instance and bound of every call under way."""
        found = np.empty((int(self.engine.state.scal[k.LIVE_CALLS]), 2), np.int64)
        part_bounds(self.engine.tables, min(self.lookahead_ps, LATEST), found.reshape(-1))
        s, event = self.engine.state, int(next_arrival(self.engine.tables))
        ending = s.call[(s.done[: s.scal[k.DONE_CALLS]] << k.CALL) + k.LAST_PS]  # all has arrived, and the last kernel still runs
        event = min(event, int(ending.min(initial=LATEST)))
        return (PS_NEVER if event >= k.NEVER else event), found

    # --- hand-over -----------------------------------------------------------------------------------------------------------------------

    def _play(self, until: int) -> None:
        """Take turns with the others until all have reached `until`."""
        engine = self.engine
        while True:
            engine.make_room()
            now, tables = engine.now_ps, engine.tables
            now = advance(tables, engine.cc, min(until, max(now, self._first) + self.lookahead_ps - 1))
            engine.complain()
            words = kernel.hand_out(tables, *self.cut, self._blocks, self._surplus, self._start, self.crossed)
            if words > self._surplus.size:
                self._surplus = np.zeros(2 * words, np.int64)
                kernel.hand_out(tables, *self.cut, self._blocks, self._surplus, self._start, self.crossed)
            self._first = int(kernel.take_in(tables, *self._hand_over()))
            if now == until:
                return

    def _hand_over(self) -> tuple[Array, Array]:
        """Give every rank its block, and the surplus where some rank has any; returns those from all ranks."""
        blocks = self._blocks
        began = time.perf_counter()
        came, extra, rest = self.comm.swap(blocks), NO_SURPLUS, 0
        if came[:, kernel.MOST].max() > kernel.ROOM:
            counts, expected = (kernel.RECORD * np.maximum(0, b[:, kernel.NUMBER] - kernel.ROOM) for b in (blocks, came))
            extra, rest = self.comm.pour(self._surplus, counts, expected), int(counts.sum())
        self.waited_s += time.perf_counter() - began
        self.hand_overs += 1
        self.handed_over_bytes += 8 * (blocks.size - blocks.shape[1] + rest)
        return came, extra


def over_links(engine: PacketEngine, owner: Array) -> int:
    """Return how soon packets, pauses and credits can cross: with the latency of a link that is cut, or with the delay of its far end."""
    top = engine.topology
    ends = owner[top.link_src], owner[top.link_dst]
    border = np.flatnonzero((top.vertex_kind[top.link_src] >= NIC) & (ends[0] >= 0) & (ends[1] >= 0) & (ends[0] != ends[1]))
    return int(np.r_[top.link_latency[border], engine.state.pfc[(border << k.PFC) + k.DELAY]].min(initial=LATEST))


def compile_kernels(engine: PacketEngine) -> None:
    """Run the kernels on nothing, so that they are compiled and cached: one rank of a node does so while the others wait."""
    none, blocks = np.zeros(0, np.int64), np.zeros((1, kernel.HEADER), np.int64)
    advance(engine.tables, engine.cc, 0)
    kernel.hand_out(engine.tables, np.zeros(1, np.int64), none, none, none, none, none, blocks, none, np.zeros(1, np.int64), none)
    kernel.divide(engine.tables)
    kernel.take_in(engine.tables, np.zeros((0, kernel.HEADER), np.int64), none)
    part_bounds(engine.tables, 0, none)
    next_arrival(engine.tables)
    retire.compile((TABLES, types.int64))


class Cut(NamedTuple):
    """Where the vertices of a rank border on those of others; the arrays of `hand_out`."""

    owner: Array
    away: Array
    leaving: Array
    entering: Array
    uplinks: Array
    gpus: Array


def borders(engine: PacketEngine, owner: Array, rank: int) -> Cut:
    """The cut around the vertices of `rank`; vertices of nobody (owner -1) take no part."""
    top = engine.topology
    mine, away = owner == rank, (owner >= 0) & (owner != rank)
    src, dst = top.link_src, top.link_dst
    timed = top.vertex_kind[src] >= NIC
    lists = (
        away,
        timed & mine[src] & away[dst],
        timed & away[src] & mine[dst],
        away[src] & (top.vertex_kind[src] == NIC) & (top.vertex_kind[dst] > NIC),
        away[: top.n_gpus],
    )
    return Cut(owner.astype(np.int64), *(np.flatnonzero(chosen) for chosen in lists))
