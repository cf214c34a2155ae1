"""Lookup: exact row, else kriging among measured rows, else roofline with the device's efficiency.

A kernel whose own family has no rows borrows one that has, through named ratios (compute/tables/ratios.csv): backward GEMM layouts from
forward, attention backward from forward, block-scaled precisions from fp8, grouped GEMMs from dense ones. Each ratio's spread adds to the
uncertainty.
"""

from collections.abc import Iterator, Sequence
from math import exp, hypot, log
from typing import NamedTuple

import numpy as np

from compute.device import FLOOR, Device, ratio_of
from compute.families import coordinates, family_of
from compute.kernels import GEMM_KINDS, Kernel, flops, ideal_s, moved_bytes, peak_of
from compute.kriging import DIMS, estimate
from netsim.units import PS_PER_S

EXACT, INTERPOLATED, ROOFLINE = 0, 1, 2
"""Where an answer comes from: a measured row of this shape, measured neighbours, or roofline with the device's efficiency."""
ROOFLINE_SIGMA = 0.3
"""Relative standard deviation of a roofline answer: what such answers miss the tables by (docs/compute.md)."""

BACKWARD = ("gemm.dgrad", "gemm.wgrad")
"""Ratios for other operand layouts and for adding into an fp32 gradient: time that comes on top of a GEMM at the power limit."""


class Times(NamedTuple):
    """Durations of K kernels."""

    t_ps: np.ndarray  # int64[K]
    sigma: np.ndarray  # float64[K] relative standard deviation
    source: np.ndarray  # int8[K] EXACT, INTERPOLATED or ROOFLINE


class Stand(NamedTuple):
    """A kernel whose family has rows, and the ratio that leads from its time to the wanted one; `layout` is the part of a backward GEMM."""

    kernel: Kernel
    family: int
    log_ratio: float
    sigma: float
    own: bool
    layout: float


def stand_in(device: Device, kernel: Kernel) -> Stand | None:
    """The kernel itself where its family has rows, else the nearest one that has, else None."""
    for other, names in _relatives(kernel):
        family = device.family.get(family_of(other))
        if family is None:
            continue
        found = [ratio_of(device.scopes, device.ratios, name) for name in names]
        if all(ratio is not None for ratio in found):
            layout = sum(log(r.value) for name, r in zip(names, found, strict=True) if r and name.startswith(BACKWARD))
            return Stand(other, family, sum(log(r.value) for r in found if r), hypot(*(r.sigma for r in found if r)), not names, layout)
    return None


def _relatives(kernel: Kernel) -> Iterator[tuple[Kernel, tuple[str, ...]]]:
    """Kernels that resemble this one, nearest first, each with the names of the ratios that lead from it to this one."""
    dtype: str | None = kernel.dtype if kernel.kind in GEMM_KINDS else "bf16"
    steps: tuple[str, ...] = ()
    while dtype is not None:
        same = kernel._replace(dtype=dtype)
        yield same, steps
        for other, names in _siblings(same):
            yield other, (*steps, *names)
        narrow, dtype = dtype, {"nvfp4": "fp8", "mxfp8": "fp8", "fp8_blockwise": "fp8", "fp8": "bf16"}.get(dtype)
        steps = (*steps, f"gemm.{narrow}")


def _siblings(kernel: Kernel) -> Iterator[tuple[Kernel, tuple[str, ...]]]:
    if kernel.kind == "gemm" and kernel.direction != "fwd":
        yield (
            kernel._replace(direction="fwd", accumulate=False),
            (f"gemm.{kernel.direction}" + (".fp32_grad" if kernel.accumulate else ""),),
        )
    elif kernel.kind == "grouped_gemm":
        dense = kernel._replace(kind="gemm", groups=1)
        names = (f"grouped_gemm.{kernel.direction}",)
        yield dense, names
        for other, more in _siblings(dense):
            yield other, (*names, *more)
    elif kernel.kind == "attention":
        forward, full = ("attention.bwd",), ("attention.full",)
        if kernel.direction == "bwd":
            yield kernel._replace(direction="fwd"), forward
        if not kernel.causal:
            yield kernel._replace(causal=True), full
            if kernel.direction == "bwd":
                yield kernel._replace(causal=True, direction="fwd"), (*full, *forward)


