"""Names and spans as Megatron's timers call them, from the operations of a result file."""

from typing import NamedTuple

import numpy as np

from netsim.kernels.structs import CATEGORIES, Array
from netsim.telemetry.read import RunFile

TIMERS = {"forward": "forward-compute", "backward": "backward-compute", "recompute": "backward-compute", "optimizer": "optimizer"}
"""Timer of what a compute stream does, by category; recomputation is part of the backward pass."""
TRANSFERS = {
    ("pp.sendrecv.forward", "pp_send_next"): "forward-send",
    ("pp.sendrecv.forward", "pp_recv_prev"): "forward-recv",
    ("pp.sendrecv.backward", "pp_send_prev"): "backward-send",
    ("pp.sendrecv.backward", "pp_recv_next"): "backward-recv",
    ("pp.sendrecv.forward", "pp_rev_send_prev"): "forward-send",
    ("pp.sendrecv.forward", "pp_rev_recv_next"): "forward-recv",
    ("pp.sendrecv.backward", "pp_rev_send_next"): "backward-send",
    ("pp.sendrecv.backward", "pp_rev_recv_prev"): "backward-recv",
}
CALLS = {
    "dp.reduce_scatter.dense_grads": "all-grads-sync",
    "dp.all_reduce.dense_grads": "all-grads-sync",
    "dp.all_gather.dense_params": "params-all-gather",
    "tp.all_reduce.layernorm_grads": "layernorm-grads-all-reduce",
    "pp.all_reduce.embedding_grads": "embedding-grads-all-reduce",
    "dp.all_reduce.dense_grad_norm": "optimizer-clip-main-grad",
}


class Operations(NamedTuple):
    """Operations of one GPU in a window, stream by stream in order of time."""

    gpu: int
    program: int
    name: Array  # text
    stream: Array
    category: Array
    microbatch: Array
    layer: Array
    start: Array  # ps
    begin: Array
    end: Array
    flow: Array  # -1 for kernels
    memory: Array  # -1 off the compute stream


def recorded(run: RunFile) -> list[int]:
    """GPUs whose operations a run holds."""
    return [int(g) for g in np.unique(run["operations/gpu"])] if "operations/gpu" in run else []


def operations(run: RunFile, gpus: list[int], window: tuple[float, float] = (0.0, np.inf)) -> list[Operations]:
    """The operations of some GPUs that ended, and overlap a window (seconds)."""
    if not gpus:
        return []
    columns = {name: run[f"operations/{name}"] for name in ("gpu", "stream", "category", "microbatch", "layer", "start", "begin", "end")}
    n = len(columns["gpu"])
    for name in ("flow", "memory"):
        columns[name] = run[f"operations/{name}"] if f"operations/{name}" in run else np.full(n, -1)
    keep = (columns["end"] > 0) & (columns["end"] * 1e-12 >= window[0]) & (columns["start"] * 1e-12 < window[1])
    names, out = timer_names(run), []
    for gpu in gpus:
        rows = np.flatnonzero(keep & (columns["gpu"] == gpu))
        mine = {field: columns[field][rows] for field in columns if field != "gpu"}
        out.append(Operations(gpu, int(run.slice("gpus/program", gpu)), names[rows], **mine))
    return out


def timer_names(run: RunFile) -> Array:
    """The name of every operation: transfers and collectives as Megatron's timers, kernels as they are."""
    names, number, stream = run["operations/names"], run["operations/name"], run["operations/stream"]
    out = np.array([CALLS.get(name, name) for name in names], dtype=object)[number]
    streams = run.names("streams")
    for (call, on), timer in TRANSFERS.items():
        where = np.flatnonzero(names == call)
        if len(where) and on in streams:
            out[(number == where[0]) & (stream == streams.index(on))] = timer
    return out


class Spans(NamedTuple):
    """Parts of a compute stream that a timer would cover."""

    name: list[str]
    microbatch: Array
    start: Array  # ps
    end: Array
    first: Array  # row of the operations
    last: Array


def spans(ops: Operations) -> Spans:
    """Join rows of the compute stream of one timer and microbatch; calls on that stream belong to what they interrupt."""
    rows = np.flatnonzero(ops.stream == 0)
    timer = np.array([TIMERS.get(c, "") for c in CATEGORIES], dtype=object)[ops.category[rows]]
    kernel = timer != ""
    before = np.maximum.accumulate(np.where(kernel, np.arange(len(rows)), -1))
    timer, microbatch = timer[before], ops.microbatch[rows][before]
    loose = (before < 0) | (ops.microbatch[rows] != microbatch)
    timer, microbatch = np.where(loose & ~kernel, "", timer), np.where(loose & ~kernel, -1, microbatch)
    new = np.r_[True, (timer[1:] != timer[:-1]) | (microbatch[1:] != microbatch[:-1])][: len(rows)]
    first = np.flatnonzero(new)
    last = np.r_[first[1:], len(rows)] - 1
    keep = timer[first] != ""
    a, b = rows[first[keep]], rows[last[keep]]
    return Spans([str(t) for t in timer[first[keep]]], microbatch[first[keep]], ops.start[a], ops.end[b], a, b)
