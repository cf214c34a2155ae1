"""The packet engines of all ranks, driven as if they were one.

Traffic never leaves its plane, so a call belongs to the rank that owns its planes; planes that calls use together have one owner. Where
there are more ranks than such sets of planes, the ranks of a set can share it by leaf group, as a `Part` each, and a call ends when its
last part has. They do from the moment on at which that pays (see `partition`). Every rank runs the same executor and makes the same calls
to this class in the same order. All ranks speak once per `advance`: what completed, and the earliest time at which anything can complete
next. No rank waits for a lock or rolls back; results do not depend on the number of ranks.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np

from netsim.kernels.routing import first_nic, island_of
from netsim.kernels.structs import NIC, Array, Plan, Topology
from netsim.network.api import PS_NEVER
from netsim.network.leaf_groups import components, owners, pairs_of
from netsim.network.packet.divide import divide, hand_over_s
from netsim.network.packet.engine import PacketEngine
from netsim.network.packet.part import Part, compile_kernels
from netsim.network.partition import Look
from netsim.parallel import Comm, first_on_node_then_others

NOTHING = np.zeros(0, np.int64)
NEXT, STOP, SET, PARTS, PLAYED_NS, WINDOWS, READY = range(7)  # what each rank says of itself at an exchange


class PlaneEngine:
    """An `Engine` made of one per rank, for calls that are known from the start: call i of `calls` has handle i."""

    def __init__(
        self,
        engine: PacketEngine,
        comm: Comm,
        calls: Sequence[tuple[Plan, Array]],
        least_nics: int = 1,
        stop: Callable[[], bool] = lambda: False,
        partition: str = "auto",
    ) -> None:
        """`least_nics`: of a set of planes that is shared, each rank has so many or more. `stop` says on a rank whether to break off.
        `partition`: as in `config.Simulate`."""
        self.packets, self.comm = engine, comm
        self.exchanges = 0
        self.exchanged_bytes = 0  # that this rank sent
        self.waited_s = 0.0  # in exchanges
        self.played_s = 0.0  # in the own engine
        self._worked_s = 0.0  # likewise, of processor time
        self.now_ps = 0
        self.stopping = False
        """Some rank wants to break off; all ranks learn it at the same `advance`."""
        self._stop, self._bound = stop, PS_NEVER
        if comm.size > 1:
            with first_on_node_then_others():
                compile_kernels(engine)
        self._launch = np.array([plan.launch_ps for plan, _ in calls], np.int64)
        self._ending: dict[int, tuple[int, int]] = {}  # instance -> (parts that have ended, latest of them)
        of_call, n_sets = sets_of_planes(engine.topology, calls)
        self.n_sets = n_sets
        self.set, self.parts, place = comm.rank % n_sets, 1, comm.rank // n_sets
        self.part: Part | None = None
        self._own = of_call % comm.size == comm.rank if n_sets >= comm.size else of_call == self.set
        self.mates = np.arange(self.set, comm.size, n_sets)[:1]
        """Ranks of the own set of planes that play it, in the order of their parts."""
        self._look: Look | None = None
        """Whether to share the own set of planes, as long as that is open."""
        self.hand_over_s = 0.0
        """What handing over takes for each window, among the ranks that could share the own set."""
        if n_sets < comm.size and partition != "whole" and not (partition == "auto" and comm.crowded):
            self._could_share(calls, np.arange(self.set, comm.size, n_sets), place, least_nics)
        self._handles = np.full(len(calls), -1, np.int64)  # the own engine's handle; -1 where others play the call
        if n_sets >= comm.size or place == 0:
            self._handles[self._own] = [engine.register(*calls[i], i) for i in np.flatnonzero(self._own).tolist()]
        if self._look is not None and partition == "cut":
            self._share()

    def _could_share(self, calls: Sequence[tuple[Plan, Array]], ranks: Array, place: int, least_nics: int) -> None:
        """Find out how `ranks` would share the own set of planes, of which this rank is number `place`, and what that costs."""
        owner = self._owners(calls, self._own, ranks, least_nics)
        n = int(owner.max(initial=0)) + 1
        team = self.comm.split(self.set if place < n else self.n_sets + self.comm.rank)
        if n == 1 or place >= n:
            return
        self._owner, self._team, self._sharing = owner, team, ranks[:n]
        self.hand_over_s = hand_over_s(self.packets, team, owner)
        self._look = Look(n, self.hand_over_s)

    def _share(self) -> None:
        """From now on each rank that shares the own set of planes plays its part."""
        self.part, self._look = divide(self.packets, self._team, self._team, self._owner), None
        self.mates, self.parts = self._sharing, len(self._sharing)
        self._handles[self._own] = np.arange(self._own.sum())
        for handle in range(int(self._own.sum())):
            self.part.register(handle)

    def _owners(self, calls: Sequence[tuple[Plan, Array]], own: Array, ranks: Array, least_nics: int) -> Array:
        """Part of every vertex of the own set of planes."""
        top, mine = self.packets.topology, [calls[i] for i in np.flatnonzero(own).tolist()]
        pairs = [pairs_of(top, plan, members) for plan, members in mine]
        planes = [planes_of(top, plan, members) for plan, members in mine]
        whole = least_nics if self.packets.divisible else top.n_nics
        every = np.unique(np.concatenate([np.zeros((0, 2), np.int64), *pairs]), axis=0)
        return owners(top, np.unique(np.concatenate([NOTHING, *planes])), np.arange(len(ranks)), every, whole)

    def plays(self, handle: int) -> bool:
        """True if calls of a handle are played on this rank, at least in part."""
        return bool(self._handles[handle] >= 0)

    def start(self, instance: Array, handle: Array, t_ps: Array) -> None:
        """Start calls; each rank starts its own and notes when the others' can end at the earliest."""
        own = self._handles[handle]
        mine = own >= 0
        if mine.any():
            (self.part or self.packets).start(instance[mine], own[mine], t_ps[mine])
        self._bound = min(self._bound, int((t_ps + self._launch[handle]).min()))

    def next_time(self) -> int:
        """Lower bound of the next completion on any rank."""
        return self._bound

    def advance(self, until_ps: int) -> tuple[Array, Array]:
        """Advance all ranks to `until_ps`, which is at or before `next_time`, and merge what completed."""
        began, before = time.perf_counter(), 0.0 if self.part is None else self.part.waited_s
        worked = time.process_time()
        done, times = (self.part or self.packets).advance(until_ps)
        self._worked_s += time.process_time() - worked
        waited = 0.0 if self.part is None else self.part.waited_s - before
        self.played_s += time.perf_counter() - began - waited
        self.waited_s += waited
        self.now_ps = until_ps
        if self.comm.size == 1:
            self._bound, self.stopping = self.packets.next_time(), self._stop()
            return done, times
        following, bounds = self.part.bounds() if self.part is not None else (self.packets.next_time(), NOTHING)
        began = time.perf_counter()
        cost = int(1e9 * self._worked_s), self.packets.windows, not self.packets.has_ended
        said = np.array([following, self._stop(), self.set, self.parts, *cost], np.int64)
        everyone = self.comm.fuse([done, times, said, bounds.ravel()])
        self.waited_s += time.perf_counter() - began
        self.exchanges += 1
        self.exchanged_bytes += 8 * (2 * len(done) + 5 + said.size + bounds.size)
        done, times = self._ended(everyone)
        self.stopping = any(rank[2][STOP] for rank in everyone)
        self._bound = _bound(everyone, done)
        if self.part is not None:
            self.part.retire(done, times)
        if self._look is not None and self._pays(self._look, everyone[self.set][2]):
            self._share()
        return done, times

    def _pays(self, look: Look, said: Array) -> bool:
        """Whether to share the own set of planes from now on, by what `said` the rank that has played it; not while calls wait to end."""
        played = np.zeros(look.ranks)
        played[0] = said[PLAYED_NS] * 1e-9
        return bool(said[READY]) and look.pays(played, int(said[WINDOWS]))

    def _ended(self, everyone: list[list[Array]]) -> tuple[Array, Array]:
        """Calls of which all parts have ended, and when the last did."""
        ended = []
        for done, times, said, _ in everyone:
            for i, t in zip(done.tolist(), times.tolist(), strict=True):
                n, latest = self._ending.pop(i, (0, 0))
                if n + 1 == said[PARTS]:
                    ended.append((max(t, latest), i))
                else:
                    self._ending[i] = n + 1, max(t, latest)
        ended.sort()
        table = np.array(ended, np.int64).reshape(-1, 2)
        return table[:, 1].copy(), table[:, 0].copy()

    def counters(self) -> dict[str, Array]:
        """Counters of what is played here; others are 0."""
        return self.packets.counters()


