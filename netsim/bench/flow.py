"""The flow engine on whole training iterations: wall time, memory and cost per operation, folded and with every GPU simulated."""

import json
import resource
import subprocess
import sys
from typing import Any

CASES = {
    "h100_1024_folded": (1024, 16, "auto"),
    "h100_1024_unfolded": (1024, 16, "off"),
    "h100_8192_folded": (8192, 128, "auto"),
    "h100_8192_unfolded": (8192, 128, "off"),
}
"""Name -> GPUs, data-parallel size, fold; the global batch grows with the data-parallel size, so that the work per GPU is the same."""


def scenarios() -> dict[str, dict[str, Any]]:
    """Run each case in a process of its own, twice, and keep the second run: the first fills the cache of compiled code."""
    return {name: [_apart(name) for _ in range(2)][1] for name in CASES}


def measure(name: str) -> dict[str, Any]:
    """Run one case in this process."""
    import tempfile
    import time
    from pathlib import Path

    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    from netsim.config import load
    from netsim.progress import Progress
    from netsim.simulate import simulate

    gpus, dp, fold = CASES[name]
    settings = (
        "network.engine=flow",
        f"topology.nodes={gpus // 8}",
        f"workload.parallel.dp={dp}",
        f"workload.global_batch={96 * dp}",
        f"simulate.fold={fold}",
    )
    with tempfile.TemporaryDirectory() as folder:
        summary = simulate(load("runs/h100_1024.yaml", settings), Path(folder), Progress())
    return {
        "gpus": gpus,
        "fold": fold,
        "wall_s": summary["wall_s"],
        "telemetry_s": summary["telemetry_s"],
        "telemetry_share": summary["telemetry_s"] / summary["wall_s"],
        "process_s": time.perf_counter() - began,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "rss_before_mb": before / 1024,
        "iteration_time_s": summary["iteration_time_s"],
        "operations": summary["operations"],
        "ns_per_operation": 1e9 * summary["wall_s"] / summary["operations"],
    }


def _apart(name: str) -> dict[str, Any]:
    code = f"import json; from netsim.bench.flow import measure; print(json.dumps(measure({name!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))
