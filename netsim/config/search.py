"""A search file: a base run, which layouts are tried, what a GPU may hold, and which continuous knobs are turned afterwards."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from netsim.config.fields import Count, Positive, Share, can_name_a_folder


@dataclass(frozen=True)
class Space:
    """Values that are tried for each part of a layout; left out, all that divide the GPUs (tp up to a node), the layers and the batch.

    tp, pp, vpp, cp, ep: sizes; dp is what is left. micro_batch: sequences per forward pass.
    recompute: none, selective (the base's modules), full (whole layers). sharding: as data_parallel.sharding.
    """

    tp: tuple[Count, ...] = ()
    pp: tuple[Count, ...] = ()
    vpp: tuple[Count, ...] = ()
    cp: tuple[Count, ...] = ()
    ep: tuple[Count, ...] = ()
    micro_batch: tuple[Count, ...] = (1, 2, 4)
    recompute: tuple[Literal["none", "selective", "full"], ...] = ("none", "selective", "full")
    sharding: tuple[Literal["none", "optimizer", "gradients", "full"], ...] = ("optimizer", "full")


@dataclass(frozen=True)
class Knob:
    """A continuous knob: a field of the run file and its bounds.

    log: ratios count, not differences. whole: whole numbers only.
    """

    field: str
    low: Positive
    high: Positive
    log: bool = True
    whole: bool = False

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) for what single fields cannot say."""
        if self.low >= self.high:
            yield "high", f"expected more than low ({self.low:g}); got {self.high:g}"


@dataclass(frozen=True)
class Search:
    """A search for the best layout of a model on a cluster.

    base: run file that says model, batch and cluster, relative to this file. set: fields of it that differ. space: the layouts.
    memory: share of the GPU's memory that a layout may take. refine: layouts that the flow engine simulates, the best by estimate.
    margin: a layout is not refined if its estimate is slower than the best estimate by more than this share.
    knobs: turned by Bayesian optimisation (optuna) for the best layout, `trials` simulations for the `objective`s, less being better.
    """

    name: str
    base: str
    space: Space = Space()
    memory: Share = 0.94
    refine: Count = 24
    margin: Positive = 0.5
    knobs: tuple[Knob, ...] = ()
    trials: Count = 20
    objectives: tuple[str, ...] = ("iteration_time_s",)
    set: dict[str, Any] = dataclasses.field(default_factory=dict)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) for what single fields cannot say."""
        if not can_name_a_folder(self.name):
            yield "name", f"expected a name that can be a folder's; got {self.name!r}"
        if not self.objectives:
            yield "objectives", "expected a metric of a run, such as iteration_time_s; got none"
