"""What a training run records: the frame of its result file before it starts, and what has happened when it ends."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import topologies
from netsim.config import Run, config_hash, resolved
from netsim.kernels.executor import Exec
from netsim.kernels.structs import CATEGORIES, COMM, LINK_TIERS, TIMERS, Array, Topology
from netsim.simulate.model import Model
from netsim.telemetry.channels import chosen
from netsim.telemetry.frame import Frame, Happened
from netsim.telemetry.series import Loads, Log
from netsim.telemetry.spool import SHARED, Spool
from netsim.telemetry.write import result_file, write_run, written
from workload.api import Segments

if TYPE_CHECKING:
    from netsim.simulate.packets import Played

BOOKED = {name: name for name in SHARED} | {"start": "record_start", "begin": "record_begin", "ended": "record_end"}
"""Arrays in which the executor books what happens."""


def frame(run: Run, model: Model, gpus: Exec) -> Frame:
    """All that is known before the first event."""
    fluid = model.fluid
    row, gpu = _rows(model, gpus)
    group, nbytes, alike = _calls(model, row, gpu)
    return Frame(
        attributes={
            "engine": run.network.engine,
            "categories": list(CATEGORIES),
            "timers": list(TIMERS),
            "streams": list(model.work.streams),
            "config": json.dumps(resolved(run)),
            "config_hash": config_hash(run),
        },
        channels=link_facts(model.topology) | {"gpus/program": gpus.program[model.gpu_of]} | _operations(model, row, gpu),
        interval=run.telemetry.interval,
        choices=tuple(sorted(chosen(run.telemetry.channels))),
        loads=Loads(fluid.bundle_ptr, fluid.node_link, fluid.node_coef),
        bundle_category=_bundle_categories(model),
        link_of=model.link_of,
        gpu_of=model.gpu_of,
        n_links=len(fluid.capacity),
        call_group=group,
        call_bytes=nbytes,
        call_alike=alike,
    )


def happened(gpus: Exec, log: Log, moved: Array, complete: bool, played: "Played | None" = None) -> Happened:
    """What has happened when a run ends, or stops."""
    reached = int(gpus.end.max()) if complete else int(max(gpus.free_at.max(), log.t1.max(initial=0)))
    return Happened(
        complete,
        reached,
        log,
        moved,
        **{name: np.array(getattr(gpus, field)) for name, field in BOOKED.items()},
        counters={} if played is None else played.counters,
        samples={} if played is None else played.samples,
    )


def begin(run: Run, model: Model, gpus: Exec, spool: Spool) -> tuple[Frame, Exec]:
    """Open the spool: its frame, and the GPUs with what they book in it."""
    made = frame(run, model, gpus)
    spool.frame(made)
    mapped: dict[str, Any] = {field: spool.mapped(name, getattr(gpus, field)) for name, field in BOOKED.items()}
    return made, gpus._replace(**mapped)


def write(made: Frame, done: Happened, figures: dict[str, Any], out: Path) -> None:
    """Leave `result.h5`, then `summary.json`, in `out`."""
    steady = {k: v for k, v in figures.items() if k not in ("wall_s", "ranks", "parallel")}
    with result_file(out / "result.h5", made.attributes | {"summary": json.dumps(steady)}) as writer:
        write_run(writer, made, done)
    path = out / "summary.json"
    with written(path):
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        part.replace(path)


def link_facts(top: Topology) -> dict[str, Any]:
    """What is known of every link."""
    ends = np.stack([top.link_src, top.link_dst]).astype(np.int64)
    return {
        "links/name": topologies.link_names(top),
        "links/tier": [LINK_TIERS[tier] for tier in top.link_tier],
        "links/rail": np.maximum(top.vertex_rail[top.link_src], top.vertex_rail[top.link_dst]),
        "links/bundle": np.unique(ends, axis=1, return_inverse=True)[1].ravel(),
        "links/rate": top.link_rate,
    }


def _rows(model: Model, gpus: Exec) -> tuple[Array, Array]:
    """Program rows of the recorded GPUs, GPU by GPU in program order, and the simulated GPU of each."""
    programs = model.work.programs
    recorded = np.flatnonzero(gpus.record_ptr >= 0)
    starts = programs.stream_ptr[:: programs.n_streams]
    rows = [np.arange(starts[gpus.program[g]], starts[gpus.program[g] + 1]) for g in recorded]
    row = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    return row, np.repeat(recorded, [len(r) for r in rows])


def _operations(model: Model, row: Array, gpu: Array) -> dict[str, Any]:
    programs = model.work.programs
    names, name_of = _names(model)
    real = gpu if model.fold is None else model.fold.gpu_rep[gpu]
    stream = np.repeat(np.arange(len(programs.stream_ptr) - 1) % programs.n_streams, np.diff(programs.stream_ptr))
    return {
        "operations/gpu": real.astype(np.int32),
        "operations/stream": stream[row].astype(np.int8),
        "operations/category": programs.category[row],
        "operations/name": name_of[row].astype(np.int32),
        "operations/microbatch": programs.microbatch[row],
        "operations/layer": programs.layer[row],
        "operations/memory": _memory(model)[row],
        "operations/names": names,
    }


def _memory(model: Model) -> Array:
    """Bytes allocated while each row of a compute stream runs, int64[I]; -1 on other streams."""
    programs = model.work.programs
    held = np.full(len(programs.kind), -1, np.int64)
    for program, memory in enumerate(model.work.memory):
        first = programs.stream_ptr[program * programs.n_streams]
        held[first : first + len(memory.timeline)] = memory.timeline
    return held


def _calls(model: Model, row: Array, gpu: Array) -> tuple[Array, Array, Array]:
    """(communicator, bytes that its members send, communicators alike) of each row that is a call; -1 and 0 for kernels."""
    programs, table = model.work.programs, model.table
    group = np.full(len(row), -1, np.int32)
    nbytes, alike = np.zeros(len(row)), np.zeros(len(row), np.int32)
    sent = np.array([float((plan.edge_bytes * plan.edge_weight).sum()) for plan in table.plans])
    call = np.flatnonzero(programs.kind[row] == COMM)
    mine = model.groups.group_of[programs.dim[row[call]], gpu[call]]
    place = table.group_call_ptr[mine] + table.row_call[row[call]]
    nbytes[call] = sent[table.call_plan[place]]
    group[call] = mine if model.fold is None else model.fold.group_rep[mine]
    alike[call] = 1 if model.fold is None else np.bincount(model.fold.group_class)[mine]
    return group, nbytes, alike


def _bundle_categories(model: Model) -> Array:
    """Category of what each simulated bundle carries: that of the first row which communicates on its dimension."""
    programs = model.work.programs
    rows = np.flatnonzero(programs.kind == COMM)
    of_dim = np.full(len(model.work.dims) + 1, CATEGORIES.index("other"), np.int8)
    of_dim[programs.dim[rows][::-1]] = programs.category[rows][::-1]
    lists = model.work.groups.group_of
    listed = np.full(len(of_dim), -1)
    for dim, of in enumerate(lists):  # dimensions of a family name the same groups, listed under one of them
        if len(own := np.unique(model.work.groups.group_dim[of[of >= 0]])):
            listed[dim] = own[0]
    used = np.unique(programs.dim[rows])
    of_dim[listed[used]] = of_dim[used]
    dim_of_footprint = model.groups.group_dim[model.table.footprint_group]
    return np.repeat(of_dim[dim_of_footprint], np.diff(model.fluid.footprint_ptr)).astype(np.int8)


def _names(model: Model) -> tuple[list[str], Array]:
    """All names of rows, and the number of each row's."""
    programs = model.work.programs
    calls, segments = list(model.work.calls.name), _segment_names(model.work.segments)
    names = list(dict.fromkeys(calls + segments))
    number = {name: i for i, name in enumerate(names)}
    of_call = np.array([number[name] for name in calls] or [0])
    of_segment = np.array([number[name] for name in segments] or [0])
    is_comm = programs.kind == COMM
    return names, np.where(is_comm, of_call[np.where(is_comm, programs.call, 0)], of_segment[np.where(is_comm, 0, programs.call)])


def _segment_names(segments: Segments) -> list[str]:
    """A segment is named by the kinds of its kernels, in order."""
    kinds = [segments.kernels[k].kind for k in segments.idx]
    return ["+".join(dict.fromkeys(kinds[a:b])) or "nothing" for a, b in zip(segments.ptr[:-1], segments.ptr[1:], strict=True)]
