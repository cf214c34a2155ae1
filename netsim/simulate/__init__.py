"""The co-simulation of a run: build the model, advance GPUs and network together, leave the results."""

import time
from pathlib import Path
from typing import Any

from netsim import parallel
from netsim.config import Run
from netsim.config.traffic import Traffic
from netsim.kernels.jit import announced
from netsim.progress import Progress


def simulate(run: Run, out: Path, progress: Progress) -> dict[str, Any]:
    """Simulate a run on all ranks and return its summary; rank 0 leaves `result.h5` and `summary.json` in `out`."""
    began = time.perf_counter()
    world = parallel.world()
    figures = None
    if isinstance(run.workload, Traffic):
        from netsim.simulate.traffic import simulate_traffic

        simulate_kind = simulate_traffic
    else:
        from netsim.simulate.training import simulate_training

        simulate_kind = simulate_training
    # the flow engine takes seconds and one rank; the packet engine takes all
    if world.rank == 0 or run.network.engine == "packet":
        with announced(lambda: progress.note("compiling kernels; the next run finds them beside the sources")):
            figures = simulate_kind(run, out, progress, began)
    world.barrier()
    return dict(world.bcast(figures))
