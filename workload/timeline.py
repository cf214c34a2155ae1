"""The program of one pipeline stage under construction: blocks played one after another, and what ties them together.

Blocks are recorded once (tape.py) and placed many times; rows are materialised with NumPy when the program is complete.

Order of launch. The host launches the rows of a block as they were recorded, and a communication that stands alone right behind the rows
that it was told to come after. Calls of one communicator run in this order, whatever their streams (NCCL demands it, and a process group
has a stream of its own inside). With one launch queue (`in_order`) a row starts no sooner than the row launched before it; where both are
on one stream that is so anyway.
"""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from compute.api import Kernel
from netsim.kernels.structs import COMM, COMPUTE, Array
from workload.tape import CATEGORY, DIM, KIND, LAYER, MICROBATCH, STREAM, STREAMS, TIMER, TIMER_OF, WIDTH, Block, Ref, Tables


class Placed(NamedTuple):
    """A block where it was played: the index of its first row on every stream."""

    block: Block
    start: tuple[int, ...]

    def first(self) -> Ref:
        """First row on the compute stream."""
        return 0, self.start[0]

    def last(self) -> Ref:
        """Last row on the compute stream."""
        return 0, self.start[0] + len(self.block.rows[0]) - 1

    def marked(self, layer: int, module: str) -> Ref | None:
        """Row of the compute stream that concerns parameters of `module` in `layer` (counted from the block's first)."""
        index = self.block.marks.get((layer, module))
        return None if index is None else (0, self.start[0] + index)


class Launch(NamedTuple):
    """Place in the order of launch: block by block, row by row in a block, what stands alone behind a row in the order of appending."""

    play: int
    row: int
    alone: int


class Program(NamedTuple):
    """A finished program: rows of all streams one after another, int64[rows, WIDTH], and dependencies."""

    stream_rows: Array  # int64[S]
    rows: Array
    deps: Array  # int64[D, 2] row, row that it waits for
    starts: Array  # int64[K, 2] row, row whose start it waits for


class Timeline:
    """Streams of one program, filled from the front."""

    def __init__(self, tables: Tables, sizes: dict[str, int], in_order: bool = False) -> None:
        self.tables = tables
        self.sizes = sizes
        self.in_order = in_order
        self._length = [0] * len(STREAMS)
        self._plays: dict[int, tuple[Block, list[tuple[int, ...]]]] = {}
        self._singles: dict[Ref, list[int]] = {}
        self._placed: list[Placed] = []
        self._launch: dict[Ref, Launch] = {}
        self._latest: dict[int, Launch] = {}
        self._deps: list[tuple[int, int, int, int]] = []
        self._pending: list[Ref] = []
        self.end: Ref | None = None

    def wait(self, *refs: Ref | None) -> None:
        """Let the next block wait for `refs`."""
        self._pending.extend(r for r in refs if r is not None)

    def latest(self, *streams: str) -> list[Ref]:
        """Return the last row of each of `streams` that has one."""
        return [(s, self._length[s] - 1) for s in map(STREAM.__getitem__, streams) if self._length[s]]

    def depend(self, row: Ref, *others: Ref | None) -> None:
        """Let `row` wait for `others`."""
        self._deps.extend((*row, *other) for other in others if other is not None)

    def play(self, block: Block, microbatch: int = -1, layer: int = -1, second: tuple[int, int] = (-1, -1)) -> Placed:
        """Append a block; `layer` is the global number of its first layer, `second` both figures of a woven block's other half."""
        placed = Placed(block, tuple(self._length))
        plays = self._plays.setdefault(id(block), (block, []))[1]
        plays.append((microbatch, layer, *second, len(self._placed), *self._length))
        self._placed.append(placed)
        for stream, rows in enumerate(block.rows):
            self._length[stream] += len(rows)
        if len(block.rows[0]):
            self.depend(placed.first(), *self._pending)
            self._pending = []
            self.end = placed.last()
        return placed

    def comm(
        self,
        stream: str,
        dim: str,
        op: str,
        nbytes: int,
        name: str,
        microbatch: int = -1,
        after: tuple[Ref | None, ...] = (),
        timer: str = "other",
    ) -> Ref | None:
        """Append one communication on a stream; None where the group has one member."""
        ranks = self.sizes.get(dim, 1)
        if ranks <= 1:
            return None
        call = self.tables.call(op, nbytes, name, ranks)
        row = [COMM, call, self.tables.dim(dim), CATEGORY[name.split(".")[0]], -1, 0, 0, microbatch, TIMER_OF[timer]]
        return self._append(STREAM[stream], row, after)

    def compute(
        self, kernels: list[Kernel], name: str, stream: str = "compute", after: tuple[Ref | None, ...] = (), timer: str = "optimizer"
    ) -> Ref:
        """Append one segment of the optimizer on a stream, under a name."""
        segment = self.tables.segment(kernels, name)
        return self._append(STREAM[stream], [COMPUTE, segment, -1, CATEGORY["optimizer"], -1, 0, 0, -1, TIMER_OF[timer]], after)

    def time_as(self, timer: str, *refs: Ref | None) -> None:
        """Let waits for communications that stand alone count for another timer."""
        for ref in refs:
            if ref is not None:
                self._singles[ref][TIMER] = TIMER_OF[timer]

    def _append(self, stream: int, row: list[int], after: tuple[Ref | None, ...]) -> Ref:
        ref = (stream, self._length[stream])
        self._singles[ref] = row
        self._length[stream] += 1
        self._launch[ref] = self._latest[stream] = self._launched(ref, after)
        self.depend(ref, *after)
        if ref[0] == 0:
            self.depend(ref, *self._pending)
            self._pending = []
            self.end = ref
        return ref

    def _launched(self, ref: Ref, after: tuple[Ref | None, ...]) -> "Launch":
        """When the host launches a row that stands alone: behind all of `after`, and behind what its stream already has."""
        known = [self._launch_of(other) for other in after if other is not None] if ref[0] else []
        last = Launch(len(self._placed) - 1, len(self._placed[-1].block.issued) - 1 if self._placed else 0, 0)
        behind = max([*known, self._latest.get(ref[0], Launch(-1, 0, 0))]) if known else last
        return Launch(behind.play, behind.row, len(self._singles))

    def _launch_of(self, ref: Ref) -> "Launch":
        if ref in self._launch:
            return self._launch[ref]
        assert ref[0] == 0, f"row {ref} is inside a block, off the compute stream"
        play = bisect_right(self._placed, ref[1], key=lambda placed: placed.start[0]) - 1
        placed = self._placed[play]
        return Launch(play, placed.block.launched[0][ref[1] - placed.start[0]], 0)

    def finish(self) -> Program:
        """Materialise all rows."""
        lengths = np.array(self._length, dtype=np.int64)
        base = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.empty((base[-1], WIDTH), dtype=np.int64)
        launch = np.zeros((base[-1], 3), dtype=np.int64)
        deps = [_absolute(np.array(self._deps, dtype=np.int64).reshape(-1, 4), base)]
        for block, plays in self._plays.values():
            deps.append(_lay(rows, launch, base, block, np.array(plays, dtype=np.int64)))
        if self._singles:
            where = np.array(list(self._singles), dtype=np.int64)
            at = base[where[:, 0]] + where[:, 1]
            rows[at] = np.array(list(self._singles.values()), dtype=np.int64)
            launch[at] = np.array([self._launch[ref] for ref in self._singles], dtype=np.int64)
        every = np.concatenate(deps)
        stream = np.searchsorted(base[1:], every, side="right")
        every = every[stream[:, 0] != stream[:, 1]]
        order = np.lexsort(launch.T[::-1])
        every = np.concatenate([every, _of_communicators(order, lengths, every, rows)])
        return Program(lengths, rows, every, _in_order(order, lengths, every, rows) if self.in_order else np.zeros((0, 2), np.int64))


