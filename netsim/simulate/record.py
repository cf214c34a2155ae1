"""What a training run records: the frame of its result file before it starts, and what has happened when it ends."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import topologies
from netsim.config import Run, config_hash, resolved
from netsim.errors import InputError
from netsim.kernels.executor import Exec
from netsim.kernels.structs import CATEGORIES, COMM, LINK_TIERS, TIMERS, Array, Topology
from netsim.simulate.carried import with_buses
from netsim.simulate.model import Model
from netsim.telemetry.channels import chosen
from netsim.telemetry.frame import Frame, Happened
from netsim.telemetry.series import Loads, Log, bundle_bytes
from netsim.telemetry.spool import NO_RESENT, SHARED, Spool
from netsim.telemetry.write import result_file, whole, write_run
from workload.api import Segments

if TYPE_CHECKING:
    from netsim.simulate.packets import Played

BOOKED = {name: name for name in SHARED} | {
    "start": "record_start", "begin": "record_begin", "ended": "record_end", "waited": "record_exposed", "turn": "record_turn",
}  # fmt: skip
"""Arrays in which the executor books what happens."""


def frame(run: Run, model: Model, gpus: Exec) -> Frame:
    """All that is known before the first event."""
    fluid = model.fluid
    row, gpu = _rows(model, gpus)
    group, nbytes, alike, path, paths = _calls(run, model, row, gpu)
    names, name_of = _names(model)
    by_packets = run.network.engine == "packet"
    key_of_tag, keys = _keys(model, name_of, gpus.record_slot)
    config = resolved(run)
    return Frame(
        attributes={
            "engine": run.network.engine,
            "categories": list(CATEGORIES),
            "timers": list(TIMERS),
            "streams": list(model.work.streams),
            "config": json.dumps(config),
            "config_hash": config_hash(config),
        },
        channels={
            **link_facts(model.topology),
            "gpus/program": gpus.program[model.gpu_of],
            "operations/names": names,
            **_operations(model, row, gpu, name_of),
            **paths,
        },
        interval=run.telemetry.interval,
        choices=tuple(sorted(chosen(run.telemetry.channels))),
        loads=with_buses(model) if by_packets else Loads(fluid.bundle_ptr, fluid.node_link, fluid.node_coef),
        n_bundles=len(fluid.bundle_ptr) - 1,
        key_of_tag=key_of_tag,
        keys=keys,
        link_of=model.link_of,
        gpu_of=model.gpu_of,
        n_links=len(fluid.capacity),
        call_group=group,
        call_bytes=nbytes,
        call_alike=alike,
        call_path=path,
    )


def happened(gpus: Exec, log: Log, moved: Array, complete: bool, played: "Played | None" = None) -> Happened:
    """What has happened when a run ends, or stops."""
    reached = int(gpus.end.max()) if complete else int(max(gpus.free_at.max(), log.t1.max(initial=0)))
    if played is not None:
        moved = np.r_[moved, bundle_bytes(log, 2 * len(moved))[len(moved) :]]
    return Happened(
        complete,
        reached,
        log,
        moved,
        **{name: np.array(getattr(gpus, field)) for name, field in BOOKED.items()},
        counters={} if played is None else played.counters,
        samples={} if played is None else played.samples,
        resent=NO_RESENT if played is None else played.resent,
    )


def begin(run: Run, model: Model, gpus: Exec, spool: Spool) -> tuple[Frame, Exec]:
    """Open the spool: its frame, and the GPUs with what they book in it."""
    made = frame(run, model, gpus)
    spool.frame(made)
    mapped: dict[str, Any] = {field: spool.mapped(name, getattr(gpus, field)) for name, field in BOOKED.items()}
    return made, gpus._replace(**mapped)


def write(made: Frame, done: Happened, figures: dict[str, Any], out: Path, spool: Spool, began: float) -> dict[str, float]:
    """Leave `result.h5`, then `summary.json`, in `out`; returns what the summary says of time: of the run, and of its telemetry.

    `began` is when the wall clock started (perf_counter).
    """
    steady = {k: v for k, v in figures.items() if k not in ("ranks", "parallel")}
    try:
        with spool.clock, result_file(out / "result.h5", made.attributes | {"summary": json.dumps(steady)}) as writer:
            write_run(writer, made, done)
    except InputError:
        spool.abandon()
        raise
    spool.remove()
    took = {"wall_s": time.perf_counter() - began, "telemetry_s": spool.clock.spent_s}
    with whole(out / "summary.json") as part:
        part.write_text(json.dumps(figures | took, indent=1) + "\n", encoding="utf-8")
    return took


def link_facts(top: Topology) -> dict[str, Any]:
    """What is known of every link."""
    ends = top.link_src.astype(np.int64) * len(top.vertex_kind) + top.link_dst
    return {
        "links/name": topologies.link_names(top),
        "links/tier": np.array(LINK_TIERS, np.bytes_)[top.link_tier],
        "links/rail": np.maximum(top.vertex_rail[top.link_src], top.vertex_rail[top.link_dst]),
        "links/bundle": np.unique(ends, return_inverse=True)[1],
        "links/rate": top.link_rate,
    }


def _rows(model: Model, gpus: Exec) -> tuple[Array, Array]:
    """Program rows of the recorded GPUs, GPU by GPU, iteration by iteration, in program order; and the simulated GPU of each."""
    programs = model.work.programs
    recorded = np.flatnonzero(gpus.record_ptr >= 0)
    starts = programs.stream_ptr[:: programs.n_streams]
    rows = [np.tile(np.arange(starts[gpus.program[g]], starts[gpus.program[g] + 1]), gpus.record_slot.max() + 1) for g in recorded]
    row = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    return row, np.repeat(recorded, [len(r) for r in rows])


def _operations(model: Model, row: Array, gpu: Array, name_of: Array) -> dict[str, Any]:
    programs = model.work.programs
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
    }


def _memory(model: Model) -> Array:
    """Bytes allocated while each row of a compute stream runs, int64[I]; -1 on other streams."""
    programs = model.work.programs
    held = np.full(len(programs.kind), -1, np.int64)
    for program, memory in enumerate(model.work.memory):
        first = programs.stream_ptr[program * programs.n_streams]
        held[first : first + len(memory.timeline)] = memory.timeline
    return held


def _calls(run: Run, model: Model, row: Array, gpu: Array) -> tuple[Array, Array, Array, Array, dict[str, Array]]:
    """(communicator, bytes that its members send, communicators alike, path) of each row, -1 or 0 for kernels; and the paths."""
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
    path, paths = np.full(len(row), -1, np.int32), {"paths/path": np.zeros(0, np.int32), "paths/link": np.zeros(0, np.int32)}
    if len(call) and "flows" in chosen(run.telemetry.channels):
        whole = model.full_table
        flow_call = whole.call_flow[whole.group_call_ptr[group[call]] + table.row_call[row[call]]]
        footprint = model.full_fluid.call_footprint[flow_call]
        there = np.bincount(footprint) > 0
        path[call], paths = (np.cumsum(there) - 1)[footprint], _paths(run, model, np.flatnonzero(there))
    return group, nbytes, alike, path, paths


def _paths(run: Run, model: Model, footprints: Array) -> dict[str, Array]:
    """Links that each footprint loads, as paths where they make one; of the network only those that no switch chooses."""
    fluid, top = model.full_fluid, model.topology
    fixed = np.ones(len(top.link_rate), bool)
    if run.network.engine == "packet" and run.network.spreading != "flow":
        fixed = np.isin(top.link_tier, [LINK_TIERS.index(tier) for tier in ("scale_up", "between", "host", "nic")])
    links = []
    for footprint in footprints.tolist():
        a, b = fluid.bundle_ptr[fluid.footprint_ptr[footprint : footprint + 2]]
        found = np.unique(fluid.node_link[a:b])
        links.append(ordered(found[fixed[found]], top))
    path = np.repeat(np.arange(len(links)), [len(part) for part in links])
    return {"paths/path": path.astype(np.int32), "paths/link": np.concatenate(links).astype(np.int32)}


def ordered(links: Array, top: Topology) -> Array:
    """Links from one end to the other, where they are one path; as they are, where not."""
    after = {int(top.link_src[link]): int(link) for link in links.tolist()}
    ends = {int(top.link_dst[link]) for link in links.tolist()}
    first = [vertex for vertex in after if vertex not in ends]
    if len(links) > 16 or len(after) < len(links) or len(first) != 1:
        return links
    found = [after[first[0]]]
    while int(top.link_dst[found[-1]]) in after and len(found) < len(links):
        found.append(after[int(top.link_dst[found[-1]])])
    return np.array(found) if len(found) == len(links) else links


def _keys(model: Model, name_of: Array, slot: Array) -> tuple[Array, dict[str, Array]]:
    """Kinds of call that are told apart: the kind of every tag of the log (-1: kernels), and what each kind is.

    Calls of a name, stage and microbatch are one kind whatever the layer; outside microbatches, and for data parallelism, each is told:
    `part` counts the calls of a name in an iteration, which for gradients and parameters are the buckets.
    """
    programs = model.work.programs
    rows = np.flatnonzero(programs.kind == COMM)
    stage = np.searchsorted(programs.stream_ptr[:: programs.n_streams], rows, side="right") - 1
    name, batch = name_of[rows], programs.microbatch[rows].astype(np.int64)
    alone = (batch < 0) | (programs.category[rows] == CATEGORIES.index("dp"))
    part, order = np.full(len(rows), -1), np.lexsort((rows, name, stage, ~alone))
    kind = np.stack([stage, name])[:, order[: alone.sum()]]
    new = np.r_[True, (np.diff(kind, axis=1) != 0).any(axis=0)][: kind.shape[1]]
    part[order[: alone.sum()]] = np.arange(kind.shape[1]) - np.maximum.accumulate(np.where(new, np.arange(kind.shape[1]), 0))
    number = ((stage * (name.max(initial=0) + 1) + name) * (batch.max(initial=0) + 2) + batch + 1) * (part.max(initial=0) + 2) + part + 1
    _, first, of = np.unique(number, return_index=True, return_inverse=True)
    key = np.full(len(programs.kind), -1, np.int32)
    key[rows] = of.ravel()
    columns = {"name": name, "category": programs.category[rows], "stage": stage, "microbatch": batch, "part": part}
    # the same kinds once for every slot that iterations are recorded in, and at last for those that are not; tags begin with the latter
    slots, count = np.unique(np.where(slot < 0, slot.max() + 1, slot), return_index=True, return_counts=True)[1:]
    iteration = np.where(slot[slots] < 0, -1, np.where(count > 1, -1, slots))
    block = np.r_[slot.max() + 1, 0 : slot.max() + 1]
    every = np.where((key < 0) | (block[:, None] >= len(slots)), -1, key + block[:, None] * len(first)).astype(np.int32)
    kinds = {column: np.tile(values[first], len(slots)) for column, values in columns.items()}
    return every.ravel(), kinds | {"iteration": np.repeat(iteration, len(first))}


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
