"""The seam between the co-simulation and the network: calls in, completions out, in array form.

The packet engine, the flow engine and an ideal latency-bandwidth engine implement `Engine`; whoever drives one knows nothing else of it.

    handle = engine.register(plan, members)          once per communicator and shape of call
    engine.start(instances, handles, times)          calls whose members have all arrived
    done, when = engine.advance(until)               time moves to `until`, or to the first completion before it
"""

from typing import NamedTuple, Protocol

import numpy as np

from netsim.kernels.structs import Array, Plan

PS_NEVER = np.iinfo(np.int64).max
"""A time that does not come."""


class Played(Protocol):
    """A network as the co-simulation sees it, its plans registered. Times are int64 picoseconds, instances int64 numbers."""

    def start(self, instance: Array, handle: Array, t_ps: Array) -> object:
        """Start calls whose members have all arrived at `t_ps` (int64[n], none before `now_ps`); `instance` (int64[n]) names each."""

    def next_time(self) -> int:
        """Return a lower bound of the time at which the next instance completes if nothing else starts; `PS_NEVER` when idle."""

    def advance(self, until_ps: int) -> tuple[Array, Array]:
        """Move `now_ps` to the first completion if that is at or before `until_ps`, else to `until_ps`.

        Returns (instances, times), both int64[n]: all that complete at that moment, in ascending order of instance; empty where none does.
        """

    def counters(self) -> dict[str, Array]:
        """Return what each link has seen so far: int64[L] bytes, packets, queue_max (bytes), ecn (marks), pause_ps, drops, reordered."""


class Engine(Played, Protocol):
    """A network that carries calls of registered plans."""

    @property
    def now_ps(self) -> int:
        """Everything before this time has been played; nothing may start earlier."""

    def register(self, plan: Plan, members: Array) -> int:
        """Return a handle for calls of `plan` among `members` (int32[R] GPUs in rank order)."""


class Flows(NamedTuple):
    """Plain traffic: F messages between NICs, each on a queue pair of its own."""

    src: Array  # int32[F] NIC
    dst: Array  # int32[F] NIC
    nbytes: Array  # int64[F]
    start_ps: Array  # int64[F]
