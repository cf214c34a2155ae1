"""How far a run has come: a bar with the time that is left on a terminal, a log line every few seconds elsewhere, or silence.

The simulation calls `update` as often as it likes; how much of that is shown is decided here.
"""

import sys
import time
from types import TracebackType
from typing import Any, Self

LOG_EVERY_S = 5.0
"""Seconds between two log lines where there is no terminal."""


class Progress:
    """Takes reports and shows nothing; the base of those that do. Use it as a context manager."""

    def update(self, fraction: float, text: str = "") -> None:
        """Report that `fraction` (0 to 1) of the work is done; `text` says what is at hand."""

    def note(self, text: str) -> None:
        """Say at once what holds the work up for a while; the time that is left is reckoned from the pace after it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        """Take the display away."""


class Bar(Progress):
    """A bar on a terminal, drawn at most ten times a second."""

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Rich

        percent, text = "{task.percentage:>5.1f} %", TextColumn("{task.description}", markup=False)
        columns: list[Any] = [BarColumn(), percent, TimeElapsedColumn(), "left", TimeRemainingColumn(), text]
        self._bar = Rich(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
        self._task = self._bar.add_task("", total=1.0)
        self._drawn = 0.0
        self._bar.start()
        return self

    def update(self, fraction: float, text: str = "") -> None:
        now = time.monotonic()
        if now - self._drawn > 0.1 or fraction >= 1:
            self._drawn = now
            self._bar.update(self._task, completed=fraction, description=text, refresh=True)

    def note(self, text: str) -> None:
        self._bar.update(self._task, description=text, refresh=True)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()


class Log(Progress):
    """A line on standard error every few seconds: share done, time taken, time left at the pace since work began."""

    def __enter__(self) -> Self:
        self._start = self._told = time.monotonic()
        self._since: tuple[float, float] | None = None  # time and share from which the pace is reckoned
        self._noted = ""
        return self

    def update(self, fraction: float, text: str = "") -> None:
        now = time.monotonic()
        if self._since is None and fraction > 0:
            self._since = now, fraction
        if now - self._told < LOG_EVERY_S:
            return
        self._told = now
        line = f"{100 * fraction:5.1f} %  {clock(now - self._start)}{self._left(now, fraction)}  {text}"
        print(line.rstrip(), file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        self._since = None
        if text != self._noted:
            self._noted = text
            print(text, file=sys.stderr, flush=True)

    def _left(self, now: float, fraction: float) -> str:
        if self._since is None or fraction <= self._since[1]:
            return ""
        return f", {clock((now - self._since[0]) / (fraction - self._since[1]) * (1 - fraction))} left"


def clock(seconds: float) -> str:
    """`3725` -> `'1:02:05'`, `65` -> `'1:05'`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def progress(quiet: bool) -> Progress:
    """The display that fits: none when quiet, a bar on a terminal, else a log."""
    if quiet:
        return Progress()
    return Bar() if sys.stderr.isatty() else Log()
