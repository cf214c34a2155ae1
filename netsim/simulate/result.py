"""What a training run says: the figures of its summary."""

from typing import Any

import numpy as np

import topologies
from netsim import __version__
from netsim.config import Run, config_hash
from netsim.kernels.executor import Exec
from netsim.kernels.structs import CATEGORIES, LINK_TIERS, TIMERS, Array
from netsim.simulate.model import Model

S = 1e-12
COMMUNICATION = ("tp", "pp", "dp", "ep", "cp")
KERNELS = ("forward", "backward", "recompute", "other")


def summary(run: Run, model: Model, gpus: Exec, links: Array, complete: bool) -> dict[str, Any]:
    """The figures of `summary.json`: seconds per iteration, means over all GPUs unless said otherwise."""
    work, n = model.work, model.topology.n_gpus
    weight = np.bincount(model.gpu_of, minlength=len(gpus.program)).astype(float)
    turns = max(1.0, float(gpus.round.max()))
    mean = _means(gpus, weight, turns)
    iteration_s = float(gpus.end.max()) * S / turns
    peak = work.peak_flops
    achieved = work.flops_per_step / iteration_s / n if iteration_s else 0.0
    fullest = max(work.memory, key=lambda m: m.peak)
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
        "timers": _timers(gpus, turns),
        "stages": [_stage(gpus, weight, turns, program) for program in range(work.programs.n_programs)],
        "network_bytes": float(links[model.topology.link_tier == LINK_TIERS.index("nic")].sum() / 2),
        "scale_up_bytes": float(links[model.topology.link_tier == LINK_TIERS.index("scale_up")].sum() / 2),
        "busiest_links": _busiest(model, links, iteration_s * turns),
        "peak_memory_gib": fullest.peak / 2**30,
        "peak_memory_where": fullest.peak_where,
        "memory_gib": model.device.card.memory / 2**30,
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


def _timers(gpus: Exec, turns: float) -> dict[str, dict[str, float]]:
    """Least and most seconds per iteration over all GPUs, for every timer that ran; those that stand for others do the same as they."""
    least, most = gpus.timers.min(axis=0) * S / turns, gpus.timers.max(axis=0) * S / turns
    return {name: {"min_s": float(a), "max_s": float(b)} for name, a, b in zip(TIMERS, least, most, strict=True) if b > 0}


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
