"""A training run on the packet engine: calls that leave a node go to it packet by packet, calls inside a node stay fluid."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from netsim import parallel
from netsim.config import Run
from netsim.kernels.executor import Exec
from netsim.kernels.flow import Flow
from netsim.kernels.structs import Array
from netsim.network.packet.engine import PacketEngine
from netsim.network.planes import PlaneEngine, planes_of
from netsim.simulate.loop import Log, run_engine
from netsim.simulate.model import Model


class Samples(NamedTuple):
    """Bytes that links carried between two samples, only where there were any: K entries in order of interval."""

    interval: Array  # int32[K]
    link: Array  # int32[K]
    nbytes: Array  # float64[K]


class Played(NamedTuple):
    """What the packet engine leaves behind."""

    log: Log
    complete: bool
    counters: dict[str, Array]  # int64[L] each, over all ranks
    samples: Samples
    exchanges: int
    waited_s: float


class Sampler:
    """Reads the engine's byte counters at every interval's end."""

    def __init__(self, engine: PlaneEngine, interval_ps: int) -> None:
        self.engine, self.interval_ps = engine, interval_ps
        self._last = engine.counters()["bytes"]
        self._parts: list[tuple[int, Array, Array]] = []

    def __call__(self, t_ps: int) -> int:
        """Take the sample that is due at `t_ps`; returns when the next one is."""
        if t_ps > 0:
            self.take(t_ps // self.interval_ps - 1)
        return t_ps + self.interval_ps

    def take(self, interval: int) -> None:
        """Book what was carried since the last sample under an interval."""
        now = self.engine.counters()["bytes"]
        link = np.flatnonzero(now != self._last)
        self._parts.append((interval, link.astype(np.int32), (now - self._last)[link].astype(np.float64)))
        self._last = now

    def samples(self) -> Samples:
        """Everything so far."""
        intervals = [np.full(len(link), i, np.int32) for i, link, _ in self._parts]
        return Samples(*(np.concatenate(c) for c in (intervals, [p[1] for p in self._parts], [p[2] for p in self._parts])))


def leaves_node(model: Model) -> Array:
    """int8[X]: 1 for every place whose call uses NICs."""
    outside = np.array([bool((plan.edge_nic_src >= 0).any()) for plan in model.table.plans] + [False])
    return outside[model.table.call_plan].astype(np.int8)


def play(
    run: Run, model: Model, gpus: Exec, scale_up: Flow, report: Callable[[float, int], None], stop: Callable[[], bool]
) -> Played:
    """Run to the end on all ranks; every rank returns the same."""
    world = parallel.world()
    engine = PlaneEngine(
        PacketEngine(model.topology, model.routes, run.network, run.seed), world, model.topology, _joined_planes(model, gpus)
    )
    handles = np.full(len(model.table.call_flow), -1, np.int64)
    for place, group in zip(_external_places(model, gpus).tolist(), _groups_of_places(model, gpus).tolist(), strict=True):
        members = model.groups.member_idx[model.groups.member_ptr[group] : model.groups.member_ptr[group + 1]]
        handles[place] = engine.register(model.table.plans[model.table.call_plan[place]], members)
    sampler = Sampler(engine, run.telemetry.interval)
    log, complete = run_engine(gpus, scale_up, engine, handles, report, stop, sampler)
    sampler.take(int(gpus.end.max()) // run.telemetry.interval)
    everyone = world.gather((engine.counters(), sampler.samples())) or [(engine.counters(), sampler.samples())]
    counters = {name: sum(part[0][name] for part in everyone) for name in everyone[0][0]}
    samples = Samples(*(np.concatenate([getattr(part[1], name) for part in everyone]) for name in Samples._fields))
    order = np.lexsort((samples.link, samples.interval))
    return Played(log, complete, counters, Samples(*(column[order] for column in samples)), engine.exchanges, engine.waited_s)


def _external_places(model: Model, gpus: Exec) -> Array:
    return np.flatnonzero((gpus.call_external == 1) & (model.table.call_flow >= 0))


def _groups_of_places(model: Model, gpus: Exec) -> Array:
    return np.searchsorted(model.table.group_call_ptr, _external_places(model, gpus), side="right") - 1


def _joined_planes(model: Model, gpus: Exec) -> list[Array]:
    """Sets of planes that a call uses together."""
    sets = set()
    for place, group in zip(_external_places(model, gpus).tolist(), _groups_of_places(model, gpus).tolist(), strict=True):
        members = model.groups.member_idx[model.groups.member_ptr[group] : model.groups.member_ptr[group + 1]]
        sets.add(tuple(planes_of(model.topology, model.table.plans[model.table.call_plan[place]], members).tolist()))
    return [np.array(planes) for planes in sorted(sets) if len(planes) > 1]
