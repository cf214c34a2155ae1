"""Measured times in place of modelled ones: per layer, per virtual stage, and of the optimizer.

The kernels of a pass keep their proportions; their sum becomes the measured time of one microbatch. Communication stays simulated.
"""

import numpy as np

from netsim.config.compute import StepTimes
from netsim.errors import InputError
from netsim.kernels.structs import Array
from workload.shape import Shape
from workload.stages import Chunk
from workload.tape import CAT, CATEGORY, EMBEDDING, HEAD, KIND, LAYER, MICROBATCH
from workload.timeline import Program

FORWARD, BACKWARD = (CATEGORY["forward"],), (CATEGORY["backward"], CATEGORY["recompute"])


def scaled(s: Shape, programs: list[Program], durations: list[Array], held: list[list[Chunk]], measured: StepTimes) -> list[Array]:
    """Return durations of all rows with measured times put in; `InputError` where the number of stages differs."""
    depth = len({chunk.first for chunks in held for chunk in chunks})
    if measured.stage_forward and len(measured.stage_forward) != depth:
        raise InputError(f"compute.step_times.stage_forward: expected {depth} entries (virtual stages); got {len(measured.stage_forward)}")
    rank = {first: i for i, first in enumerate(sorted({chunk.first for chunks in held for chunk in chunks}))}
    out = []
    for program, duration, chunks in zip(programs, durations, held, strict=True):
        new = duration.astype(np.float64)
        for chunk in chunks:
            _of_chunk(s, program.rows, new, chunk, rank[chunk.first], measured)
        if measured.optimizer is not None:
            _scale(new, (program.rows[:, CAT] == CATEGORY["optimizer"]) & (program.rows[:, KIND] == 0), measured.optimizer)
        out.append(np.rint(new).astype(np.int64))
    return out


def _of_chunk(s: Shape, rows: Array, duration: Array, chunk: Chunk, virtual: int, measured: StepTimes) -> None:
    layer = rows[:, LAYER]
    computes = (rows[:, KIND] == 0) & (rows[:, MICROBATCH] >= 0)
    mine = (layer >= chunk.first) & (layer < chunk.first + chunk.layers)
    mine |= (layer >= s.model.layers) & bool(chunk.mtp)
    mine |= ((layer == EMBEDDING) & chunk.embedding) | ((layer == HEAD) & chunk.head)
    sides = ((FORWARD, measured.stage_forward, measured.layer_forward), (BACKWARD, measured.stage_backward, measured.layer_backward))
    for categories, of_stage, of_layer in sides:
        these = computes & mine & np.isin(rows[:, CAT], categories)
        passes = max(1, len(np.unique(rows[these, MICROBATCH])))
        if of_stage:
            _scale(duration, these, of_stage[virtual] * passes)
        elif of_layer is not None:
            for index in range(chunk.first, chunk.first + chunk.layers):
                _scale(duration, these & (layer == index), of_layer * passes)


def _scale(duration: Array, these: Array, total: int) -> None:
    now = duration[these].sum()
    if now:
        duration[these] *= total / now