def times(device: Device, kernels: Sequence[Kernel], sustained: bool = True) -> Times:
    """Return the duration of every kernel, how sure it is, and where it comes from.

    `sustained`: hold GEMMs to the rates that the power limit allows in the long run (tables may have been measured in short bursts).
    """
    stands = [stand_in(device, kernel) for kernel in kernels]
    query = np.array([coordinates(device.card, s.kernel) if s else (0.0,) * DIMS for s in stands], dtype=float).reshape(-1, DIMS)
    family = np.array([s.family if s else -1 for s in stands], dtype=np.int64)
    mean, variance, hit = estimate(query, family, device.ptr, device.x, device.y)
    own_sigma = np.where(hit >= 0, FLOOR, np.sqrt(variance * device.slope[family])) if len(device.slope) else np.zeros(len(kernels))
    seconds, sigma, source = np.empty(len(kernels)), np.empty(len(kernels)), np.empty(len(kernels), np.int8)
    for i, (kernel, stand) in enumerate(zip(kernels, stands, strict=True)):
        if stand is None:
            seconds[i], sigma[i], source[i] = roofline_s(device, kernel), ROOFLINE_SIGMA, ROOFLINE
        else:
            seconds[i], sigma[i] = _scaled(device, kernel, stand, mean[i], own_sigma[i])
            source[i] = EXACT if stand.own and hit[i] >= 0 and device.exact[hit[i]] else INTERPOLATED
        if sustained and kernel.kind in GEMM_KINDS and kernel.dtype in device.card.sustained:
            layout = exp(stand.layout) if stand else 1.0
            seconds[i] = max(seconds[i], layout * flops(kernel) / device.card.sustained[kernel.dtype])
    return Times(np.rint(seconds * PS_PER_S).astype(np.int64), np.hypot(sigma, device.card.projection_sigma), source)


def _scaled(device: Device, kernel: Kernel, stand: Stand, mean: float, own_sigma: float) -> tuple[float, float]:
    """Seconds and relative sigma of a kernel from the log efficiency of its stand-in."""
    ideal = ideal_s(device.card, stand.kernel)
    seconds = ideal * exp(mean)
    if device.fused[stand.family]:
        bare = max(seconds - quantise_s(device, stand.kernel), ideal)
        own_sigma *= seconds / bare
        seconds = bare
    return seconds / ideal * ideal_s(device.card, kernel) * exp(stand.log_ratio), hypot(own_sigma, stand.sigma)


def quantise_s(device: Device, kernel: Kernel) -> float:
    """Seconds that fused fp8 rows spend on turning bf16 activations into fp8 (read 2 bytes, write 1), which training counts apart."""
    empty, rate = (ratio_of(device.scopes, device.ratios, f"gemm.fp8.{name}") for name in ("quantise_us", "quantise_gbps"))
    return empty.value * 1e-6 + 3.0 * kernel.m * kernel.k / (rate.value * 1e9) if empty and rate else 0.0


def roofline_s(device: Device, kernel: Kernel) -> float:
    """Seconds by roofline with the shares of peak and bandwidth that large kernels of the device reach."""
    card = device.card
    share = card.attention_efficiency if kernel.kind == "attention" else card.gemm_efficiency
    efficiency = card.memory_efficiency.get(
        f"{kernel.kind}.{kernel.direction}", card.memory_efficiency.get(kernel.kind, card.hbm_efficiency)
    )
    busy = max(flops(kernel) / (peak_of(card, kernel.dtype) * share), moved_bytes(kernel) / (card.hbm * efficiency))
    return busy + card.launch / PS_PER_S
