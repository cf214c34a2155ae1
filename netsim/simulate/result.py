"""What a training run says: the summary, and the arrays of its result file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import topologies
from netsim import __version__
from netsim.config import Run, config_hash, resolved
from netsim.kernels import bins
from netsim.kernels.executor import Exec
from netsim.kernels.structs import CATEGORIES, LINK_TIERS, Array
from netsim.simulate.loop import Log
from netsim.simulate.model import Model
from netsim.telemetry.write import Writer, link_series, result_file
from workload.api import Segments

if TYPE_CHECKING:
    from netsim.simulate.packets import Samples

S = 1e-12
COMMUNICATION = ("tp", "pp", "dp", "ep", "cp")
KERNELS = ("forward", "backward", "recompute", "other")
BLOCK = 4096
"""Intervals of link series that are written at a time."""
LARGEST = 1 << 27
"""Values of link series that a result file holds at most; more are summed over longer intervals."""


def summary(run: Run, model: Model, gpus: Exec, links: Array, complete: bool) -> dict[str, Any]:
    """The figures of `summary.json`: seconds per iteration, means over all GPUs unless said otherwise."""
    work, n = model.work, model.topology.n_gpus
    weight = np.bincount(model.gpu_of, minlength=len(gpus.program)).astype(float)
    turns = max(1.0, float(gpus.round.max()))
    mean = _means(gpus, weight, turns)
    iteration_s = float(gpus.end.max()) * S / turns
    peak = work.peak_flops
    achieved = work.flops_per_step / iteration_s / n if iteration_s else 0.0
    return {
        "name": run.name,
        "iteration_time_s": iteration_s,
        "tokens_per_s": work.tokens_per_step / iteration_s if iteration_s else 0.0,
        "tflops_per_gpu": achieved / 1e12,
        "mfu": achieved / peak,
        "peak_tflops": peak / 1e12,
        "gpus": n,
        "gpus_simulated": len(gpus.program),
        "operations": int(np.diff(gpus.stream_ptr[:: gpus.n_streams])[gpus.program].sum() * turns),
        "engine": run.network.engine,
        "complete": complete,
        "iterations": int(turns),
        "compute_s": sum(mean["busy"][c] for c in KERNELS),
        "exposed_s": {c: mean["exposed"][c] for c in COMMUNICATION},
        "bubble_s": mean["bubble"],
        "optimizer_s": mean["busy"]["optimizer"],
        "other_s": mean["exposed"]["other"] + mean["exposed"]["optimizer"],
        "stages": [_stage(gpus, weight, turns, program) for program in range(work.programs.n_programs)],
        "network_bytes": float(links[model.topology.link_tier == LINK_TIERS.index("nic")].sum() / 2),
        "scale_up_bytes": float(links[model.topology.link_tier == LINK_TIERS.index("scale_up")].sum() / 2),
        "busiest_links": _busiest(model, links, iteration_s * turns),
        "peak_memory_gib": max(m.peak for m in work.memory) / 2**30,
        "version": __version__,
        "config_hash": config_hash(run),
    }


def _means(gpus: Exec, weight: Array, turns: float) -> dict[str, Any]:
    """Weighted means over GPUs, seconds per iteration."""
    share = weight / weight.sum() * S / turns
    return {
        "busy": dict(zip(CATEGORIES, (share @ gpus.busy).tolist(), strict=True)),
        "exposed": dict(zip(CATEGORIES, (share @ gpus.exposed).tolist(), strict=True)),
        "bubble": float(share @ gpus.bubble),
    }


def _stage(gpus: Exec, weight: Array, turns: float, program: int) -> dict[str, Any]:
    mean = _means(gpus, weight * (gpus.program == program), turns)
    return {
        "program": program,
        "forward_s": mean["busy"]["forward"],
        "backward_s": mean["busy"]["backward"],
        "recompute_s": mean["busy"]["recompute"],
        "compute_s": sum(mean["busy"][c] for c in KERNELS),
        "optimizer_s": mean["busy"]["optimizer"],
        "exposed_s": {c: mean["exposed"][c] for c in COMMUNICATION},
        "bubble_s": mean["bubble"],
    }


def _busiest(model: Model, links: Array, elapsed_s: float, count: int = 10) -> list[dict[str, Any]]:
    """Links by utilisation, one for each set of links that carry the same."""
    rate = model.topology.link_rate
    share = np.where(rate > 0, links / np.maximum(rate, 1) / max(elapsed_s, 1e-30), 0.0)
    _, alike, sizes = np.unique(np.stack([model.topology.link_tier, np.round(share, 3)]), axis=1, return_index=True, return_counts=True)
    order = np.argsort(-share[alike], kind="stable")[:count]
    return [
        {
            "link": topologies.link_name(model.topology, int(alike[i])),
            "tier": LINK_TIERS[model.topology.link_tier[alike[i]]],
            "alike": int(sizes[i]),
            "bytes": float(links[alike[i]]),
            "utilisation": float(share[alike[i]]),
        }
        for i in order
        if links[alike[i]] > 0
    ]


def link_bytes(model: Model, moved: Array) -> Array:
    """Bytes that every link carried, float64[L], from the bytes that every simulated bundle moved."""
    bundle = np.repeat(np.arange(len(moved)), np.diff(model.fluid.bundle_ptr))
    simulated = np.bincount(model.fluid.node_link, weights=model.fluid.node_coef * moved[bundle], minlength=len(model.fluid.capacity))
    return simulated[model.link_of]


def write(
    run: Run, model: Model, gpus: Exec, log: Log, links: Array, figures: dict[str, Any], out: Path, samples: "Samples | None" = None
) -> None:
    """Leave `result.h5`, then `summary.json`, in `out`; `samples` are what the packet engine carried by interval."""
    end_ps = int(gpus.end.max()) or 1
    interval, rows, row_of = _series_shape(run, model, links, end_ps)
    attributes = {
        "engine": run.network.engine,
        "complete": figures["complete"],
        "interval_ps": interval,
        "end_ps": end_ps,
        "categories": list(CATEGORIES),
        "streams": list(model.work.streams),
        "config": json.dumps(resolved(run)),
        "config_hash": figures["config_hash"],
        "summary": json.dumps({k: v for k, v in figures.items() if k not in ("wall_s", "ranks")}),
    }
    with result_file(out / "result.h5", attributes) as writer:
        _links(writer, model, links, row_of[model.link_of])
        link_series(writer, rows, -(-end_ps // interval), _blocks(model, log, samples, row_of, rows, interval, end_ps), BLOCK)
        _gpus(writer, model, gpus)
        _operations(writer, model, gpus)
    text = json.dumps(figures, indent=1)
    part = out / "summary.json.part"
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(out / "summary.json")


def _series_shape(run: Run, model: Model, links: Array, end_ps: int) -> tuple[int, int, Array]:
    """(interval, rows, row of each simulated link): links that carried nothing have row -1."""
    carried = np.zeros(len(model.fluid.capacity), bool)
    carried[model.link_of[links > 0]] = True
    rows = int(carried.sum())
    row_of = np.where(carried, np.cumsum(carried) - 1, -1)
    interval = run.telemetry.interval
    while run.network.engine != "packet" and rows * (end_ps // interval) > LARGEST:
        interval *= 2
    return interval, rows, row_of


def _blocks(
    model: Model, log: Log, samples: "Samples | None", row_of: Array, rows: int, interval: int, end_ps: int
) -> Iterator[tuple[int, Array]]:
    """Link series, a block of intervals at a time."""
    order = np.argsort(log.t0, kind="stable")
    starts = log.t0[order]
    longest = int((log.t1 - log.t0).max()) if len(order) else 0
    n_bins = -(-end_ps // interval)
    for bin0 in range(0, n_bins, BLOCK):
        block = np.zeros((rows, min(BLOCK, n_bins - bin0)))
        first = np.searchsorted(starts, bin0 * interval - longest)
        last = np.searchsorted(starts, (bin0 + block.shape[1]) * interval)
        fluid = model.fluid
        nodes = (fluid.bundle_ptr, fluid.node_link, fluid.node_coef)
        bins.add_rows(log.bundle, log.t0, log.t1, log.pace, order, first, last, *nodes, row_of, interval, bin0, block)
        if samples is not None:
            mine = slice(*np.searchsorted(samples.interval, [bin0, bin0 + block.shape[1]]))
            np.add.at(block, (row_of[samples.link[mine]], samples.interval[mine] - bin0), samples.nbytes[mine])
        yield bin0, block


def _links(writer: Writer, model: Model, links: Array, series: Array) -> None:
    top = model.topology
    writer.put("links/name", topologies.link_names(top))
    writer.put("links/tier", [LINK_TIERS[tier] for tier in top.link_tier])
    rail = np.maximum(top.vertex_rail[top.link_src], top.vertex_rail[top.link_dst])
    writer.put("links/rail", rail)
    writer.put("links/rate", top.link_rate)
    writer.put("links/bytes", links)
    writer.put("links/series", series)


def _gpus(writer: Writer, model: Model, gpus: Exec) -> None:
    of = model.gpu_of
    writer.put("gpus/program", gpus.program[of])
    writer.put("gpus/busy", gpus.busy[of])
    writer.put("gpus/exposed", gpus.exposed[of])
    writer.put("gpus/bubble", gpus.bubble[of])
    writer.put("gpus/end", gpus.end[of])


def _operations(writer: Writer, model: Model, gpus: Exec) -> None:
    """Rows of the recorded GPUs, GPU by GPU in program order."""
    programs = model.work.programs
    simulated = np.flatnonzero(gpus.record_ptr >= 0)
    starts = programs.stream_ptr[:: programs.n_streams]
    rows = [np.arange(starts[gpus.program[g]], starts[gpus.program[g] + 1]) for g in simulated]
    row = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    real = simulated if model.fold is None else model.fold.gpu_rep[simulated]
    names, name_of = _names(model)
    writer.put("operations/gpu", np.repeat(real, [len(r) for r in rows]))
    writer.put("operations/stream", gpus.row_stream[row])
    writer.put("operations/category", programs.category[row])
    writer.put("operations/name", name_of[row])
    writer.put("operations/microbatch", programs.microbatch[row])
    writer.put("operations/layer", programs.layer[row])
    writer.put("operations/start", gpus.record_start)
    writer.put("operations/begin", gpus.record_begin)
    writer.put("operations/end", gpus.record_end)
    writer.put("operations/names", names)


def _names(model: Model) -> tuple[list[str], Array]:
    """All names of rows, and the number of each row's."""
    programs = model.work.programs
    calls, segments = list(model.work.calls.name), _segment_names(model.work.segments)
    names = list(dict.fromkeys(calls + segments))
    number = {name: i for i, name in enumerate(names)}
    of_call = np.array([number[name] for name in calls] or [0])
    of_segment = np.array([number[name] for name in segments] or [0])
    is_comm = programs.kind == 1
    return names, np.where(is_comm, of_call[np.where(is_comm, programs.call, 0)], of_segment[np.where(is_comm, 0, programs.call)])


def _segment_names(segments: Segments) -> list[str]:
    """A segment is named by the kinds of its kernels, in order."""
    kinds = [segments.kernels[k].kind for k in segments.idx]
    return ["+".join(dict.fromkeys(kinds[a:b])) or "nothing" for a, b in zip(segments.ptr[:-1], segments.ptr[1:], strict=True)]
