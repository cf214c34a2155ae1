"""Fully sharded parameters (ZeRO-3, FSDP): gathered before use in every pass, gradients scattered after every backward.

A unit is a transformer layer, or what stands outside layers (embedding, head). When compute reaches a unit, further ones are gathered
while less than `prefetch` elements lie ahead (0: on demand); gradients are scattered when the backward of the unit ends. Both have
streams and communicators of their own. Volume per rank, pass and n ranks: (n - 1) / n of the gathered bytes. Source: Megatron-FSDP and
PyTorch FSDP2.
"""

from typing import NamedTuple

import numpy as np

from workload.buckets import Bucket
from workload.gradients import BYTES, GATHER, Sync
from workload.params import Param
from workload.shape import Shape
from workload.stages import Chunk
from workload.tape import LAYER, Block, Ref
from workload.timeline import Placed, Timeline


class Unit(NamedTuple):
    """Dense and expert elements of a unit, and its rows in a block: first and last of the compute stream."""

    dense: int
    expert: int
    first: int
    last: int


def units(block: Block, chunk: Chunk, params: list[Param]) -> list[Unit]:
    """Return the units of a block in order of execution."""
    layer = block.rows[0][:, LAYER]
    out = []
    for key in dict.fromkeys(layer.tolist()):
        rows = np.flatnonzero(layer == key)
        mine = [p for p in params if p.layer == (key + chunk.first if key >= 0 else key)]
        dense = sum(p.numel for p in mine if not p.expert)
        out.append(Unit(dense, sum(p.numel for p in mine if p.expert), int(rows[0]), int(rows[-1])))
    return [u for u in out if u.dense or u.expert]


def dispatch_points(sizes: list[int], prefetch: int) -> list[int]:
    """Return for every unit the unit at whose start its gather begins: one more is fetched while less than `prefetch` lie ahead."""
    out = []
    for i in range(len(sizes)):
        j = i
        while j > 0 and sum(sizes[j:i]) < prefetch:
            j -= 1
        out.append(j)
    return out


class Fsdp:
    """Puts gathers and scatters of one stage around its blocks."""

    def __init__(self, s: Shape, line: Timeline, sync: Sync) -> None:
        self.s, self.line, self.sync = s, line, sync

    def around(self, placed: Placed, chunk: Chunk, params: list[Param], backward: bool, final: bool, before: Ref | None) -> None:
        """Gather before every unit of a block; after those of a backward pass scatter gradients (`final`: the last microbatch)."""
        found = units(placed.block, chunk, params)
        points = dispatch_points([u.dense + u.expert for u in found], self.s.training.data_parallel.prefetch)
        start = placed.start[0]
        for unit, point in zip(found, points, strict=True):
            at = found[point].first
            after = (0, start + at - 1) if at > 0 else before
            for expert, numel in ((False, unit.dense), (True, unit.expert)):
                if not numel:
                    continue
                self.line.depend((0, start + unit.first), self._gather(numel, expert, backward, after))
                if backward:
                    self.sync.reduce(Bucket(numel, expert, ()), (0, start + unit.last), across=final)

    def _gather(self, numel: int, expert: bool, backward: bool, after: Ref | None) -> Ref | None:
        _, dim, _ = self.sync.dims(expert)
        kind = "expert" if expert else "dense"
        nbytes = numel * BYTES[self.s.training.data_parallel.param_dtype]
        again = "_again" if backward else ""
        name = f"dp.all_gather.{kind}_params{again}"
        return self.line.comm("gather", f"{dim}_gather", "all_gather", nbytes, name, after=(after,), timer=GATHER)


def working_set(sizes: list[int], prefetch: int) -> int:
    """Largest number of gathered elements: a unit and those fetched ahead of it."""
    points = dispatch_points(sizes, prefetch)
    return max((sum(sizes[point : i + 1]) for i, point in enumerate(points)), default=0)
