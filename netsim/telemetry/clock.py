"""How long telemetry takes: a clock that runs while any of its work is done."""

import time
from types import TracebackType


class Clock:
    """Adds up the wall time spent inside `with clock:`; blocks may lie in each other."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._depth, self._began = 0, 0.0

    def __enter__(self) -> "Clock":
        if self._depth == 0:
            self._began = time.perf_counter()
        self._depth += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.spent_s += time.perf_counter() - self._began