def _bound(everyone: list[list[Array]], done: Array) -> int:
    """No call can complete before: a set that is shared knows when each of its calls can have left, and when anything can arrive."""
    shared: dict[int, list[tuple[int, Array]]] = {}
    least = PS_NEVER
    for _, _, said, bounds in everyone:
        if said[PARTS] == 1:
            least = min(least, int(said[NEXT]))
        else:
            shared.setdefault(int(said[SET]), []).append((int(said[NEXT]), bounds.reshape(-1, 2)))
    for parts in shared.values():
        instance = parts[0][1][:, 0]
        assert all((bounds[:, 0] == instance).all() for _, bounds in parts)
        left = np.maximum.reduce([bounds[:, 1] for _, bounds in parts])[~np.isin(instance, done)]
        if left.size:
            least = min(least, max(int(left.min()), min(arrival for arrival, _ in parts)))
    return least


def planes_of(topology: Topology, plan: Plan, members: Array) -> Array:
    """Planes that the NICs of a call are in, ascending."""
    outside = plan.edge_nic_src >= 0
    src = members[plan.edge_src[outside]] // topology.gpus_per_node * topology.nics_per_node + plan.edge_nic_src[outside]
    dst = members[plan.edge_dst[outside]] // topology.gpus_per_node * topology.nics_per_node + plan.edge_nic_dst[outside]
    first_nic = int(np.argmax(topology.vertex_kind == NIC))
    return np.unique(topology.vertex_plane[first_nic + np.r_[src, dst]])


