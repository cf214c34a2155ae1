"""Recording what one GPU issues, once per kind of block: kernels and communication in order, on CUDA streams.

A *segment* is a run of kernels on the compute stream with no communication between them; it becomes one operation. A communication on the
compute stream blocks it; one that was *started* on another stream begins when all that was issued before it has run, and later kernels
run beside it until they *wait* for it. This is how PyTorch's process groups behave: a collective's stream waits for an event on the
caller's stream, and the caller's stream waits for another one when the handle is waited for.

The host issues everything in order, ahead of the GPU but no faster than its own pace: its rows stand for the launches since the one before,
and the last kernel of these cannot end before them. Where it must read a result first (`read`), it falls back to the GPU.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from compute.api import Kernel, launches
from netsim.kernels.structs import CATEGORIES, COMM, COMPUTE, HOST, TIMERS, Array

STREAMS = (
    "compute",
    "tp",
    "dp",
    "expt_dp",
    "pp_send_next",
    "pp_recv_prev",
    "pp_send_prev",
    "pp_recv_next",
    "pp_rev_send_next",
    "pp_rev_recv_prev",
    "pp_rev_send_prev",
    "pp_rev_recv_next",
    "cp",
    "ep",
    "gather",
    "host",
)
"""All streams; the first is the compute stream, the last the processor that issues. Messages of chunks that travel from the last stage to
the first have streams of their own, because they are posted together with the others and neither waits for the other.
"""
STREAM = {name: i for i, name in enumerate(STREAMS)}
CATEGORY = {name: i for i, name in enumerate(CATEGORIES)}
TIMER_OF = {name: i for i, name in enumerate(TIMERS)}
WIDTH = 9
"""Columns of a recorded row: kind, call, dim, category, layer, memory kept (positive) or freed, memory in use meanwhile, microbatch,
timer."""
KIND, CALL, DIM, CAT, LAYER, KEPT, TEMP, MICROBATCH, TIMER = range(WIDTH)

EMBEDDING, HEAD = -2, -3
"""Numbers of the parts outside layers while a program is built; the simulator sees -1."""

COLLECTIVE = 5.0
"""What a collective costs the host, in small PyTorch operations: events and streams of the process group around NCCL's own kernel."""

Ref = tuple[int, int]
"""A row of a program under construction: stream, and index on this stream."""


class Tables:
    """Kernels, segments and calls, each distinct one stored once and named by its number."""

    def __init__(self) -> None:
        self.kernels: dict[Kernel, int] = {}
        self.segments: dict[tuple[str, tuple[int, ...]], int] = {}
        self.calls: dict[tuple[str, int, str, int], int] = {}
        self.dims: dict[str, int] = {}
        self.launches: dict[int, float] = {}
        """Segments that stand for the host -> launches."""

    def host(self, launches: float) -> int:
        """Return the number of the segment in which the host does so much."""
        number = self.segments.setdefault((f"host {launches:g}", ()), len(self.segments))
        self.launches[number] = launches
        return number

    def segment(self, kernels: list[Kernel], name: str = "") -> int:
        """Return the number of the segment that runs `kernels` in this order, under this name."""
        numbers = tuple([self.kernels.setdefault(k, len(self.kernels)) for k in kernels])
        return self.segments.setdefault((name, numbers), len(self.segments))

    def call(self, op: str, nbytes: int, name: str, ranks: int) -> int:
        """Return the number of the call."""
        return self.calls.setdefault((op, nbytes, name, ranks), len(self.calls))

    def dim(self, name: str) -> int:
        """Return the number of the group dimension."""
        return self.dims.setdefault(name, len(self.dims))


class Block(NamedTuple):
    """A recorded block: rows per stream, dependencies inside it, and where parameters are used and their gradients appear."""

    rows: tuple[Array, ...]  # per stream int64[rows, WIDTH]
    deps: Array  # int64[D, 4]: stream, index of the row; stream, index of what it waits for
    marks: dict[tuple[int, str], int]  # (layer in the block, module): index on the compute stream of the last kernel concerned
    issued: tuple[Ref, ...]  # rows in the order in which the host issues them
    exchanges: tuple[tuple[int, int, int], ...]  # (layer, first, end) in `issued` of exchanges with experts that block the compute stream
    launched: tuple[tuple[int, ...], ...]  # per stream the places of its rows in `issued`


