"""One packet engine per rank, each with the rail planes it owns, driven as if it were one engine.

Traffic never leaves its plane, so a call belongs to the rank that owns its planes. Every rank runs the same executor and makes the same
calls to this class in the same order. Ranks speak once per `advance`: what completed, and the earliest time at which anything can complete
next. No rank waits for a lock or rolls back; results do not depend on the number of ranks, because an engine sees only its own planes.
"""

import time
from collections.abc import Callable

import numpy as np

from netsim.kernels.structs import NIC, Array, Plan, Topology
from netsim.network.api import PS_NEVER, Engine
from netsim.parallel import Comm


class PlaneEngine:
    """An `Engine` made of one per rank."""

    def __init__(
        self, engine: Engine, comm: Comm, topology: Topology, joined: list[Array], stop: Callable[[], bool] = lambda: False
    ) -> None:
        """`joined`: lists of planes that some call uses together, hence one rank must own. `stop` says on a rank whether to break off."""
        self.engine, self.comm, self.topology = engine, comm, topology
        self.owner = _owners(topology, joined, comm.size)
        self._handles: list[int] = []  # the own engine's handle; -1 where another rank owns the call
        self._launch: list[int] = []
        self._bound = PS_NEVER
        self.exchanges = 0
        self.exchanged_bytes = 0  # that this rank sent
        self.waited_s = 0.0  # in exchanges
        self.played_s = 0.0  # in the own engine
        self.now_ps = 0
        self.stopping = False
        """Some rank wants to break off; all ranks learn it at the same `advance`."""
        self._stop = stop

    def register(self, plan: Plan, members: Array) -> int:
        """Return a handle; the call is laid out only where it is played."""
        planes = planes_of(self.topology, plan, members)
        mine = len(planes) == 0 or self.owner[planes[0]] == self.comm.rank
        self._handles.append(self.engine.register(plan, members) if mine else -1)
        self._launch.append(plan.launch_ps)
        return len(self._handles) - 1

    def plays(self, handle: int) -> bool:
        """True if calls of a handle are played on this rank."""
        return self._handles[handle] >= 0

    def start(self, instance: Array, handle: Array, t_ps: Array) -> None:
        """Start calls; each rank starts its own and notes when the others' can end at the earliest."""
        own = np.array([self._handles[h] for h in handle.tolist()], np.int64)
        mine = own >= 0
        if mine.any():
            self.engine.start(instance[mine], own[mine], t_ps[mine])
        launch = np.array([self._launch[h] for h in handle.tolist()], np.int64)
        self._bound = min(self._bound, int((t_ps + launch).min()))

    def next_time(self) -> int:
        """Lower bound of the next completion on any rank."""
        return self._bound

    def advance(self, until_ps: int) -> tuple[Array, Array]:
        """Advance all ranks to `until_ps`, which is at or before `next_time`, and merge what completed."""
        began = time.perf_counter()
        done, times = self.engine.advance(until_ps)
        self.played_s += time.perf_counter() - began
        self.now_ps = until_ps
        if self.comm.size == 1:
            self._bound, self.stopping = self.engine.next_time(), self._stop()
            return done, times
        began = time.perf_counter()
        parts = self.comm.fuse([done, times, np.array([self.engine.next_time(), self._stop()], np.int64)])
        self.waited_s += time.perf_counter() - began
        self.exchanges += 1
        self.exchanged_bytes += 8 * (2 * len(done) + 5)
        self._bound, self.stopping = min(int(part[2][0]) for part in parts), any(part[2][1] for part in parts)
        done, times = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        order = np.lexsort((done, times))
        return done[order], times[order]

    def counters(self) -> dict[str, Array]:
        """Counters of the own planes; those of others are 0."""
        return self.engine.counters()


def planes_of(topology: Topology, plan: Plan, members: Array) -> Array:
    """Planes that the NICs of a call are in, ascending."""
    outside = plan.edge_nic_src >= 0
    src = members[plan.edge_src[outside]] // topology.gpus_per_node * topology.nics_per_node + plan.edge_nic_src[outside]
    dst = members[plan.edge_dst[outside]] // topology.gpus_per_node * topology.nics_per_node + plan.edge_nic_dst[outside]
    first_nic = int(np.argmax(topology.vertex_kind == NIC))
    return np.unique(topology.vertex_plane[first_nic + np.r_[src, dst]])


def _owners(topology: Topology, joined: list[Array], n_ranks: int) -> Array:
    """Rank of each plane: planes that calls join stay together, sets of planes go round."""
    n = int(topology.vertex_plane.max(initial=0)) + 1
    root = np.arange(n)
    for planes in joined:
        roots = np.unique(root[planes])
        root[np.isin(root, roots)] = roots[0]
    _, number = np.unique(root, return_inverse=True)
    return number.ravel() % n_ranks
