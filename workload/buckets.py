"""Gradient and parameter buckets of a model chunk.

Parameters lie in reverse order of registration, dense and expert ones in buffers of their own. With the distributed optimizer each starts
at a multiple of 64 elements and a bucket ends at a multiple of lcm(group, 128) (of 65,536 too with `pad_buckets`). A bucket closes once
it holds `bucket_size` elements; a tied embedding has a bucket of its own. Chunks that are not bucketed have one bucket per buffer.
Source: Megatron-Core `distributed/param_and_grad_buffer.py`.
"""

from math import lcm
from typing import NamedTuple

from workload.params import Param
from workload.shape import Shape

PARAM_ALIGN = 64
BUSBW_ALIGN = 65536


class Bucket(NamedTuple):
    """Elements with padding, and the (layer, module) pairs whose parameters it holds, in the order of the buffer."""

    numel: int
    expert: bool
    modules: tuple[tuple[int, str], ...]


def bucket_limit(s: Shape, group: int, total: int) -> int:
    """Elements at which a bucket closes."""
    dp = s.training.data_parallel
    if dp.num_buckets:
        return -(-total // dp.num_buckets)
    return dp.bucket_size or max(40_000_000, 1_000_000 * group)


def buckets(s: Shape, params: list[Param], bucketed: bool) -> list[Bucket]:
    """Return the buckets in the order in which backward fills them: dense ones, then those of experts."""
    out: list[Bucket] = []
    for expert in (False, True):
        mine = [p for p in reversed(params) if p.expert == expert]
        group = s.lay.edp if expert else s.lay.dp * s.lay.cp
        limit = bucket_limit(s, s.lay.dp * s.lay.cp, sum(p.numel for p in mine)) if bucketed else None
        out += _fill(s, mine, expert, group // s.lay.instances or 1, limit)
    return out


def _fill(s: Shape, params: list[Param], expert: bool, group: int, limit: int | None) -> list[Bucket]:
    sharded = s.training.data_parallel.stage != "none"
    end_align = lcm(group, 128, BUSBW_ALIGN if s.training.data_parallel.pad_buckets else 1) if sharded else 1
    out: list[Bucket] = []
    length = 0
    modules: dict[tuple[int, str], None] = {}

    def close() -> None:
        nonlocal length, modules
        if modules:
            out.append(Bucket(-(-length // end_align) * end_align, expert, tuple(modules)))
        length, modules = 0, {}

    for p in params:
        if p.tied and sharded:
            close()
        start = -(-length // PARAM_ALIGN) * PARAM_ALIGN if sharded else length
        length = start + p.numel
        modules[p.layer, p.module] = None
        if (limit is not None and length >= limit) or (p.tied and sharded):
            close()
    close()
    return out
