"""Memory of one GPU of a pipeline stage: what stays, what microbatches in flight hold, and where the peak is.

Every recorded row says what it keeps, frees and uses meanwhile (tape.py), so the timeline of activations is a running sum over the
compute stream, and the peak is exact for every schedule. Static per parameter: 16-bit weight, main gradient, and 12 bytes of optimizer
state (master weight and two moments) over the ranks that share it. TransformerEngine keeps one dummy weight gradient per distinct shape.
"""

from typing import NamedTuple

import numpy as np

from netsim.kernels.structs import CATEGORIES, COMPUTE, Array
from workload.blocks.layer import weight_shapes
from workload.fsdp import working_set
from workload.gradients import BYTES
from workload.programs import Stage
from workload.shape import ELEMENT, Shape
from workload.step import shard_of, stage_params
from workload.tape import CALL, CAT, KEPT, KIND, LAYER, TEMP
from workload.timeline import Program


class Memory(NamedTuple):
    """Bytes of one GPU; the peak is at row `peak_row` of the program's compute stream."""

    weights: int
    gradients: int
    optimizer: int
    cache: int
    activations: int
    peak: int
    peak_row: int
    peak_where: str
    timeline: Array  # int64[rows of the compute stream] allocated while the row runs, static part included


def memory_of(s: Shape, stage: Stage, program: Program, names: list[str]) -> Memory:
    """Return the memory report of a stage; `names` are those of the segments."""
    weights, gradients, optimizer = static(s, stage)
    cached = cache(s, stage)
    rows = program.rows[: program.stream_rows[0]]
    held = np.cumsum(rows[:, KEPT])
    during = held - rows[:, KEPT] + np.maximum(rows[:, TEMP], np.maximum(rows[:, KEPT], 0))
    base = weights + gradients + optimizer + cached
    at = int(np.argmax(during)) if len(during) else 0
    return Memory(
        weights, gradients, optimizer, cached, int(held.max(initial=0)), base + int(during[at]), at, _where(rows[at], names), base + during
    )


def _where(row: Array, names: list[str]) -> str:
    """Say what runs in a row."""
    layer = f" of layer {row[LAYER]}" if row[LAYER] >= 0 else ""
    name = f"{names[row[CALL]].split('+')[0]}, " if row[KIND] == COMPUTE and names[row[CALL]] else ""
    return f"{name}{CATEGORIES[row[CAT]]}{layer}"


def static(s: Shape, stage: Stage) -> tuple[int, int, int]:
    """Bytes of weights, main gradients and optimizer state; linear layers in 8 bits keep weights and their transpose in 8 bits too."""
    dp = s.training.data_parallel
    params = stage_params(s, stage.held)
    moments = 4 + 2 * BYTES[s.training.precision.moments]
    weights = gradients = optimizer = 0
    copies = 0 if not s.narrow else 1 if dp.param_dtype == "fp8" else 2
    for expert in (False, True):
        numel = sum(p.numel for p in params if p.expert == expert)
        shard = shard_of(s, numel, expert)
        held = shard if dp.stage == "full" else numel
        inside = sum(p.numel for p in params if p.expert == expert and p.layer >= 0 and p.module != "embedding")
        weights += BYTES[dp.param_dtype] * held + copies * inside
        gradients += BYTES[dp.grad_dtype] * (shard if dp.stage in ("full", "gradients") else numel)
        optimizer += moments * shard
    if dp.stage == "full":
        sizes = _units(stage)
        weights += BYTES[dp.param_dtype] * working_set(sizes, dp.prefetch)
        gradients += BYTES[dp.grad_dtype] * max(sizes, default=0)
    return weights, gradients, optimizer


def _units(stage: Stage) -> list[int]:
    """Elements of every unit of full sharding."""
    sizes: dict[int, int] = {}
    for p in (p for b in stage.buffers for p in b.params):
        sizes[p.layer] = sizes.get(p.layer, 0) + p.numel
    return list(sizes.values())


def cache(s: Shape, stage: Stage) -> int:
    """Bytes of TransformerEngine's dummy weight gradients, where they are kept; of the largest weight gradient where it is real."""
    if not s.training.kernels.gradient_accumulation_fusion:
        return max(gradient_bytes(s, stage), default=0)
    return sum(gradient_bytes(s, stage)) if s.training.kernels.wgrad_cache else 0


def gradient_bytes(s: Shape, stage: Stage) -> list[int]:
    """Bytes of one weight gradient in 16 bits per distinct weight shape."""
    shapes = {shape for chunk in stage.held for shape in weight_shapes(s, chunk)}
    return [ELEMENT * rows * columns for rows, columns in shapes]
