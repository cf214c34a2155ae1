"""Counters of the packet engine over time."""

from collections.abc import Collection
from typing import Protocol

import numpy as np

from netsim.kernels.structs import Array
from netsim.network.packet.engine import PacketEngine
from netsim.telemetry.frame import Samples
from netsim.telemetry.spool import Spool


class Counting(Protocol):
    """A packet engine, or one per rank."""

    @property
    def now_ps(self) -> int:
        """Everything before this time has been played."""

    def counters(self) -> dict[str, Array]:
        """What each link has seen so far."""


class Sampler:
    """Reads the counters of a rank's planes at every interval's end; only what changed is kept."""

    def __init__(self, engine: Counting, packets: PacketEngine, interval_ps: int, names: Collection[str], spool: Spool) -> None:
        self.interval_ps = interval_ps
        self._packets = packets
        self._engine, self._spool = engine, spool
        self._last = self._engine.counters()
        self._resent: list[Array] = []
        self._queued = np.zeros(len(self._last["bytes"]))
        self._parts: dict[str, list[tuple[int, Array, Array]]] = {name: [] for name in names}
        self._highest = self._last["queue_max"]

    def __call__(self, t_ps: int) -> int:
        """Take the sample that is due at `t_ps`; returns when the next one is."""
        if t_ps > 0:
            self.take(t_ps // self.interval_ps - 1)
        return t_ps + self.interval_ps

    def take(self, interval: int) -> None:
        """Book what was counted since the last sample under an interval."""
        with self._spool.clock:
            self._take(interval)

    def _take(self, interval: int) -> None:
        now = self._engine.counters()
        since = {name: now[name] - self._last[name] for name in now} | {"queue_max": now["queue_max"]}
        self._queued += since["queued"]
        since["queue_mean"] = since["queued"] / self.interval_ps
        for name, parts in self._parts.items():
            link = np.flatnonzero(since[name])
            if len(link):
                parts.append((interval, link.astype(np.int32), since[name][link].astype(np.float64)))
                self._spool.sample(name, *parts[-1])
        if self._packets.resent:
            self._resent.append(np.array(self._packets.resent, np.int64))
            self._packets.resent.clear()
            self._spool.resent(self._resent[-1])
        self._highest = np.maximum(self._highest, now["queue_max"])
        self._packets.forget_queue_max()
        self._last = now

    def totals(self, end_ps: int | None = None) -> dict[str, Array]:
        """Counters over the whole run, which was over at `end_ps` (now)."""
        return self._engine.counters() | {"queue_max": self._highest, "queue_mean": self._queued / max(end_ps or self._engine.now_ps, 1)}

    def resent(self) -> Array:
        """(communicator, end, packets sent again) of calls that lost any, int64[K, 3]."""
        return np.concatenate([np.zeros((0, 3), np.int64), *self._resent])

    def samples(self) -> dict[str, Samples]:
        """Everything so far."""
        out = {}
        for name, parts in self._parts.items():
            intervals = [np.full(len(link), i, np.int32) for i, link, _ in parts]
            columns = intervals, [link for _, link, _ in parts], [value for *_, value in parts]
            nothing = np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0)
            out[name] = Samples(*(np.concatenate([empty, *column]) for empty, column in zip(nothing, columns, strict=True)))
        return out
