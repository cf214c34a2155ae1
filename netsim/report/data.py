"""What figures and the HTML page show, from a result file: plain arrays and lists, in seconds, bytes and shares."""

from typing import Any, NamedTuple

import numpy as np

from netsim.kernels.structs import CATEGORIES, LINK_TIERS, Array
from netsim.report.heat import weighted_cdf
from netsim.report.spans import Operations, operations, recorded, spans
from netsim.telemetry.read import RunFile

PARTS = ("forward", "backward", "recompute", "optimizer", "tp", "cp", "ep", "pp", "dp", "other", "bubble")
"""What an iteration is made of, in the order in which it is stacked."""
LABELS = {c: f"exposed {c}" for c in ("tp", "cp", "ep", "pp", "dp")} | {"bubble": "waiting for other GPUs"}
COLOURS = {
    "forward": "#0072b2",
    "backward": "#56b4e9",
    "recompute": "#009e73",
    "optimizer": "#f0e442",
    "tp": "#e69f00",
    "cp": "#999933",
    "ep": "#882255",
    "pp": "#d55e00",
    "dp": "#cc79a7",
    "other": "#888888",
    "bubble": "#dddddd",
}
"""After Okabe and Ito (2008): apart for people with any common colour vision."""
TIER_COLOURS = dict(zip(LINK_TIERS, ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"), strict=True))


class Breakdown(NamedTuple):
    """Seconds of an iteration by stage (mean over its GPUs) and part, float64[stages, parts]."""

    stages: list[int]
    seconds: Array


def breakdown(run: RunFile) -> Breakdown:
    """Kernels by category, waits of the compute stream by what it waited for; the rest of the iteration is idle at its end."""
    program, busy, exposed, bubble = (run[f"gpus/{name}"] for name in ("program", "busy", "exposed", "bubble"))
    turns, stages = max(1, int(run.summary.get("iterations", 1))), np.unique(program)
    seconds = np.zeros((len(stages), len(PARTS)))
    for part, name in enumerate(PARTS):
        if name == "bubble":
            values = bubble
        else:
            c = CATEGORIES.index(name)
            values = busy[:, c] + (exposed[:, c] if name in ("tp", "cp", "ep", "pp", "dp", "other") else 0)
        for s, stage in enumerate(stages):
            seconds[s, part] = values[program == stage].mean() * 1e-12 / turns
    return Breakdown([int(s) for s in stages], seconds)


class Lane(NamedTuple):
    """What one GPU's compute stream does: spans of timers, seconds."""

    gpu: int
    stage: int
    name: list[str]
    microbatch: Array
    start_s: Array
    end_s: Array


def lanes(run: RunFile) -> list[Lane]:
    """One lane per stage that was recorded: its first GPU."""
    return [_lane(ops) for ops in operations(run, first_of_stages(run))]


def first_of_stages(run: RunFile) -> list[int]:
    """The first recorded GPU of every stage."""
    if not (there := recorded(run)):
        return []
    program = run["gpus/program"]
    firsts: dict[int, int] = {}
    for gpu in there:
        firsts.setdefault(int(program[gpu]), gpu)
    return [firsts[stage] for stage in sorted(firsts)]


def _lane(ops: Operations) -> Lane:
    found = spans(ops)
    return Lane(ops.gpu, ops.program, found.name, found.microbatch, found.start * 1e-12, found.end * 1e-12)


def memory(run: RunFile) -> list[tuple[int, Array, Array]]:
    """(stage, seconds, bytes allocated from then on) of the first recorded GPU of every stage."""
    if "operations/memory" not in run:
        return []
    out = []
    for ops in operations(run, first_of_stages(run)):
        held = np.flatnonzero(ops.memory >= 0)
        held = held[np.r_[True, np.diff(ops.memory[held]) != 0][: len(held)]]
        out.append((ops.program, ops.start[held] * 1e-12, ops.memory[held].astype(float)))
    return out


def completion_cdf(run: RunFile) -> dict[str, tuple[Array, Array]]:
    """{kind of flow: (completion time in seconds, share)}: calls by the dimension they serve, weighted by communicators alike."""
    if "flows/end" not in run or not run.shape("flows/end")[0]:
        return {}
    fct = (run["flows/end"] - run["flows/start"]) * 1e-12
    if "flows/alike" not in run:
        return {"messages": weighted_cdf(fct, np.ones(len(fct)))}
    dimension = np.array([name.split(".")[0] for name in run["operations/names"]])[run["flows/call"]]
    alike = run["flows/alike"]
    return {str(d): weighted_cdf(fct[dimension == d], alike[dimension == d]) for d in np.unique(dimension)}


def queue_cdf(run: RunFile, counter: str = "queue_max") -> dict[str, tuple[Array, Array]]:
    """{tier: (highest or mean fill of a queue in an interval, share of link intervals with traffic)}; only the packet engine has queues."""
    if f"series/{counter}" not in run:
        return {}
    tier, row, out = run["links/tier"], run["links/series"], {}
    for name in ("nic", "spine", "core"):
        rows, counts = np.unique(row[(tier == name) & (row >= 0)], return_counts=True)
        if len(rows):
            fill = [run.slice(f"series/{counter}", int(r)) for r in rows]
            used = [run.slice("series/bytes", int(r)) > 0 for r in rows]
            values = np.concatenate([f[u] for f, u in zip(fill, used, strict=True)]).astype(float)
            weights = np.repeat(counts, [int(u.sum()) for u in used])
            if len(values):
                out[name] = weighted_cdf(values, weights)
    return out


def by_name(run: RunFile) -> list[dict[str, Any]]:
    """Operations of the recorded GPUs by name: how many, how long in all and on average, seconds; the longest in all first."""
    if "operations/end" not in run:
        return []
    number, category = run["operations/name"], run["operations/category"]
    length = np.where(run["operations/end"] > 0, run["operations/end"] - run["operations/begin"], 0) * 1e-12
    names = run["operations/names"]
    key = number.astype(np.int64) * len(CATEGORIES) + category
    used, inverse = np.unique(key, return_inverse=True)
    count, total = np.bincount(inverse), np.bincount(inverse, weights=length)
    rows = []
    for k, n, t in zip(used.tolist(), count.tolist(), total.tolist(), strict=True):
        name, kind = divmod(k, len(CATEGORIES))
        rows.append({"name": str(names[name]), "category": CATEGORIES[kind], "count": int(n), "total_s": t, "mean_s": t / n})
    return sorted(rows, key=lambda row: -float(row["total_s"]))
