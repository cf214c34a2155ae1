"""Layouts of a model on a cluster: which there are, and which of them can be."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from netsim.config import Run
from netsim.config.search import Space
from netsim.config.workload import Training
from workload.check import problems


class Layout(NamedTuple):
    """One way to cut model and batch; dp is what the GPUs leave."""

    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    micro_batch: int
    recompute: Literal["none", "selective", "full"]
    sharding: Literal["none", "optimizer", "gradients", "full"]

    @property
    def name(self) -> str:
        """`tp8 pp4 vpp2 mb1 full optimizer`; sizes of one are left out."""
        sizes = [f"{key}{getattr(self, key)}" for key in ("tp", "pp", "vpp", "cp", "ep") if getattr(self, key) > 1]
        return " ".join([*sizes, f"mb{self.micro_batch}", f"recompute-{self.recompute}", self.sharding])


def divisors(n: int) -> list[int]:
    """The divisors of n in ascending order."""
    return [d for d in range(1, n + 1) if n % d == 0]


def layouts(run: Run, space: Space) -> Iterator[Layout]:
    """All combinations whose sizes fill the GPUs and divide layers, experts and batch; `training` and `problem` know the other rules."""
    training = run.workload
    assert isinstance(training, Training)
    gpus, per_node, model = run.topology.nodes * run.topology.gpus_per_node, run.topology.gpus_per_node, training.model
    tps = space.tp or [d for d in divisors(per_node) if model.heads % d == 0]
    for tp, pp, cp in itertools.product(tps, space.pp or divisors(model.layers), space.cp or divisors(per_node)):
        if gpus % (tp * pp * cp) or model.layers % pp:
            continue
        dp = gpus // (tp * pp * cp)
        per_stage = model.layers // pp
        vpps = [v for v in (space.vpp or divisors(per_stage)) if per_stage % v == 0 and (pp > 1 or v == 1)]
        eps = [e for e in (space.ep or divisors(model.experts or 1)) if (gpus // pp) % (e * tp) == 0 and (model.experts or 1) % e == 0]
        micros = [m for m in space.micro_batch if training.global_batch % (m * dp) == 0]
        for rest in itertools.product(vpps, eps, micros, space.recompute, space.sharding):
            vpp, ep, micro, recompute, sharding = rest
            yield Layout(tp, pp, vpp, cp, ep, micro, recompute, sharding)


def training_of(base: Training, layout: Layout) -> Training:
    """The training of a layout; communication overlaps wherever the sharding and the schedule have it."""
    sharded = layout.sharding != "none"
    parallel = replace(
        base.parallel, tp=layout.tp, pp=layout.pp, vpp=layout.vpp, cp=layout.cp, ep=layout.ep, dp=None,
        etp=1 if base.model.experts else None,
    )  # fmt: skip
    return replace(
        base,
        micro_batch=layout.micro_batch,
        parallel=parallel,
        recompute=replace(base.recompute, granularity=layout.recompute),
        data_parallel=replace(base.data_parallel, sharding=layout.sharding, overlap_grad_reduce=True, overlap_param_gather=sharded),
    )


def problem(run: Run, training: Training) -> str:
    """Why a layout cannot be; empty where it can."""
    gpus, per_node = run.topology.nodes * run.topology.gpus_per_node, run.topology.gpus_per_node
    return next((f"{field}: {sentence}" for field, sentence in problems(training, gpus, per_node)), "")