def launched(issued: list[Ref]) -> tuple[tuple[int, ...], ...]:
    """Return for every stream the places of its rows in the order of issue."""
    places: list[list[int]] = [[] for _ in STREAMS]
    for at, (stream, _) in enumerate(issued):
        places[stream].append(at)
    return tuple(map(tuple, places))


class Tape:
    """Records one block; `layer` is the layer (counted from the block's first) that rows belong to, `phase` the category of kernels.

    `late`: a communication that was started beside compute gets its thread blocks when the next kernel ends (launch.py).
    `hosted`: the time that the host takes to launch counts.
    """

    def __init__(self, tables: Tables, phase: str, sizes: dict[str, int], late: bool = False, hosted: bool = False) -> None:
        self.tables = tables
        self.late = late
        self.phase = phase
        self.timer = TIMER_OF["forward-compute" if phase == "forward" else "backward-compute"]
        self.layer = -1
        self.sizes = sizes
        self.hosted = hosted
        self._rows: list[list[tuple[int, ...]]] = [[] for _ in STREAMS]
        self._deps: list[tuple[int, int, int, int]] = []
        self._open: list[Kernel] = []
        self._pending: list[Ref] = []
        self._memory = [0, 0]
        self._marks: dict[tuple[int, str], int] = {}
        self._labels: list[str] = []
        self._issued: list[Ref] = []
        self._exchanges: list[tuple[int, int, int]] = []
        self._retain = True
        self._behind: tuple[Ref, ...] = ()
        self._launches = 0.0
        self._read: tuple[Ref, ...] = ()
        self.deferred: Tape | None = None
        """Where weight gradients go that are computed in a step of their own."""

    def compute(self, *kernels: Kernel, keep: int = 0, free: int = 0, temp: int = 0, label: str = "") -> None:
        """Run kernels on the compute stream; `keep` and `free` bytes change what stays allocated, `temp` is allocated meanwhile.

        `label` becomes part of the name of their segment.
        """
        first, kernels = (kernels[:1], kernels[1:]) if self._behind else (kernels, ())
        self._launches += sum(launches(k) for k in first)
        self._open.extend(first)
        if not self._retain:
            keep, free, temp = 0, 0, temp + keep
        self._memory[1] = max(self._memory[1], self._memory[0] + keep + temp)
        self._memory[0] += keep - free
        if label and label not in self._labels:
            self._labels.append(label)
        if self._behind and first:
            waiting, self._behind = self._behind, ()
            self.cut()
            self._deps.extend((*ref, 0, len(self._rows[0]) - 1) for ref in waiting)
            if kernels:
                self.compute(*kernels, label=label)

    def weights(self, module: str, *kernels: Kernel, free: int = 0, temp: int = 0) -> None:
        """Compute weight gradients of `module`: now, or in the step of their own that the schedule has for them."""
        tape = self.deferred or self
        tape.compute(*kernels, free=free, temp=temp, label=module)
        tape.mark(module)

    def mark(self, module: str) -> None:
        """Note that the kernels just issued use the parameters of `module`, or produce their gradients."""
        self._marks[self.layer, module] = len(self._rows[0]) - (0 if self._open else 1)

    def cut(self, pending: bool = False) -> None:
        """End the open segment; with `pending`, also let an empty one wait for what is still waited for."""
        if self._open or self._memory != [0, 0] or (pending and self._pending):
            segment = self.tables.segment(self._open, "+".join(self._labels))
            self._add(0, (COMPUTE, segment, -1, CATEGORY[self.phase], self.layer, *self._memory, 0, self.timer))
            self._open, self._memory, self._labels = [], [0, 0], []

    def forget(self, record: Callable[[], None], keep: int = 0) -> None:
        """Record a region of the forward pass whose activations are not kept, but for `keep` bytes of its input."""
        self._retain = False
        record()
        self._retain = True
        self.compute(keep=keep)

    def again(self, record: Callable[[], None], free: int = 0) -> None:
        """Record a region again in the backward pass; `free` is what the forward pass kept for it."""
        self.cut()
        phase, self.phase = self.phase, "recompute"
        self.compute(free=free)
        record()
        self.cut()
        self.phase = phase

    def at(self, layer: int) -> None:
        """Go to another layer."""
        self.cut()
        self.layer = layer
        if self.deferred:
            self.deferred.at(layer)

    def comm(self, dim: str, op: str, nbytes: int, name: str, category: str = "") -> None:
        """Communicate on the compute stream; does nothing where the group has one member."""
        if self.sizes.get(dim, 1) > 1:
            self.cut()
            self._behind = ()  # no kernel in the way of what was started before
            self._add(0, self._communication(dim, op, nbytes, name, category))

    def exchange(self, calls: list[tuple[str, str, int, str]]) -> None:
        """Communicate with experts on the compute stream, where another microbatch may be put beside it."""
        self.cut(pending=True)
        first = len(self._issued)
        for call in calls:
            self.comm(*call)
        if len(self._issued) > first:
            self._exchanges.append((self.layer, first, len(self._issued)))

    def start(
        self,
        stream: str,
        dim: str,
        op: str,
        nbytes: int,
        name: str,
        category: str = "",
        after: tuple[Ref, ...] | None = None,
        urgent: bool = False,
    ) -> tuple[Ref, ...]:
        """Communicate on another stream, after what was issued so far (or after `after`); returns what to `wait` for.

        `urgent`: on a stream of high priority, whose thread blocks come before those of other kernels.
        """
        if self.sizes.get(dim, 1) <= 1:
            return ()
        self.cut(pending=True)
        ref = self._add(STREAM[stream], self._communication(dim, op, nbytes, name, category))
        self._deps.extend((*ref, *other) for other in (self.last() if after is None else after))
        if self.late and not urgent:
            self._behind += (ref,)
        return (ref,)

    def wait(self, *refs: tuple[Ref, ...]) -> None:
        """Let the next kernel or communication on the compute stream wait for `refs`."""
        waits = [r for group in refs for r in group]
        self._behind = tuple(r for r in self._behind if r not in waits)
        if waits:
            self.cut()
            self._pending.extend(waits)

    def read(self) -> None:
        """Let the host wait for what was issued so far, as when it reads a result of the GPU."""
        if self.hosted:
            self._read = self.issue()

    def issue(self) -> tuple[Ref, ...]:
        """Let what follows wait until the host has launched what was issued so far; returns the last row of the compute stream."""
        self.cut(pending=True)
        if self.hosted and self._launches and self._rows[0]:
            row = (HOST, self.tables.host(self._launches), -1, CATEGORY["other"], self.layer, 0, 0, 0, TIMER_OF["other"])
            ref = self._add(STREAM["host"], row)
            self._deps.extend((*ref, *other) for other in self._read)
            self._pending.append(ref)
            self._launches, self._read = 0.0, ()
        return self.last()

    @contextmanager
    def at_cost(self, cost: float) -> Iterator[None]:
        """Let all kernels and communication issued meanwhile cost the host so much, whatever their number."""
        before = self._launches
        yield
        self._launches = before + cost

    def last(self) -> tuple[Ref, ...]:
        """Return the last row of the compute stream."""
        self.cut(pending=True)
        return ((0, len(self._rows[0]) - 1),) if self._rows[0] else ()

    def block(self) -> Block:
        """Return what was recorded."""
        self.at(-1)
        self.issue()
        rows = tuple(np.array(r, dtype=np.int64).reshape(-1, WIDTH) for r in self._rows)
        deps = np.array(self._deps, dtype=np.int64).reshape(-1, 4)
        return Block(rows, deps, self._marks, tuple(self._issued), tuple(self._exchanges), launched(self._issued))

    def _communication(self, dim: str, op: str, nbytes: int, name: str, category: str) -> tuple[int, ...]:
        call = self.tables.call(op, int(nbytes), name, self.sizes[dim])
        self._launches += COLLECTIVE
        return (COMM, call, self.tables.dim(dim), CATEGORY[category or name.split(".")[0]], self.layer, 0, 0, 0, self.timer)

    def _add(self, stream: int, row: tuple[int, ...]) -> Ref:
        ref = (stream, len(self._rows[stream]))
        self._rows[stream].append(row)
        self._issued.append(ref)
        if stream == 0 and self._pending:
            self._deps.extend((*ref, *other) for other in self._pending)
            self._pending = []
        return ref
