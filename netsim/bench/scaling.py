"""Ranks against ranks on this machine, measured in one go so that only ratios matter, and what more cores would do.

`speedup` compares one rank with as many ranks as there are cores; `oversubscribed` compares those with 32 ranks, of which the same number
work and the others sleep. Seconds are those of the simulation; `process` with start-up.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from netsim.network.partition import STRETCH

SHAPE = ("workload.model.layers=8", "workload.global_batch=64")
RUNS = {
    "training": ("runs/h100_1024.yaml", *SHAPE),
    "reduce_scatter": (
        "runs/h100_1024.yaml", "topology.nodes=16", "workload.model.layers=8", "workload.parallel.pp=1", "workload.parallel.dp=16",
        "workload.global_batch=16",
    ),
    "one_plane": ("runs/h100_1024.yaml", *SHAPE, "topology.use=dgx_h100_superpod"),
    "traffic": ("runs/permutation_1024.yaml", "workload.size=8 MiB"),
}  # fmt: skip
"""Name -> run: the 1,024-GPU job with a layer per stage and few microbatches; one that is mostly the reduce-scatter of eight rails of 16
nodes; the first on spines that all rails share, hence a plane that ranks could cut between them; and plain traffic, likewise."""
CROWD = 32
STEP_S = 2e-6
"""Assumed: latency of a message between nodes, of which an exchange among N ranks takes log2(N) one after another."""
RANKS = (2, 8, 32, 128)


def scenarios() -> dict[str, dict[str, Any]]:
    """Time every run on 1 rank, on all cores, and on 32 ranks."""
    return {f"scaling_{name}": _measure(settings) for name, settings in RUNS.items()}


def project(one: dict[str, Any], many: dict[str, Any], ranks: int) -> float:
    """Seconds on `ranks` cores, from the figures of runs on one rank and on several.

    The executor's copy stays; what engines play is shared by as many ranks as there are sets of planes, or as find work where a window
    pays for handing over, as measured on two ranks, and for a step more for each doubling; all meet as often as measured.
    """
    alone, shared = one["parallel"], many["parallel"]
    whole, parts = min(ranks, shared["sets"]), min(ranks, shared["most_ranks"])
    team = math.ceil(parts / shared["sets"])
    played = alone["played_s"] / whole
    if team > 1 and shared["hand_over_s"] > 0:
        cut = played / team + alone["windows"] * (shared["hand_over_s"] + STEP_S * (math.log2(team) - 1))
        played = min(played, STRETCH * cut)
    meetings = shared["exchanges"] * STEP_S * math.log2(max(ranks, 1))
    return float(one["wall_s"] - alone["played_s"] + played + meetings)


def section(found: dict[str, dict[str, Any]]) -> str:
    """What `--page` puts between the marks of a page: measured, and projected."""
    cores = next(iter(found.values()))["cores"]
    lines = [
        f"| run | 1 rank, s | {cores} ranks, s | ratio | 32 ranks, s | over {cores} ranks | exchanges | hand-overs | imbalance |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, of in found.items():
        figures = (of["wall_s_1"], of[f"wall_s_{cores}"], of["speedup"], of["wall_s_32"], of["oversubscribed"])
        counts = of["parallel_exchanges"], of["parallel_hand_overs"], f"{of['parallel_imbalance']:.2f}"
        lines.append(f"| {name[8:]} | " + " | ".join([*(f"{x:.3g}" for x in figures), *map(str, counts)]) + " |")
    lines += ["", "| run, projected | " + " | ".join(f"{n} ranks, s" for n in RANKS) + " | ranks that find work |"]
    lines.append("| --- " * (len(RANKS) + 2) + "|")
    for name, of in found.items():
        times = " | ".join(f"{of[f'projected_s_{n}']:.3g}" for n in RANKS)
        lines.append(f"| {name[8:]} | {times} | {of['parallel_most_ranks']} |")
    return "\n".join(lines)


def _measure(settings: tuple[str, ...]) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    _run((*settings, "workload.size=64 KiB") if "permutation" in settings[0] else settings, 1)  # compiles what is not in the cache
    one, many, crowd = (_run(settings, ranks) for ranks in (1, cores, CROWD))
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
        **{f"projected_s_{n}": project(one, many, n) for n in RANKS},
        **{f"parallel_{key}": value for key, value in many["parallel"].items() if key != "cut_bytes_of_pairs"},
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
