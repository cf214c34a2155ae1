"""When gradients are reduced and parameters gathered.

Gradients of a bucket go once its last gradient exists: reduce-scatter with sharding, else all-reduce, on a stream of their own.
Megatron's rules: without overlap all go after the last backward; with it the first stage without interleaving starts each bucket from
hooks in its last backward, other stages start a chunk's bucket after their last backward, and with interleaving and alignment every stage
starts a chunk's buckets after the same virtual step (k - stage). Parameters are gathered at the end of the step, or during the next
forward passes: a module waits for its bucket and starts the next one; with interleaving and alignment chunk by chunk. Source:
Megatron-Core `distributed/`, `pipeline_parallel/schedules.py`.
"""

from typing import NamedTuple

from workload.buckets import Bucket, buckets
from workload.ops import moved
from workload.params import Param, of_chunk
from workload.shape import Shape
from workload.stages import Chunk
from workload.tape import Ref
from workload.timeline import Placed, Timeline

SYNC, GATHER = "all-grads-sync", "params-all-gather"
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


class Buffers(NamedTuple):
    """A model chunk's buckets; `chunk` says which layers they concern."""

    chunk: Chunk
    params: list[Param]
    buckets: list[Bucket]

    def numel(self, expert: bool) -> int:
        """Elements with padding of the dense or the expert buffer."""
        return sum(b.numel for b in self.buckets if b.expert == expert)


def buffers_of(s: Shape, stage: int, held: list[Chunk], mirrored: bool = False) -> list[Buffers]:
    """Return the buffers of every chunk of a stage; `mirrored`: another stage has the same chunk, whole."""
    dp = s.training.data_parallel
    out = []
    for index, chunk in enumerate(held):
        bucketed = (dp.overlap_grad_reduce and stage == 0 and index == 0 and not mirrored) or dp.stage in ("gradients", "full")
        params = of_chunk(s, chunk, held)
        out.append(Buffers(chunk, params, buckets(s, params, bucketed)))
    return out


class Sync:
    """Puts gradient reductions and parameter gathers of one stage on its timeline."""

    def __init__(self, s: Shape, line: Timeline, buffers: list[Buffers], mirrored: bool = False) -> None:
        self.s = s
        self.mirrored = mirrored
        self.line = line
        self.buffers = buffers
        self.dp = s.training.data_parallel
        self.reduced: list[Ref | None] = []
        self._gathers: dict[tuple[int, int], Ref | None] = {}

    def dims(self, expert: bool) -> tuple[str, str, str]:
        """Stream, group, and group across optimizer instances of dense or expert parameters."""
        stream, dim = ("expt_dp", "expt_dp") if expert else ("dp", "dp_cp")
        return stream, f"{dim}_intra" if self.s.lay.instances > 1 else dim, f"{dim}_inter"

    def reduce(self, bucket: Bucket, *after: Ref | None, across: bool = True) -> Ref | None:
        """Scale and reduce one bucket once `after` have run; `across`: over the optimizer instances too."""
        stream, dim, outer = self.dims(bucket.expert)
        kind = "expert" if bucket.expert else "dense"
        nbytes = bucket.numel * BYTES[self.dp.grad_dtype]
        ranks = self.s.group_sizes()[dim] * (self.s.lay.instances if self.s.lay.instances > 1 else 1)
        if ranks <= 1 and not self.mirrored:
            return None
        if not self.dp.average_in_collective:
            after = (self.line.compute([moved("memory", 2 * nbytes)], "scale gradients", stream, after, SYNC),)
        op = "all_reduce" if self.dp.stage == "none" else "reduce_scatter"
        done = self.line.comm(stream, dim, op, nbytes, f"dp.{op}.{kind}_grads", after=after, timer=SYNC) or after[0]
        if self.s.lay.instances > 1 and across:
            shard = nbytes // self.s.group_sizes()[dim]
            done = self.line.comm(stream, outer, "all_reduce", shard, f"dp.all_reduce.{kind}_shard", after=(done,), timer=SYNC)
        if self.mirrored:
            shard = nbytes // (self.s.group_sizes()[dim] if self.dp.stage != "none" else 1)
            done = self.line.comm(stream, "mirror", "all_reduce", shard, f"dp.all_reduce.{kind}_copies", after=(done,), timer=SYNC)
        self.reduced.append(done)
        return done

    def reduce_hooked(self, index: int, placed: list[Placed]) -> None:
        """Reduce a chunk's buckets as the gradients of its last backward (and weight) blocks appear."""
        buffers = self.buffers[index]
        for bucket in buffers.buckets:
            refs = [ref for p in placed for ref in _marked(p, buffers.chunk, bucket)]
            self.reduce(bucket, max(refs) if refs else placed[-1].last())

    def reduce_chunk(self, index: int, after: Ref | None) -> None:
        """Reduce a whole chunk after a row."""
        for bucket in self.buffers[index].buckets:
            self.reduce(bucket, after)

    def gather(self, index: int, number: int, *after: Ref | None) -> Ref | None:
        """Gather the parameters of one bucket."""
        bucket = self.buffers[index].buckets[number]
        stream, dim, _ = self.dims(bucket.expert)
        kind = "expert" if bucket.expert else "dense"
        nbytes = bucket.numel * BYTES[self.dp.param_dtype]
        ref = self.line.comm(stream, dim, "all_gather", nbytes, f"dp.all_gather.{kind}_params", after=after, timer=GATHER)
        self._gathers[index, number] = ref
        return ref

    def gather_chunk(self, index: int, after: Ref | None = None) -> list[Ref | None]:
        """Gather all parameters of a chunk, first layers first."""
        return [self.gather(index, number, after) for number in reversed(range(len(self.buffers[index].buckets)))]

    def gather_hooked(self, index: int, placed: Placed) -> None:
        """Gather on demand: the first use of a bucket waits for it, if need be after starting it, and starts the next one of its buffer."""
        buffers = self.buffers[index]
        for expert in (False, True):
            numbers = [n for n in reversed(range(len(buffers.buckets))) if buffers.buckets[n].expert == expert]
            uses = {n: min(refs) for n in numbers if (refs := _marked(placed, buffers.chunk, buffers.buckets[n]))}
            before: tuple[Ref, ...] = ((0, placed.start[0] - 1),) if placed.start[0] else ()
            self._start(index, numbers[:1], before)
            for number in sorted(uses, key=lambda n: uses[n]):
                first = uses[number]
                before = ((0, first[1] - 1),) if first[1] > 0 else ()
                self._start(index, [number], before)
                self.line.depend(first, self._gathers[index, number])
                self._start(index, numbers[numbers.index(number) + 1 :][:1], before)
            self._start(index, numbers, before)

    def _start(self, index: int, numbers: list[int], before: tuple[Ref, ...]) -> None:
        for number in numbers:
            if (index, number) not in self._gathers:
                self.gather(index, number, *before)


def _marked(placed: Placed, chunk: Chunk, bucket: Bucket) -> list[Ref]:
    refs = (placed.marked(layer - chunk.first if layer >= 0 else layer, module) for layer, module in bucket.modules)
    return [r for r in refs if r is not None]
