"""The program of one pipeline stage under construction: blocks played one after another, and what ties them together.

Blocks are recorded once (tape.py) and placed many times; rows are materialised with NumPy when the program is complete.
"""

from typing import NamedTuple

import numpy as np

from compute.api import Kernel
from netsim.kernels.structs import COMM, COMPUTE, Array
from workload.tape import CATEGORY, LAYER, MICROBATCH, STREAM, STREAMS, WIDTH, Block, Ref, Tables


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


class Program(NamedTuple):
    """A finished program: rows of all streams one after another, int64[rows, WIDTH], and dependencies."""

    stream_rows: Array  # int64[S]
    rows: Array
    deps: Array  # int64[D, 2] row, row that it waits for


class Timeline:
    """Streams of one program, filled from the front."""

    def __init__(self, tables: Tables, sizes: dict[str, int]) -> None:
        self.tables = tables
        self.sizes = sizes
        self._length = [0] * len(STREAMS)
        self._plays: dict[int, tuple[Block, list[tuple[int, ...]]]] = {}
        self._singles: list[tuple[int, ...]] = []
        self._deps: list[tuple[int, int, int, int]] = []
        self._pending: list[Ref] = []
        self.end: Ref | None = None

    def wait(self, *refs: Ref | None) -> None:
        """Let the next block wait for `refs`."""
        self._pending.extend(r for r in refs if r is not None)

    def depend(self, row: Ref, *others: Ref | None) -> None:
        """Let `row` wait for `others`."""
        self._deps.extend((*row, *other) for other in others if other is not None)

    def play(self, block: Block, microbatch: int = -1, layer: int = -1, second: tuple[int, int] = (-1, -1)) -> Placed:
        """Append a block; `layer` is the global number of its first layer, `second` both figures of a woven block's other half."""
        placed = Placed(block, tuple(self._length))
        plays = self._plays.setdefault(id(block), (block, []))[1]
        plays.append((microbatch, layer, *second, *self._length))
        for stream, rows in enumerate(block.rows):
            self._length[stream] += len(rows)
        if len(block.rows[0]):
            self.depend(placed.first(), *self._pending)
            self._pending = []
            self.end = placed.last()
        return placed

    def comm(
        self, stream: str, dim: str, op: str, nbytes: int, name: str, microbatch: int = -1, after: tuple[Ref | None, ...] = ()
    ) -> Ref | None:
        """Append one communication on a stream; None where the group has one member."""
        ranks = self.sizes.get(dim, 1)
        if ranks <= 1:
            return None
        s = STREAM[stream]
        call = self.tables.call(op, nbytes, name, ranks)
        self._singles.append((s, self._length[s], COMM, call, self.tables.dim(dim), CATEGORY[name.split(".")[0]], -1, 0, 0, microbatch))
        ref = (s, self._length[s])
        self._append(ref, after)
        return ref

    def compute(self, kernels: list[Kernel], name: str, stream: str = "compute", after: tuple[Ref | None, ...] = ()) -> Ref:
        """Append one segment of the optimizer on a stream, under a name."""
        s = STREAM[stream]
        segment = self.tables.segment(kernels, name)
        self._singles.append((s, self._length[s], COMPUTE, segment, -1, CATEGORY["optimizer"], -1, 0, 0, -1))
        ref = (s, self._length[s])
        self._append(ref, after)
        return ref

    def _append(self, ref: Ref, after: tuple[Ref | None, ...]) -> None:
        self._length[ref[0]] += 1
        self.depend(ref, *after)
        if ref[0] == 0:
            self.depend(ref, *self._pending)
            self._pending = []
            self.end = ref

    def finish(self) -> Program:
        """Materialise all rows."""
        lengths = np.array(self._length, dtype=np.int64)
        base = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.empty((base[-1], WIDTH), dtype=np.int64)
        deps = [_absolute(np.array(self._deps, dtype=np.int64).reshape(-1, 4), base)]
        for block, plays in self._plays.values():
            deps.append(_lay(rows, base, block, np.array(plays, dtype=np.int64)))
        if self._singles:
            single = np.array(self._singles, dtype=np.int64)
            rows[base[single[:, 0]] + single[:, 1]] = single[:, 2:]
        every = np.concatenate(deps)
        stream = np.searchsorted(base[1:], every, side="right")
        return Program(lengths, rows, every[stream[:, 0] != stream[:, 1]])


def _absolute(deps: Array, base: Array) -> Array:
    return np.stack([base[deps[:, 0]] + deps[:, 1], base[deps[:, 2]] + deps[:, 3]], axis=1)


def _lay(rows: Array, base: Array, block: Block, plays: Array) -> Array:
    """Write all placements of a block into `rows`; return its dependencies in each of them."""
    start = base[:-1] + plays[:, 4:]
    for stream, template in enumerate(block.rows):
        if not len(template):
            continue
        copies = np.broadcast_to(template, (len(plays), *template.shape)).copy()
        half = 2 * template[:, MICROBATCH]
        copies[:, :, MICROBATCH] = plays[:, half]
        copies[:, :, LAYER] += np.where(template[:, LAYER] >= 0, plays[:, half + 1], 0)
        rows[start[:, stream, None] + np.arange(len(template))] = copies
    first = start[:, block.deps[:, 0]] + block.deps[:, 1]
    other = start[:, block.deps[:, 2]] + block.deps[:, 3]
    return np.stack([first.ravel(), other.ravel()], axis=1)
