"""The seam to the co-simulation: build a training iteration, count it, list its kernels.

work = build(run.workload, n_gpus=1024, gpus_per_node=8, device=device) work.programs, work.groups          # what every GPU does
tally(work, stage=0)                # operations and bytes per kind of communication
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from compute.api import Device, Kernel, Times, flops, peak_flops, times
from netsim.config.compute import StepTimes
from netsim.config.workload import Training
from netsim.errors import InputError
from netsim.kernels.structs import CATEGORIES, COMM, Array, Groups, Programs
from workload.assemble import assemble, durations, streams_of
from workload.check import problems
from workload.flops import flops_per_step
from workload.layout import dimensions, groups_of, layout_of, stage_of
from workload.memory import Memory, memory_of
from workload.programs import play_all
from workload.shape import Shape
from workload.snapshot import scaled
from workload.stages import Chunk
from workload.tape import Tables


class Calls(NamedTuple):
    """Table of communication calls, named by `call` of COMM rows.

    op: all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, sendrecv (first member to second; both name the same call),
    ring_shift (each member to the next).
    nbytes: buffer of all_reduce and broadcast, gathered output, scattered input, all_to_all send buffer of one rank with its own share,
    message of sendrecv and ring_shift. comm_ranks: size of the communicator (that of the pipeline for sendrecv).
    """

    op: list[str]
    nbytes: Array  # int64[C]
    name: list[str]
    comm_ranks: Array  # int32[C]


class Segments(NamedTuple):
    """Table of compute segments, named by `call` of COMPUTE rows: the kernels of each in order, as numbers into `kernels`.

    kernel_ps holds their durations on the slowest GPU, `answer` what the tables said.
    """

    name: list[str]
    ptr: Array  # int64[segments + 1]
    idx: Array  # int32[...]
    kernels: list[Kernel]
    answer: Times
    kernel_ps: Array  # int64[kernels]
    duration_ps: Array  # int64[segments] with the device's gap after every kernel


class Workload(NamedTuple):
    """One training iteration on all GPUs."""

    programs: Programs
    groups: Groups
    gpu_program: Array  # int32[n_gpus]
    dims: tuple[str, ...]
    streams: tuple[str, ...]
    calls: Calls
    segments: Segments
    memory: list[Memory]  # per program
    flops_per_step: float
    tokens_per_step: int
    peak_dtype: str
    peak_flops: float
    chunks: list[list[Chunk]]  # per stage
    shape: Shape


def build(training: Training, n_gpus: int, gpus_per_node: int, device: Device, measured: StepTimes | None = None) -> Workload:
    """Return what every GPU does in one iteration; `InputError` with one line per rule that the layout breaks.

    `measured` times take the place of modelled ones.
    """
    lines = [f"workload.{path}: {sentence}" for path, sentence in problems(training, n_gpus, gpus_per_node)]
    if lines:
        raise InputError(lines)
    s = Shape(training, layout_of(training, n_gpus, gpus_per_node), device.card.arch)
    tables = Tables()
    stages, programs = play_all(s, tables)
    segments = _segments(tables, device, n_gpus)
    held = [stage.held for stage in stages]
    duration = [durations(program, segments.duration_ps) for program in programs]
    if measured is not None and measured != StepTimes():
        duration = scaled(s, programs, duration, held, measured)
    dims = tuple(tables.dims)
    cut = training.parallel.hierarchical_sizes if training.parallel.cp_comm_type == "a2a+p2p" else ()
    groups = groups_of(s.lay, dimensions(s.lay, cut), dims)
    return Workload(
        assemble(programs, duration),
        groups,
        stage_of(s.lay),
        dims,
        tuple(streams_of(programs)),
        _calls(tables),
        segments,
        [memory_of(s, stage, program, segments.name) for stage, program in zip(stages, programs, strict=True)],
        flops_per_step(training),
        training.global_batch * training.sequence,
        training.precision.gemm,
        peak_flops(device, training.precision.gemm),
        held,
        s,
    )


def kernels(training: Training, n_gpus: int, gpus_per_node: int, device: Device) -> list[Kernel]:
    """Return the distinct kernels that a run needs on these GPUs."""
    tables = Tables()
    play_all(Shape(training, layout_of(training, n_gpus, gpus_per_node), device.card.arch), tables)
    return list(tables.kernels)


def slowest(spread: float, n_gpus: int) -> float:
    """Expected time of the slowest of n GPUs over that of the median one, whose relative times are normal with this standard deviation.

    Mean of the largest of n normal numbers as Blom (1958) approximates it.
    """
    return 1 + spread * max(0.0, NormalDist().inv_cdf((n_gpus - 0.375) / (n_gpus + 0.25)))


def _segments(tables: Tables, device: Device, n_gpus: int) -> Segments:
    ptr = np.zeros(len(tables.segments) + 1, dtype=np.int64)
    ptr[1:] = np.cumsum([len(numbers) for _, numbers in tables.segments])
    idx = np.fromiter((k for _, numbers in tables.segments for k in numbers), dtype=np.int32)
    listed = list(tables.kernels)
    answer = times(device, listed)
    pace = np.where([flops(kernel) > 0 for kernel in listed], slowest(device.card.spread, n_gpus), 1.0)
    kernel_ps = np.rint(answer.t_ps * pace).astype(np.int64)
    total = np.concatenate([[0], np.cumsum(kernel_ps[idx] + device.card.gap)]).astype(np.int64)
    duration = total[ptr[1:]] - total[ptr[:-1]]
    for segment, launched in tables.launches.items():
        duration[segment] = round(launched * device.card.host)
    return Segments([name for name, _ in tables.segments], ptr, idx, listed, answer, kernel_ps, duration)


def _calls(tables: Tables) -> Calls:
    op, nbytes, name, ranks = zip(*tables.calls, strict=True) if tables.calls else ((), (), (), ())
    return Calls(list(op), np.array(nbytes, dtype=np.int64), list(name), np.array(ranks, dtype=np.int32))


def executed_flops(work: Workload) -> float:
    """Return the FLOPs that all GPUs execute in an iteration, recomputation included: the numerator of hardware FLOP utilisation."""
    p, segments = work.programs, work.segments
    total = np.concatenate([[0.0], np.cumsum([flops(segments.kernels[k]) for k in segments.idx])])
    per_segment = total[segments.ptr[1:]] - total[segments.ptr[:-1]]
    row = np.where(p.kind == COMM, 0.0, per_segment[np.where(p.kind == COMM, 0, p.call)])
    per_program = np.add.reduceat(row, p.stream_ptr[: -1 : p.n_streams])
    return float(per_program[work.gpu_program].sum())


class Count(NamedTuple):
    """Operations and payload bytes of one kind of communication."""

    ops: int
    nbytes: int


def tally(work: Workload, stage: int) -> dict[tuple[str, str], Count]:
    """Return operations and payload bytes of one stage's program by (category, call name); pipeline messages by send and recv."""
    p = work.programs
    rows = slice(p.stream_ptr[stage * p.n_streams], p.stream_ptr[(stage + 1) * p.n_streams])
    comm = p.kind[rows] == COMM
    receives = np.array([name.startswith("pp_") and name.endswith("_in") for name in work.dims], dtype=bool)
    columns = np.stack([p.category[rows][comm], p.call[rows][comm], receives[p.dim[rows][comm]]])
    keys, counts = np.unique(columns, axis=1, return_counts=True)
    out: dict[tuple[str, str], Count] = {}
    for category, call, receive, count in zip(*keys, counts, strict=True):
        key = CATEGORIES[category], work.calls.name[call].replace("sendrecv", "recv" if receive else "send")
        before = out.get(key, Count(0, 0))
        out[key] = Count(before.ops + int(count), before.nbytes + int(count) * int(work.calls.nbytes[call]))
    return out
