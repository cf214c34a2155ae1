"""From the programs of all stages to the arrays that the simulator takes."""

import numpy as np

from netsim.kernels.structs import COMM, Array, Programs
from workload.tape import CALL, CAT, DIM, KIND, LAYER, MICROBATCH, STREAM, STREAMS, TIMER
from workload.timeline import Program


def durations(program: Program, segment_ps: Array) -> Array:
    """Return int64[rows]: time of every row of kernels or of the host in ps, 0 for communication."""
    timed = program.rows[:, KIND] != COMM
    return np.where(timed, segment_ps[np.where(timed, program.rows[:, CALL], 0)], 0)


def streams_of(programs: list[Program]) -> list[str]:
    """Return the streams that any stage uses; the compute stream in any case."""
    used = np.any([p.stream_rows > 0 for p in programs], axis=0)
    return [name for i, name in enumerate(STREAMS) if i == 0 or used[i]]


def assemble(programs: list[Program], duration: list[Array]) -> Programs:
    """Put the programs of all stages one after another, without streams that none of them uses."""
    used = [STREAM[name] for name in streams_of(programs)]
    streams = len(used)
    ptr = np.zeros(len(programs) * streams + 1, dtype=np.int64)
    ptr[1:] = np.cumsum(np.concatenate([p.stream_rows[used] for p in programs]))
    rows = np.concatenate([p.rows for p in programs])
    base = ptr[:-1:streams]
    ends = [p.deps + b for p, b in zip(programs, base, strict=True)]
    starts = [(p.starts + b) ^ np.array([0, -1]) for p, b in zip(programs, base, strict=True)]  # ~ of the second column
    deps = np.concatenate([*ends, *starts])
    deps = deps[np.lexsort((deps[:, 1], deps[:, 0]))]
    dep_ptr = np.zeros(len(rows) + 1, dtype=np.int64)
    dep_ptr[1:] = np.cumsum(np.bincount(deps[:, 0], minlength=len(rows)))
    rows[:, LAYER] = np.maximum(rows[:, LAYER], -1)

    def column(index: int, dtype: type) -> Array:
        return np.ascontiguousarray(rows[:, index].astype(dtype))

    return Programs(
        len(programs),
        streams,
        ptr,
        column(KIND, np.int8),
        np.concatenate(duration),
        column(DIM, np.int16),
        column(CALL, np.int32),
        column(CAT, np.int8),
        column(MICROBATCH, np.int16),
        column(LAYER, np.int16),
        column(TIMER, np.int8),
        dep_ptr,
        np.ascontiguousarray(deps[:, 1]),
    )
