"""The co-simulation of a run: build the model, advance GPUs and network together, leave the results."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from netsim import parallel
from netsim.config import Run
from netsim.kernels.structs import Array
from netsim.network.flow.state import state as network_state
from netsim.progress import Progress
from netsim.simulate import gpus, loop, result
from netsim.simulate.model import Model, build
from netsim.units import format_time


def simulate(run: Run, out: Path, progress: Progress) -> dict[str, Any]:
    """Simulate a run on all ranks and return its summary; rank 0 leaves `result.h5` and `summary.json` in `out`."""
    began = time.perf_counter()
    world = parallel.world()
    figures = _simulate(run, out, progress, began) if world.rank == 0 else None
    return dict(world.bcast(figures))


def _simulate(run: Run, out: Path, progress: Progress, began: float) -> dict[str, Any]:
    progress.update(0.0, "building the model")
    model = build(run)
    executor = gpus.state(
        model.work.programs,
        model.groups,
        model.table,
        model.program,
        model.slow,
        _recorded(run, model),
        model.device.card.sms,
        run.simulate.iterations,
        run.simulate.jitter,
        run.seed,
    )
    network = network_state(model.fluid, model.changes, shared=run.network.engine != "ideal")
    limit = np.inf if run.simulate.max_wall is None else began + run.simulate.max_wall * 1e-12
    log, complete = loop.run_flow(
        executor,
        network,
        lambda fraction, t_ps: progress.update(fraction, f"simulated {format_time(t_ps)}"),
        lambda: time.perf_counter() > limit,
    )
    links = result.link_bytes(model, network.moved)
    figures = result.summary(run, model, executor, links, complete)
    figures["wall_s"] = time.perf_counter() - began
    figures["ranks"] = parallel.world().size
    result.write(run, model, executor, log, links, figures, out)
    return figures


def _recorded(run: Run, model: Model) -> Array:
    """Which simulated GPUs keep all their rows."""
    chosen = np.zeros(len(model.program), bool)
    wanted = run.telemetry.operations
    if wanted == "all":
        chosen[:] = True
    elif wanted == "representative":
        chosen[np.unique(model.program, return_index=True)[1]] = True
    else:
        chosen[model.gpu_of[np.array(wanted, np.int64)]] = True
    return chosen
