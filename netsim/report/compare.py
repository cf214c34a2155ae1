"""What differs between runs: in what was asked for, in time by category, and on which links."""

from typing import Any

import numpy as np

from netsim.kernels.structs import LINK_TIERS
from netsim.report.data import LABELS, PARTS, breakdown
from netsim.telemetry.read import RunFile

HEADLINES = ("iteration_time_s", "tokens_per_s", "tflops_per_gpu", "mfu", "peak_memory_gib", "network_bytes", "scale_up_bytes", "end_s")
NOT_COMPARED = ("name", "slurm")
"""Parts of a configuration that change nothing of a result."""


def compare(runs: list[RunFile]) -> dict[str, Any]:
    """Everything that is told of runs side by side; lists have one entry per run."""
    return {
        "runs": [run.name for run in runs],
        "complete": [run.complete for run in runs],
        "config": config(runs),
        "headlines": [(name, values) for name in HEADLINES if any(values := [_number(run.summary.get(name)) for run in runs])],
        "time_s": time_by_part(runs),
        "tiers": tiers(runs),
        "links": links(runs),
    }


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def config(runs: list[RunFile]) -> list[tuple[str, list[Any]]]:
    """Fields of the resolved configurations that are not the same in all runs; None where a run does not have one."""
    flat = [dict(_leaves(run.config)) for run in runs]
    names = dict.fromkeys(name for one in flat for name in one)
    other = len({one.get("workload.kind") for one in flat}) > 1  # jobs of another kind have no field in common
    left_out = (*NOT_COMPARED, "workload", "compute", "nccl") if other else NOT_COMPARED
    kept = [name for name in names if name.split(".")[0] not in left_out or name == "workload.kind"]
    out = [(name, [one.get(name) for one in flat]) for name in kept]
    return [(name, values) for name, values in out if any(value != values[0] for value in values)]


def _leaves(node: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        return [leaf for key, value in node.items() for leaf in _leaves(value, f"{path}.{key}" if path else str(key))]
    return [(path, node)]


def time_by_part(runs: list[RunFile]) -> list[tuple[str, list[float | None]]]:
    """Seconds of an iteration by part, mean over GPUs: part by part, run by run."""
    columns: list[dict[str, float]] = []
    for run in runs:
        if "gpus/busy" not in run:
            columns.append({})
            continue
        stages, seconds = breakdown(run)
        size = np.array([(run["gpus/program"] == stage).sum() for stage in stages], float)
        columns.append(dict(zip(PARTS, (size @ seconds / size.sum()).tolist(), strict=True)))
    rows: list[tuple[str, list[float | None]]] = [(LABELS.get(part, part), [c.get(part) for c in columns]) for part in PARTS]
    return [(part, values) for part, values in rows if any(values)]


def tiers(runs: list[RunFile]) -> list[tuple[str, list[dict[str, float] | None]]]:
    """Links, bytes, mean and highest utilisation over the run of every tier."""
    each = [_tiers(run) for run in runs]
    return [(tier, [one.get(tier) for one in each]) for tier in LINK_TIERS if any(tier in one for one in each)]


def _tiers(run: RunFile) -> dict[str, dict[str, float]]:
    tier, rate, nbytes, out = run["links/tier"], run["links/rate"], run["links/bytes"], {}
    used = np.where(rate > 0, nbytes / np.maximum(rate, 1) / max(run.end_ps * 1e-12, 1e-30), 0.0)
    for name in LINK_TIERS:
        mine = tier == name
        if mine.any():
            mean, most = float(used[mine].mean()), float(used[mine].max())
            out[name] = {"links": int(mine.sum()), "bytes": float(nbytes[mine].sum()), "mean": mean, "most": most}
    return out


def links(runs: list[RunFile], top: int = 8) -> list[tuple[str, list[float]]]:
    """Links that all runs have whose bytes changed most; one for all of a tier that changed alike."""
    names = [{str(name): i for i, name in enumerate(run["links/name"])} for run in runs]
    common = [name for name in names[0] if all(name in other for other in names[1:])]
    if not common or len(runs) < 2:
        return []
    nbytes = np.stack([run["links/bytes"][[number[name] for name in common]] for run, number in zip(runs, names, strict=True)])
    change = np.abs(nbytes - nbytes[0]).max(axis=0)
    _, first = np.unique(np.round(nbytes / max(nbytes.max(), 1e-30), 4), axis=1, return_index=True)
    order = first[np.argsort(-change[first], kind="stable")][:top]
    return [(common[i], [float(b) for b in nbytes[:, i]]) for i in order if change[i] > 1e-3 * max(nbytes[:, i].max(), 1.0)]