def sets_of_planes(topology: Topology, calls: Sequence[tuple[Plan, Array]]) -> tuple[Array, int]:
    """Number of the set of planes of each call, and how many sets there are, at least 1.

    A call ties its planes together, and so do calls that share the scale-up link of a GPU, or a link between islands.
    """
    first_gpu = int(topology.vertex_plane.max(initial=0)) + 1
    tied, plane = [np.zeros((0, 2), np.int64)], []
    for plan, members in calls:
        planes = planes_of(topology, plan, members)
        inside = plan.edge_nic_src < 0
        gpus = np.unique(members[np.r_[plan.edge_src[inside], plan.edge_dst[inside]]])
        plane.append(planes[0])
        islands = island_of(topology, members[np.stack([plan.edge_src[inside], plan.edge_dst[inside]])])
        joined = np.unique(islands[:, islands[0] != islands[1]])
        others = np.r_[planes[1:], first_gpu + gpus, first_gpu + topology.n_gpus + joined]
        tied.append(np.stack([np.full(others.size, planes[0]), others], axis=1))
    root = components(first_nic(topology) + first_gpu, np.concatenate(tied).astype(np.int64))
    used, number = np.unique(root[np.array(plane, np.int64)], return_inverse=True)
    return number.ravel(), max(1, len(used))
