"""Congestion control: one file per algorithm, found by its name.

A file holds

    PARAMETERS   name -> (unit, default as people write it, meaning); unit: time, size, rate or number
    Parameters   a NamedTuple of the same names (times in ps, sizes in bytes, rates in bytes/s)
    ACKS, CNPS, TELEMETRY   whether the sender needs acknowledgements, congestion notifications, and what the ports on the way report
    STATE        float64 per queue pair
    start, notify, acknowledge, gap, window   marked with @implements(Parameters, hook); a hook that is left out does nothing

The engine's kernels call the hooks below with the `Parameters` of the run. numba chooses the implementation by their type, when it
compiles, so a hook costs what its body costs. State of flow f: STATE float64 at `state[f * STATE:]`.
"""

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

from numba.extending import overload

from netsim.kernels.structs import Array


def start(cc: Any, state: Array, f: int, line: float, base_rtt: int, hops: int, mtu: int) -> None:
    """A queue pair is opened on a NIC of `line` bytes/s; a full packet of `mtu` bytes takes `base_rtt` ps there and back over `hops` idle
    links.
    """


def notify(cc: Any, state: Array, f: int, t: int) -> None:
    """A congestion notification reaches the sender at `t`."""


def acknowledge(
    cc: Any, state: Array, f: int, t: int, rtt: int, packets: int, marked: bool, acked: int, sent: int, telemetry: Array, at: int
) -> None:
    """Word of `packets` more packets reaches the sender: of all before number `acked`, the last of which took `rtt`; `sent` have been sent.

    `telemetry[at + 4 h:]` is (queue in bytes, bytes sent, ps, bytes/s) of the port of hop h when that packet left it; hop 0 is the NIC.
    """


def gap(cc: Any, state: Array, f: int, t: int, nbytes: int) -> int:
    """A packet starts at `t`: return ps until the next one of this flow may start."""
    raise NotImplementedError


def window(cc: Any, state: Array, f: int) -> float:
    """Return bytes that may be under way; infinite where only the rate is limited."""
    raise NotImplementedError


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
