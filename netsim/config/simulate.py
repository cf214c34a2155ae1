"""Section `simulate` of a run file: how the simulation itself is carried out."""

from dataclasses import dataclass
from typing import Literal

from netsim.config.fields import Count, Index, Positive, Share, Time


@dataclass(frozen=True)
class SlowGpu:
    """One GPU that computes slower than the others.

    gpu: its number, node-major from 0.
    factor: its kernel times are multiplied by this; 1.2 is 20 % slower.
    """

    gpu: Index
    factor: Positive


@dataclass(frozen=True)
class Simulate:
    """How the simulation is carried out.

    fold: auto simulates one of several GPUs and replicas where they provably do the same; off simulates every one.
    iterations: training iterations (or repetitions of the traffic) one after another.
    jitter: standard deviation of kernel times over GPUs, relative to their mean; drawn from the run's seed.
    slow_gpus: GPUs that are slower than the others.
    max_wall: wall-clock time after which the run stops and writes what it has; none: no limit.
    """

    fold: Literal["auto", "off"] = "auto"
    iterations: Count = 1
    jitter: Share = 0.0
    slow_gpus: tuple[SlowGpu, ...] = ()
    max_wall: Time | None = None
