"""Stopping a run before its end: SIGTERM and SIGINT ask it to write what it has, and so does the limit of wall-clock time."""

import signal
import time
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any


class Stopping:
    """Takes both signals while it is entered; calling it says whether to break off.

    A signal only leaves a note, which the co-simulation reads between two slices of its work. `leave`, after the results are written,
    ends the process as the signal would have: exit code 143 or 130.
    """

    def __init__(self, deadline: float = float("inf")) -> None:
        """`deadline`: time of `time.perf_counter()` after which to stop."""
        self.deadline = deadline
        self.signal = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stopping":
        with suppress(ValueError):  # handlers belong to the main thread; elsewhere runs only obey the deadline
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number

    def __call__(self) -> bool:
        """True once a signal has come or the time is over."""
        return self.signal != 0 or time.perf_counter() > self.deadline


def leave(number: int) -> None:
    """End the process as signal `number` would have; 0: go on."""
    if number:
        raise SystemExit(128 + number)
