"""Processes that simulate points side by side. One that dies takes only its point with it; all end with the study, however that ends."""

import multiprocessing
import os
import shutil
import threading
import traceback
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from netsim.config import places
from netsim.errors import InputError
from netsim.progress import Progress
from netsim.study.points import Point
from netsim.study.results import DONE, FAILED, ILLEGAL, MISSING, Result, save


class _Told(Progress):
    """Passes on how far the run of a point has come, where that has changed by a hundredth."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._last = pipe, 0.0

    def update(self, fraction: float, text: str = "") -> None:
        if fraction - self._last >= 0.01:
            self._last = fraction
            self._pipe.send(fraction)


def simulate_point(point: Point, folder: Path, prices: dict[str, float], progress: Progress, keep: bool = False) -> Result:
    """Simulate one point and keep what it gives, unless a signal stopped it; result files are removed unless `keep`."""
    from netsim.simulate import simulate
    from netsim.study.metrics import collect

    assert point.run is not None
    out = folder / "points" / point.key
    try:
        out.mkdir(parents=True, exist_ok=True)
        with places(point.run):
            summary = simulate(point.run, out, progress)
            stopped = not summary["complete"] and point.run.simulate.max_wall is None
            result = Result(DONE, "" if summary["complete"] else "incomplete", collect(point.run, summary, out, prices))
            result = Result(MISSING, "stopped") if stopped else result
    except InputError as error:
        result = Result(ILLEGAL, "; ".join(error.lines))
    except Exception as error:
        result = Result(FAILED, f"{type(error).__name__}: {error} ({_where(error)})")
    if not keep:
        shutil.rmtree(out, ignore_errors=True)
    if result.status != MISSING:
        save(folder, point.key, result)
    return result


def _where(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _work(pipe: Connection, folder: Path, prices: dict[str, float], keep: bool) -> None:
    """Simulate what comes through the pipe until None comes; end at once when the parent is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
    while (point := pipe.recv()) is not None:
        pipe.send(simulate_point(point, folder, prices, _Told(pipe), keep))


def simulate_all(
    todo: list[Point], folder: Path, prices: dict[str, float], jobs: int, told: Callable[[float, Point, Result | None], None], keep: bool
) -> None:
    """Simulate all points in `jobs` processes; `told(points done so far, point, its result)` hears of every step."""
    context = multiprocessing.get_context("spawn")
    waiting, done = list(reversed(todo)), 0
    at_work: dict[Connection, tuple[BaseProcess, Point, float]] = {}
    idle = [_start(context, folder, prices, keep) for _ in range(min(jobs, len(todo)))]
    try:
        while waiting or at_work:
            while waiting and idle:
                process, pipe = idle.pop()
                at_work[pipe] = process, waiting.pop(), 0.0
                pipe.send(at_work[pipe][1])
            for pipe in _ready(wait(at_work)):
                process, point, _ = at_work[pipe]
                message = _receive(pipe, process, folder, point)
                if isinstance(message, float):
                    at_work[pipe] = process, point, message
                    told(done + sum(share for *_, share in at_work.values()), point, None)
                    continue
                del at_work[pipe]
                done += 1
                idle.append((process, pipe) if process.is_alive() else _start(context, folder, prices, keep))
                told(done + sum(share for *_, share in at_work.values()), point, message)
    finally:
        for process, _ in [*idle, *((process, pipe) for pipe, (process, *_) in at_work.items())]:
            process.kill()


def _ready(pipes: Iterable[Any]) -> list[Connection]:
    return [pipe for pipe in pipes if isinstance(pipe, Connection)]


def _start(context: Any, folder: Path, prices: dict[str, float], keep: bool) -> tuple[BaseProcess, Connection]:
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, folder, prices, keep), daemon=True)
    process.start()
    there.close()
    return process, here


def _receive(pipe: Connection, process: BaseProcess, folder: Path, point: Point) -> float | Result:
    """The next word of a process, or that it has died."""
    try:
        message: float | Result = pipe.recv()
        return message
    except EOFError:
        process.join()
        result = Result(FAILED, f"the process ended with code {process.exitcode} (out of memory?)")
        save(folder, point.key, result)
        return result
