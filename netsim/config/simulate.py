"""Section `simulate` of a run file: how the simulation itself is carried out."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from netsim.config.fields import Count, Index, Positive, Share, Sigma, Time


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

    GPUs differ in three ways, all of them factors on kernel times: `stragglers` and `slow_gpus` make a GPU slow for the whole run,
    `jitter` makes single kernels fast or slow. Random ones are drawn from the run's seed.

    fold: auto simulates one of several GPUs and replicas where they provably do the same; off simulates every one.
    iterations: training iterations one after another.
    stragglers: each GPU is slower than the fastest by a factor of its own, half-lognormal over GPUs: exp(|s z|), z standard normal.
    slow_gpus: GPUs that are slower by a factor that is given, on top.
    jitter: relative standard deviation of every kernel's time, drawn anew for each GPU, kernel and iteration; the mean stays.
    partition: with more ranks than rail planes that share nothing: auto lets ranks share a plane once its measured work would pay for
    handing packets over, cut from the start, whole never. Results are the same.
    nics_per_rank: where ranks share a rail plane, each has so many NICs or more: a NIC at line rate is worth about a microsecond of work
    between two hand-overs, which cost tens of microseconds.
    max_wall: wall-clock time after which the run stops and writes what it has; none: no limit.
    """

    fold: Literal["auto", "off"] = "auto"
    iterations: Annotated[int, Field(ge=1, le=100_000_000, strict=True)] = 1
    stragglers: Sigma = 0.0
    slow_gpus: tuple[SlowGpu, ...] = ()
    jitter: Share = 0.0
    partition: Literal["auto", "cut", "whole"] = "auto"
    nics_per_rank: Count = 128
    max_wall: Time | None = None
