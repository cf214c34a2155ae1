"""Congestion control: one file per algorithm, found by its name.

A file holds

    PARAMETERS   name -> (unit, default as people write it, meaning); unit: time, size, rate or number
    Parameters   a NamedTuple of the same names (times in ps, sizes in bytes, rates in bytes/s)
    ACKS, CNPS   whether the sender needs acknowledgements, and congestion notifications
    start, notify, acknowledge, gap, window   marked with @implements(Parameters, hook); a hook that is left out does nothing

The engine's kernels call the hooks below with the `Parameters` of the run. numba chooses the implementation by their type, when it compiles, so
a hook costs what its body costs. State of flow f: 16 float64 at `state[f * 16:]`; column 0 is its rate in bytes/s, column 1 the line rate.
"""

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

from numba.extending import overload

from netsim.kernels.structs import Array

RATE, LINE = 0, 1


def start(cc: Any, state: Array, f: int, line: float, base_rtt: int) -> None:
    """A queue pair is opened on a NIC of `line` bytes/s; `base_rtt` ps is the round trip of a full packet on the idle path."""


def notify(cc: Any, state: Array, f: int, t: int) -> None:
    """A congestion notification reaches the sender at `t`."""


def acknowledge(cc: Any, state: Array, f: int, t: int, rtt: int, nbytes: int, marked: bool, hops: int, telemetry: Array) -> None:
    """An acknowledgement of `nbytes` reaches the sender; `telemetry` has (queue bytes, sent bytes, time, rate) of each of `hops` ports."""


def gap(cc: Any, state: Array, f: int, t: int, nbytes: int) -> int:
    """A packet starts at `t`: return ps until the next one of this flow may start."""


def window(cc: Any, state: Array, f: int) -> float:
    """Return bytes that may be under way; infinite where only the rate is limited."""


def implements(parameters: type, hook: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function the implementation of a hook for runs whose parameters are of this type."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @overload(hook, strict=False, inline="never")
        def choose(cc: Any, *rest: Any) -> Callable[..., Any] | None:
            return function if getattr(cc, "instance_class", None) is parameters else None

        return function

    return register


def algorithms() -> list[str]:
    """Return the names of all algorithms."""
    return [m.name for m in pkgutil.iter_modules(__path__)]


def algorithm(name: str) -> ModuleType:
    """Return the module of an algorithm."""
    return importlib.import_module(f"{__name__}.{name}")
