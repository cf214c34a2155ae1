"""The co-simulation loop: GPUs and network advance together until every GPU has ended its iterations."""

import time
from collections.abc import Callable

import numpy as np

from netsim.kernels import executor, flow
from netsim.kernels.executor import Exec
from netsim.kernels.flow import Flow
from netsim.kernels.structs import Array
from netsim.network.api import PS_NEVER, Played
from netsim.simulate.carried import Unbooked
from netsim.telemetry.series import Log, no_log

NONE = np.zeros(0, np.int64)
REPORT_S = 0.5
"""Seconds between two reports of progress."""
SLICES = 400
"""Reports of progress per run, about."""


def ignored(part: Log) -> None:
    """Keep nothing of a log while it grows."""


def run_flow(
    gpus: Exec,
    network: Flow,
    report: Callable[[float, int], None],
    stop: Callable[[], bool],
    keep: Callable[[Log], None] = ignored,
) -> tuple[Log, bool]:
    """Run to the end on the fluid network; returns the log of transfers and whether the end was reached.

    `report(fraction, t_ps)` is told the share of rows done; `stop()` is asked now and then whether to break off;
    `keep(part)` is given the log as it grows.
    """
    whole = Transfers()
    total = _rows(gpus)
    step, until = 1_000_000, 0  # ps of simulated time per slice, adapted to the share of the work that it does
    done = 0.0
    while True:
        until = executor.run(gpus, network, min(until + step, int(flow.NEVER) - 1), NONE, NONE)
        if network.scalar[flow.LOG]:
            part = drain(network)
            whole.add(part)
            keep(part)
        if _idle(gpus, network):
            break
        share = _done(gpus) / total
        step = min(step * 2, 10**15) if share - done < 1 / SLICES else max(1_000_000, step // 2)
        done = share
        report(share, int(gpus.scalar[executor.NOW]))
        if stop():
            return whole.log(), False
    _ended(gpus)
    report(1.0, int(gpus.end.max()))
    return whole.log(), True


def run_engine(
    gpus: Exec,
    scale_up: Flow,
    engine: Played,
    handles: Array,
    report: Callable[[float, int], None],
    stop: Callable[[], bool],
    sample: Callable[[int], int],
    share: Callable[[], float],
    keep: Callable[[Log], None],
    carried: Unbooked,
) -> tuple[Log, bool]:
    """Run to the end with an engine of its own for calls that leave the node; calls inside a node move on `scale_up`.

    `handles[place]` is the engine's handle of a call. Executor and engine take turns: the executor plays up to the earliest time at which
    the engine can complete anything, hands over what it started on the way, and the engine plays up to the same time. `sample(t_ps)` is
    called whenever that time is reached and returns the next one. `carried` is told of calls when they
    start and end. `share()` says how much of the work is done, for reports of progress.
    """
    whole = Transfers()

    def book(part: Log) -> None:
        whole.add(part)
        keep(part)

    done, times = NONE, NONE
    next_sample, shown = sample(0), 0.0
    complete = False
    while True:
        horizon = min(engine.next_time(), next_sample)
        reached = executor.run(gpus, scale_up, min(horizon, int(flow.NEVER) - 1), done, times)
        done, times = NONE, NONE
        if scale_up.scalar[flow.LOG]:
            book(drain(scale_up))
        n = int(gpus.scalar[executor.N_STARTS])
        if n:
            order = np.lexsort((gpus.start_group[:n], gpus.start_t[:n]))
            places = gpus.start_call[:n][order]
            engine.start(gpus.start_group[:n][order].astype(np.int64), handles[places], gpus.start_t[:n][order].copy())
            carried.start(gpus.start_group[:n][order], places, gpus.start_tag[:n][order], gpus.start_t[:n][order])
            gpus.scalar[executor.N_STARTS] = 0
        elif engine.next_time() == PS_NEVER and _idle(gpus, scale_up):
            complete = True
            break
        if reached > 0:
            done, times = engine.advance(reached)
            carried.end(done, times)
        if reached >= next_sample:
            next_sample = sample(next_sample)
            book(carried.log())
        if time.monotonic() - shown > REPORT_S:
            shown = time.monotonic()
            report(share(), int(gpus.scalar[executor.NOW]))
        if stop():
            break
    book(carried.log())
    if complete:
        _ended(gpus)
        report(1.0, int(gpus.end.max()))
    return whole.log(), complete


def _ended(gpus: Exec) -> None:
    ended, n = int(gpus.scalar[executor.ENDS]), len(gpus.program)
    if ended != n:
        raise AssertionError(f"{n - ended} of {n} GPUs wait for ever: {stuck(gpus)}")


def stuck(gpus: Exec) -> str:
    """Say for a few GPUs which rows they wait at."""
    said = []
    for k in np.flatnonzero((gpus.state == executor.JOINED) | (gpus.state == executor.BLOCKED))[:8]:
        gpu, stream = divmod(int(k), gpus.n_streams)
        said.append(f"gpu {gpu} stream {stream} row {gpus.next_row[k]} ({'joined' if gpus.state[k] == executor.JOINED else 'blocked'})")
    return "; ".join(said)


def _idle(gpus: Exec, network: Flow) -> bool:
    """True when every GPU has ended, or nothing is left that could let one go on."""
    silent = flow.next_time(network) == flow.NEVER and gpus.scalar[executor.SIZE] == 0
    return bool(silent or gpus.scalar[executor.ENDS] == len(gpus.program))


def _rows(gpus: Exec) -> int:
    return int(np.diff(gpus.stream_ptr[:: gpus.n_streams])[gpus.program].sum()) * gpus.iterations


def _done(gpus: Exec) -> int:
    starts = gpus.stream_ptr[:-1].reshape(-1, gpus.n_streams)[gpus.program].ravel()
    rows = np.diff(gpus.stream_ptr[:: gpus.n_streams])[gpus.program]
    live = np.minimum(gpus.round, gpus.iterations - 1)
    return int((gpus.next_row - starts).sum() + (rows * live).sum())


def drain(network: Flow) -> Log:
    """Take the log of transfers from a network."""
    n = int(network.scalar[flow.LOG])
    network.scalar[flow.LOG] = 0
    return Log(*(getattr(network, f"log_{name}")[:n].copy() for name in Log._fields))


def joined(parts: list[Log]) -> Log:
    """A log in one piece."""
    whole = Transfers()
    for part in parts:
        whole.add(part)
    return whole.log()


class Transfers:
    """A log that grows where it is: large arrays are lengthened by the operating system, without a copy that memory would have to hold."""

    def __init__(self) -> None:
        self._columns = no_log()
        self._size = 0

    def add(self, part: Log) -> None:
        """Append transfers; room is made for a thirty-second more than is needed."""
        first, self._size = self._size, self._size + len(part.t0)
        for column, more in zip(self._columns, part, strict=True):
            if self._size > len(column):
                column.resize(self._size + self._size // 32, refcheck=False)
            column[first : self._size] = more

    def log(self) -> Log:
        """What has been appended; nothing may be appended after."""
        for column in self._columns:
            column.resize(self._size, refcheck=False)
        return self._columns
