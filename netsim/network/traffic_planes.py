"""The packet engines of all ranks for plain traffic: whole planes go round the ranks, or ranks share a plane from the moment on at which
that pays (see `partition`).
"""

import time

import numpy as np

from netsim.network.api import Flows
from netsim.network.leaf_groups import shared_planes
from netsim.network.packet.divide import divide, hand_over_s
from netsim.network.packet.engine import PacketEngine
from netsim.network.packet.part import Part
from netsim.network.partition import Look
from netsim.parallel import Comm


class TrafficPlanes:
    """Plane p starts out on rank p mod their number. All ranks make the same calls."""

    def __init__(self, engine: PacketEngine, comm: Comm, flows: Flows, least_nics: int = 1, partition: str = "auto") -> None:
        """`least_nics`: each of the ranks that share a plane has so many or more. `partition`: as in `config.Simulate`."""
        top = engine.topology
        self.engine, self.comm, self.n_planes = engine, comm, int(top.vertex_plane.max()) + 1
        self.most_ranks = self.n_planes * max(1, top.n_nics // self.n_planes // least_nics)
        self.exchanges, self.played_s, self.waited_s, self._worked_s = 0, 0.0, 0.0, 0.0
        self._owner = shared_planes(top, comm.size, least_nics if engine.divisible else top.n_nics)
        self._look: Look | None = None
        self.hand_over_s = 0.0
        """What handing over takes for each window, if ranks could share planes."""
        whole = shared_planes(top, comm.size, top.n_nics)
        if partition == "cut" or (self._owner == whole).all():
            whole = self._owner
        elif partition == "auto" and not comm.crowded:
            self._team = comm.split(comm.rank % self.n_planes)
            self.hand_over_s = hand_over_s(engine, comm, self._owner)
            self._look = Look(len(np.unique(self._owner[self._owner >= 0])), self.hand_over_s)
        self.part = Part(engine, comm, whole)
        self.part.add_flows(flows)

    def advance(self, until_ps: int) -> None:
        """Move to `until_ps`."""
        began, worked, waited = time.perf_counter(), time.process_time(), self.part.waited_s
        self.part.advance(until_ps)
        self._worked_s += time.process_time() - worked
        self.waited_s += self.part.waited_s - waited
        self.played_s += time.perf_counter() - began - (self.part.waited_s - waited)

    def exchange(self, mine: list[int]) -> list[int]:
        """Return the sums of `mine` over all ranks, which share planes from now on if that pays."""
        everyone = self.comm.allgather(np.array([*mine, int(1e9 * self._worked_s), self.engine.windows], np.int64))
        self.exchanges += 1
        playing = np.unique(self._owner[self._owner >= 0])
        if self._look is not None and self._look.pays(1e-9 * everyone[playing, -2], int(everyone[:, -1].max())):
            self.part, self._look = divide(self.engine, self._team, self.comm, self._owner), None
        return everyone[:, :-2].sum(axis=0).tolist()
