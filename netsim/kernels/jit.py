"""How kernels are compiled.

A kernel takes its state as NamedTuples of dozens of arrays. numba counts references to every one of them in every function that such a
tuple passes through, with atomic instructions: measured on the executor, nine tenths of its time. Kernels allocate nothing and keep
nothing, the caller holds all arrays, so counting is switched off (`_nrt`); a kernel that allocates an array does not compile this way and
uses plain `njit`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from numba import njit
from numba.core import event

kernel = cast(Callable[[Any], Any], njit(cache=True, _nrt=False))
"""A function called from Python, or too large to inline."""
inlined = cast(Callable[[Any], Any], njit(cache=True, _nrt=False, forceinline=True))
"""A small function that disappears into its callers."""


@contextmanager
def announced(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` whenever a kernel has to be compiled, which takes seconds to a minute; one that is cached is not announced."""

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            tell()

        def on_end(self, event: Any) -> None:
            """Nothing to say."""

    with event.install_listener("numba:compile", Listener()):
        yield
