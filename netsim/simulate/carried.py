"""Calls that the packet engine carried, in the form of a log of transfers: which bundle of the fluid network moved what, and when."""

import numpy as np

from netsim.kernels.structs import LINK_TIERS, Array
from netsim.simulate.model import Model
from netsim.telemetry.clock import Clock
from netsim.telemetry.series import Loads, Log, no_log


class Unbooked:
    """Takes the same notes as `Carried` and keeps none: for ranks that write no file."""

    def start(self, groups: Array, places: Array, tags: Array, t_ps: Array) -> None:
        """Calls start."""

    def end(self, groups: Array, t_ps: Array) -> None:
        """Calls have ended."""

    def log(self) -> Log:
        """No transfers."""
        return no_log()


class Carried(Unbooked):
    """Books calls when they start and when they end; `log` takes what has ended since the last time.

    Within a call bytes count as moving at an even pace. Bundles are numbered behind those of the fluid network.
    """

    def __init__(self, model: Model, clock: Clock) -> None:
        self._model, self._clock = model, clock
        n_groups = len(model.groups.group_dim)
        self._place, self._tag, self._start = (np.zeros(n_groups, np.int64) for _ in range(3))
        self._ended: list[tuple[Array, Array, Array, Array]] = []

    def start(self, groups: Array, places: Array, tags: Array, t_ps: Array) -> None:
        """Note calls that start: the place of each in the table of calls, its tag in the log, the time."""
        self._place[groups], self._tag[groups], self._start[groups] = places, tags, t_ps

    def end(self, groups: Array, t_ps: Array) -> None:
        """Note that calls have ended."""
        if len(groups):
            self._ended.append((self._place[groups], self._tag[groups], self._start[groups], t_ps))

    def log(self) -> Log:
        """Transfers of the calls that have ended since this was asked last."""
        with self._clock:
            return self._log()

    def _log(self) -> Log:
        empty = (np.zeros(0, np.int64),) * 4
        place, tag, start, end = (np.concatenate(column) for column in zip(*(self._ended or [empty]), strict=True))
        self._ended = []
        fluid, calls = self._model.fluid, self._model.table
        call = calls.call_flow[place]
        footprint = fluid.call_footprint[call]
        first, count = fluid.footprint_ptr[footprint], np.diff(fluid.footprint_ptr)[footprint]
        ends = np.cumsum(count)
        ramp = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - count, count)
        start = np.minimum(start + fluid.call_launch[call], end - 1)
        t0, t1 = np.repeat(start, count), np.repeat(end, count)
        pace = fluid.volume[np.repeat(fluid.call_ptr[call], count) + ramp] / (t1 - t0) * 1e12
        bundle = np.repeat(first, count) + ramp + len(fluid.bundle_ptr) - 1
        return Log(bundle.astype(np.int32), t0, t1, pace, np.repeat(tag, count).astype(np.int32))


def with_buses(model: Model) -> Loads:
    """The loads of all bundles, and behind them those of the host bus alone, for the same bundles when the packet engine moves them."""
    fluid = model.fluid
    bus = model.topology.link_tier[fluid.node_link] == LINK_TIERS.index("host")
    ptr = np.r_[0, np.cumsum(bus)][fluid.bundle_ptr]
    return Loads(
        np.r_[fluid.bundle_ptr, fluid.bundle_ptr[-1] + ptr[1:]].astype(np.int64),
        np.r_[fluid.node_link, fluid.node_link[bus]],
        np.r_[fluid.node_coef, fluid.node_coef[bus]],
    )
