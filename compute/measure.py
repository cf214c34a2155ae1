"""Measure your own: time the kernels of a run on the machine at hand, one after the other, and keep them as a table.

A machine (`compute.machine.Torch`) says how it executes a kernel, or why it cannot, and how long runs of it take once it is warm; the
median counts. Rows known from an earlier, interrupted measurement on the same machine are taken as they are.
"""

import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from compute import tables
from compute.kernels import Kernel
from compute.tables import Row
from compute.ways import LeftOut, Way
from netsim.errors import InputError
from netsim.progress import Progress


class Timer(Protocol):
    """A machine that can run kernels."""

    name: str

    def prepare(self, kernel: Kernel) -> Way:
        """How the machine executes a kernel, with its inputs in place; raises `LeftOut` with the reason where it cannot."""

    def seconds(self, way: Way, repeats: int) -> list[float]:
        """Durations of so many runs on the device, once it is warm."""

    def state(self) -> str:
        """What the machine says of its clocks and power limit after a run, or nothing."""


class Measured(NamedTuple):
    """What came of it: rows, those known beforehand first, and the kernels that were left out with the reason."""

    rows: list[Row]
    left_out: list[tuple[Kernel, str]]


def measure(
    kernels: Sequence[Kernel],
    timer: Timer,
    repeats: int = 20,
    known: Iterable[Row] = (),
    keep: Callable[[list[Row]], None] = lambda rows: None,
    shown: Progress | None = None,
    expected_s: Sequence[float] = (),
) -> Measured:
    """Time every kernel that is not known, once each; the median of `repeats` runs.

    keep: called with all rows after each new one. expected_s: how long each kernel will take, for the time that is left.
    """
    rows = {row.kernel: row for row in known}
    todo = {k: s for k, s in zip(kernels, expected_s or [1.0] * len(kernels), strict=True) if k not in rows}
    left_out, done, total = [], 0.0, sum(todo.values())
    for kernel, share in todo.items():
        if shown:
            shown.update(done / total, f"{kernel.kind} {kernel.direction} {kernel.dtype}")
        try:
            rows[kernel] = _timed(kernel, timer, repeats)
        except LeftOut as reason:
            left_out.append((kernel, str(reason)))
        else:
            keep(list(rows.values()))
        done += share
    return Measured(list(rows.values()), left_out)


def _timed(kernel: Kernel, timer: Timer, repeats: int) -> Row:
    way = timer.prepare(kernel)
    time_us = statistics.median(timer.seconds(way, repeats)) * 1e6
    return Row(kernel, time_us, library=way.library, source="; ".join(filter(None, (_on(timer), way.how, timer.state()))))


def _on(timer: Timer) -> str:
    return f"measured on {timer.name}"


class Kept:
    """Rows of a measurement under way, in a file beside the table (`mine.csv.part`) from which a repeated command goes on."""

    def __init__(self, path: Path, timer: Timer) -> None:
        self.path = path
        self.part = path.with_name(path.name + ".part")
        self._whole = _on(timer) + ";"

    def rows(self) -> list[Row]:
        """Rows of the same machine that an interrupted measurement left."""
        if not self.part.is_file():
            return []
        return [row for row in tables.read(str(self.part)) if row.source.startswith(self._whole)]

    def keep(self, rows: list[Row]) -> None:
        """Leave the rows so that they survive an interruption at any moment."""
        try:
            tables.write(self.part, rows)
        except OSError as error:
            raise InputError(f"device measure: --out: expected a file that can be written; got '{self.part}' ({error.strerror})") from None

    def finish(self, rows: list[Row]) -> None:
        """Leave the whole table under its own name."""
        self.keep(rows)
        os.replace(self.part, self.path)


def chosen(kernels: Iterable[Kernel], only: Sequence[str]) -> list[Kernel]:
    """Distinct kernels of the kinds in `only`, or all; `InputError` for a kind that the run does not have."""
    distinct = list(dict.fromkeys(kernels))
    kinds = sorted({kernel.kind for kernel in distinct})
    if wrong := [kind for kind in only if kind not in kinds]:
        known = ", ".join(kinds)
        raise InputError([f"device measure: --only: expected a kind of kernel that this run has ({known}); got {kind}" for kind in wrong])
    return [kernel for kernel in distinct if not only or kernel.kind in only]


def reasons(left_out: Iterable[tuple[Kernel, str]]) -> list[str]:
    """One line for all kernels of a kind, direction and precision that were left out for the same reason."""
    found: dict[tuple[str, str], int] = {}
    for kernel, reason in left_out:
        key: Any = f"{kernel.kind} {kernel.direction} {kernel.dtype}", reason
        found[key] = found.get(key, 0) + 1
    return [f"left out: {what} ({number} {'shape' if number == 1 else 'shapes'}): {reason}" for (what, reason), number in found.items()]