def _of_communicators(order: Array, lengths: Array, deps: Array, rows: Array) -> Array:
    """Return int64[K, 2]: calls, and the call before them on the same group from another stream, where nothing else keeps them in order."""
    calls = order[rows[order, KIND] == COMM]
    calls = calls[np.argsort(rows[calls, DIM], kind="stable")]
    before, call = calls[:-1], calls[1:]
    stream = np.repeat(np.arange(len(lengths)), lengths)
    pairs = (rows[before, DIM] == rows[call, DIM]) & (stream[before] != stream[call])
    before, call = before[pairs], call[pairs]
    known = np.zeros(len(call), dtype=np.bool_)
    for one, other in set(zip(stream[call].tolist(), stream[before].tolist(), strict=True)):
        latest = np.full(len(stream), -1, dtype=np.int64)  # row of the other stream that must have ended by then
        across = deps[(stream[deps[:, 0]] == one) & (stream[deps[:, 1]] == other)]
        np.maximum.at(latest, across[:, 0], across[:, 1])
        mine = stream == one
        latest[mine] = np.maximum.accumulate(latest[mine])
        here = (stream[call] == one) & (stream[before] == other)
        known[here] = latest[call[here]] >= before[here]
    return np.stack([call[~known], before[~known]], axis=1)


def _in_order(order: Array, lengths: Array, deps: Array, rows: Array) -> Array:
    """Return int64[K, 2]: rows, and the row of another stream launched right before each, unless it waits for the end of that row."""
    order = order[(rows[order, KIND] == COMPUTE) | (rows[order, KIND] == COMM)]
    stream = np.repeat(np.arange(len(lengths)), lengths)
    order = order[stream[order] != STREAM["host"]]  # what the host does is no launch
    before, row = order[:-1], order[1:]
    waits = np.isin(row * len(stream) + before, deps[:, 0] * len(stream) + deps[:, 1])
    kept = (stream[before] != stream[row]) & ~waits
    return np.stack([row[kept], before[kept]], axis=1)


def _absolute(deps: Array, base: Array) -> Array:
    return np.stack([base[deps[:, 0]] + deps[:, 1], base[deps[:, 2]] + deps[:, 3]], axis=1)


def _lay(rows: Array, launch: Array, base: Array, block: Block, plays: Array) -> Array:
    """Write all placements of a block into `rows` and `launch`; return its dependencies in each of them."""
    start = base[:-1] + plays[:, 5:]
    for stream, template in enumerate(block.rows):
        if not len(template):
            continue
        copies = np.broadcast_to(template, (len(plays), *template.shape)).copy()
        half = 2 * template[:, MICROBATCH]
        copies[:, :, MICROBATCH] = plays[:, half]
        copies[:, :, LAYER] += np.where(template[:, LAYER] >= 0, plays[:, half + 1], 0)
        at = start[:, stream, None] + np.arange(len(template))
        rows[at] = copies
        launch[at, 0] = plays[:, 4, None]
        launch[at, 1] = block.launched[stream]
    first = start[:, block.deps[:, 0]] + block.deps[:, 1]
    other = start[:, block.deps[:, 2]] + block.deps[:, 3]
    return np.stack([first.ravel(), other.ravel()], axis=1)
