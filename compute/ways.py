"""What an operation offers: ways to execute a kernel, best first, or the reason why there is none."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from compute.kernels import Kernel


class Way(NamedTuple):
    """One way to execute a kernel: `call(*inputs)` returns what it computed.

    how: for the source of the row. library: the implementation of attention, in the words of the kernel tables.
    """

    how: str
    call: Callable[..., Any]
    inputs: tuple[Any, ...]
    library: str = ""


class LeftOut(Exception):
    """No way to execute a kernel here; the message is the reason."""


Operation = Callable[[Any, Kernel], Iterator[Way]]
"""From a machine (`compute.machine.Torch`) and a kernel to the ways of executing it."""
