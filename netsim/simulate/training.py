"""A training iteration, from run file to result files."""

from pathlib import Path
from typing import Any

import numpy as np

from netsim import launch, parallel
from netsim.config import Run
from netsim.kernels.structs import Array
from netsim.network.flow.state import state as network_state
from netsim.progress import Progress
from netsim.simulate import gpus, loop, record, result
from netsim.simulate.certainty import certainty
from netsim.simulate.model import Model, build
from netsim.simulate.stopping import Stopping, leave
from netsim.telemetry.spool import Spool
from netsim.units import format_time


def simulate_training(run: Run, out: Path, progress: Progress, began: float) -> dict[str, Any]:
    """Simulate on the configured engine; the first rank writes. `began` is when the wall clock started (perf_counter)."""
    progress.update(0.0, "building the model")
    model = build(run)
    by_packets = run.network.engine == "packet"
    if by_packets:
        from netsim.simulate import packets  # a tenth of a second that other engines do without
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
        packets.external(model, run.network.payload) if by_packets else None,
        _kept(run),
    )
    network = network_state(model.fluid, model.changes, shared=run.network.engine != "ideal")
    world = parallel.world()
    spool = Spool(out, world.rank)
    if by_packets:
        world.barrier()  # the first rank has made the folder before any other writes into it
    if world.rank == 0:
        with spool.clock:
            made, executor = record.begin(run, model, executor, spool)
    limit = np.inf if run.simulate.max_wall is None else began + run.simulate.max_wall * 1e-12

    def report(fraction: float, t_ps: int) -> None:
        progress.update(fraction, f"simulated {format_time(t_ps)}")

    played = None
    with Stopping(limit) as stop:
        if by_packets:
            played = packets.play(run, model, executor, network, report, stop, spool)
            log, complete = played.log, played.complete
        else:
            log, complete = loop.run_flow(executor, network, report, stop, spool.log)
    links = result.link_bytes(model, network.moved)
    if played is not None:
        links = links + played.counters["bytes"]
    figures = result.summary(run, model, executor, links, complete)
    if played is not None:
        figures |= {"parallel": played.parallel, "packet_hops": int(played.counters["packets"].sum())}
    if run.compute is not None and figures["iteration_time_s"] > 0:
        figures |= certainty(model, figures["compute_s"] + figures["optimizer_s"], figures["iteration_time_s"])
    figures["ranks"] = launch.launched().size
    if world.rank == 0:
        with spool.clock:
            done = record.happened(executor, log, network.moved, complete, played)
        figures |= record.write(made, done, figures, out, spool, began)
    leave(int(world.allgather(np.array([stop.signal])).max()) if by_packets else stop.signal)
    return figures


def _kept(run: Run) -> Array:
    """Where operations of each iteration are recorded, int32[iterations]; the latest may take the place of those before."""
    wanted, n = run.telemetry.iterations, run.simulate.iterations
    if isinstance(wanted, tuple):
        place = np.full(n, -1, np.int32)
        place[sorted(wanted)] = np.arange(len(wanted))
        return place
    return np.arange(n, dtype=np.int32) if wanted == "all" else np.zeros(n, np.int32)


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
