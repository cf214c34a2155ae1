"""Simulate cases in worker processes, without files: the model is built, executed on the flow engine, and its summary kept."""

import copy
import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from netsim.errors import InputError
from netsim.validate.models import shape

FITS = 1.0
"""Share of a GPU's memory that a run may fill before recomputation is assumed."""
LIMIT_S = 120.0
"""Processor time after which a row is given up."""
ROUNDS = 6
"""Microbatches per pipeline stage from which on a step is extrapolated: between 2 and 3 per stage it has grown by its steady pace."""
LINEAR = ("iteration_time_s", "compute_s", "bubble_s", "optimizer_s", "other_s")


class Outcome(NamedTuple):
    """What became of a case: the summary of its run, what had to be assumed on the way, or why there is none."""

    summary: dict[str, Any]
    assumed: list[str]
    skipped: str


def simulate(configs: Iterable[str], jobs: int) -> Iterator[Outcome]:
    """Simulate configurations (JSON texts) on `jobs` processes, in order."""
    if jobs == 1:
        yield from map(outcome, configs)
        return
    with ProcessPoolExecutor(jobs, initializer=_single) as pool:
        yield from pool.map(outcome, configs, chunksize=1)


def _single() -> None:
    """A worker has one thread, and ends at once when it is told to: what it has is of no use to anybody."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ["NUMBA_NUM_THREADS"] = "1"


def outcome(text: str) -> Outcome:
    """Simulate one configuration; where recomputation is not stated and the memory does not hold it, with as little as fits."""
    config = json.loads(text)
    assumed: list[str] = []
    try:
        summary = _step(config, assumed)
    except (InputError, ValueError, NotImplementedError) as error:
        return Outcome({}, assumed, str(error).splitlines()[0].replace("configuration:1:1: ", ""))
    except (AssertionError, IndexError, KeyError, ZeroDivisionError) as error:
        return Outcome({}, assumed, f"the simulator failed: {type(error).__name__}: {str(error).partition(':')[0]}"[:120])
    skipped = "" if summary["complete"] else f"not done within {LIMIT_S:g} s"
    return Outcome(summary, assumed, skipped)


def _step(config: dict[str, Any], assumed: list[str]) -> dict[str, Any]:
    """Summary of one step; a long one follows from two short ones, since every further round of microbatches takes the same time."""
    work = config["workload"]
    layout, topology = work["parallel"], config["topology"]
    dp = topology["nodes"] * topology["gpus_per_node"] // (layout["tp"] * layout["pp"] * layout["cp"])
    per_round = max(2, layout["pp"]) * dp * work["micro_batch"]
    batch = work["global_batch"]
    if batch <= ROUNDS * per_round:
        return _fitted(config, assumed)
    few, more = (_fitted(config | {"workload": work | {"global_batch": n * per_round}}, assumed) for n in (2, 3))
    rounds = batch / per_round - 2
    for name in LINEAR:
        more[name] = few[name] + rounds * (more[name] - few[name])
    more["exposed_s"] = {
        name: few["exposed_s"][name] + rounds * (more["exposed_s"][name] - few["exposed_s"][name]) for name in few["exposed_s"]
    }
    more["complete"] = few["complete"] and more["complete"]
    return more


def _fitted(config: dict[str, Any], assumed: list[str]) -> dict[str, Any]:
    from netsim.config.load import from_data
    from netsim.simulate.model import build

    model, run = None, None
    for said, section in _ladder(config["workload"]):
        trial = copy.deepcopy(config)
        if section:
            trial["workload"]["recompute"] = section
        run = from_data(trial)
        model = build(run)
        peak = max(stage.peak for stage in model.work.memory)
        assumed[:] = [said] if said else []
        if peak <= FITS * model.device.card.memory:
            break
    assert model is not None and run is not None
    return execute(run, model)


def _ladder(workload: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """What to recompute, least first; a row that states it leaves no choice."""
    if "recompute" in workload:
        return [("", {})]
    model = workload["model"]
    modules = ["layernorm", "moe_act" if shape(model, "experts") else "mlp"]
    modules += ["mla_up_proj"] if shape(model, "attention") == "mla" else []
    return [
        ("", {}),
        (f"{', '.join(modules)} recomputed, to fit the memory", {"granularity": "selective", "modules": modules}),
        ("every layer recomputed, to fit the memory", {"granularity": "full"}),
    ]


def execute(run: Any, model: Any) -> dict[str, Any]:
    """Run a model to its end on the flow engine and return its summary."""
    from netsim.network.flow.state import state as network_state
    from netsim.simulate import gpus, loop, result

    limit = time.process_time() + LIMIT_S
    silent = np.zeros(len(model.program), bool)
    executor = gpus.state(
        model.work.programs, model.groups, model.table, model.program, model.slow, silent, model.device.card.sms, 1, 0.0, run.seed
    )
    network = network_state(model.fluid, model.changes, shared=run.network.engine != "ideal")
    _, complete = loop.run_flow(executor, network, lambda fraction, t_ps: None, lambda: time.process_time() > limit)
    return result.summary(run, model, executor, result.link_bytes(model, network.moved), complete)
