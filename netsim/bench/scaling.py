"""Ranks against ranks on this machine: the packet engine by rail plane, measured in one go so that only ratios matter.

`speedup` compares one rank with as many ranks as there are cores; `oversubscribed` compares those with 32 ranks, less the time that 32
ranks take to start.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RUNS = {
    "training": ("runs/h100_1024.yaml", "workload.model.layers=8", "workload.global_batch=64"),
    "reduce_scatter": (
        "runs/h100_1024.yaml", "topology.nodes=16", "workload.model.layers=8", "workload.parallel.pp=1",
        "workload.parallel.dp=16", "workload.global_batch=16",
    ),
}  # fmt: skip
"""Name -> run: the 1,024-GPU job with a layer per stage and few microbatches, and one dominated by the reduce-scatter of eight rails."""


def scenarios() -> dict[str, dict[str, Any]]:
    """Time every run on 1 rank, on all cores, and on 32 ranks."""
    return {f"scaling_{name}": _measure(settings) for name, settings in RUNS.items()}


def _measure(settings: tuple[str, ...]) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    _run(settings, 1)  # compiles what is not in the cache
    one, many, crowd = (_run(settings, ranks) for ranks in (1, cores, 32))
    return {
        "cores": cores,
        "wall_s_1": one["wall_s"],
        f"wall_s_{cores}": many["wall_s"],
        "wall_s_32": crowd["wall_s"],
        "speedup": one["wall_s"] / many["wall_s"],
        "oversubscribed": crowd["wall_s"] / many["wall_s"],
        "process_s_1": one["process_s"],
        f"process_s_{cores}": many["process_s"],
        "process_s_32": crowd["process_s"],
        **{f"parallel_{key}": value for key, value in many["parallel"].items()},
    }


def _run(settings: tuple[str, ...], ranks: int) -> dict[str, Any]:
    """Run on so many ranks; returns the summary with the time of the whole process added."""
    file, *overrides = settings
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "netsim", "run", file, "--quiet", "--out", folder]
        for override in overrides:
            words += ["--set", override]
        launcher = [str(Path(sys.executable).with_name("mpirun")), "-n", str(ranks)] if ranks > 1 else []
        began = time.perf_counter()
        subprocess.run([*launcher, *words], check=True, capture_output=True)
        summary = json.loads(Path(folder, "summary.json").read_text(encoding="utf-8"))
    return {**summary, "process_s": time.perf_counter() - began}
