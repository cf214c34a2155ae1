"""Lookup: exact row, else kriging among measured rows, else roofline with the device's efficiency.

Each table of a card gives one answer: from the kernel's own family, or where the table has no such rows from the nearest relative's through
named ratios (compute/tables/ratios.csv): backward GEMM layouts from forward, attention backward from forward, block-scaled precisions from
fp8, grouped GEMMs from dense ones. The ratio's spread adds to the uncertainty, and so does, for all tables but the last, what campaigns on
one GPU disagree by. The surest answer counts.
"""

from collections.abc import Iterator, Sequence
from math import exp, hypot, log
from typing import NamedTuple

import numpy as np

from compute.device import FLOOR, Device, ratio_of
from compute.families import coordinates, family_of
from compute.kernels import GEMM_KINDS, Kernel, compute_s, empty_s, flops, ideal_s, moved_bytes
from compute.kriging import DIMS, estimate
from netsim.units import PS_PER_S

EXACT, INTERPOLATED, ROOFLINE = 0, 1, 2
"""Where an answer comes from: a measured row of this shape, measured neighbours, or roofline with the device's efficiency."""
BETWEEN, NONE = -1, -2
"""In place of the row of a kernel: rows near it, and no family that knows of it."""
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
    """A family with rows of a kernel or of a relative of it, and the ratio that leads from its time to the wanted one.

    sigma: of the ratio. own: the family is the kernel's. layout: the part of the ratio that is a backward layout's.
    """

    kernel: Kernel
    family: int
    log_ratio: float
    sigma: float
    own: bool
    layout: float


def stands(device: Device, kernel: Kernel) -> Iterator[Stand]:
    """The nearest family in each table of the card, of the last table first; none where a table has no relative that ratios lead from."""
    relatives = [(other, family_of(other), names) for other, names in _relatives(kernel)]
    for age, families in enumerate(device.family):
        for other, name, ratios in relatives:
            found = [ratio_of(device.scopes, device.ratios, ratio) for ratio in ratios]
            if name in families and None not in found:
                known = [ratio for ratio in found if ratio is not None]
                layout = sum(log(r.value) for ratio, r in zip(ratios, known, strict=True) if ratio.startswith(BACKWARD))
                sigma = hypot(*(r.sigma for r in known), device.card.systematic if age else 0.0)
                yield Stand(other, families[name], sum(log(r.value) for r in known), sigma, not ratios, layout)
                break


def _relatives(kernel: Kernel) -> Iterator[tuple[Kernel, tuple[str, ...]]]:
    """Kernels that resemble this one, nearest first, each with the names of the ratios that lead from it to this one."""
    dtype: str | None = "bf16" if kernel.kind == "attention" else kernel.dtype
    steps: tuple[str, ...] = ()
    while dtype is not None:
        same = kernel._replace(dtype=dtype)
        yield same, steps
        for other, names in _siblings(same):
            yield other, (*steps, *names)
        if kernel.kind not in GEMM_KINDS:
            return
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
    seconds, sigma, layout, row = _best(device, kernels)
    for i, kernel in enumerate(kernels):
        if sustained and kernel.kind in GEMM_KINDS and kernel.dtype in device.card.sustained:
            seconds[i] = max(seconds[i], exp(layout[i]) * flops(kernel) / device.card.sustained[kernel.dtype])
    source = np.array([ROOFLINE if r == NONE else EXACT if r >= 0 and device.exact[r] else INTERPOLATED for r in row], dtype=np.int8)
    return Times(np.rint(seconds * PS_PER_S).astype(np.int64), np.hypot(sigma, device.card.projection_sigma), source)


def leave_one_out(device: Device) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Look up every row as if it were not there: log errors (prediction - measured), sigma, and whether any other row tells of it.

    Rows that hold quantisation are compared with it. `False` where another library was measured at the very shape: that is no test.
    """
    seconds, sigma, _, row = _best(device, device.kernels, np.arange(len(device.y)))
    fused = np.repeat(device.fused, np.diff(device.ptr))
    ideal = np.array([ideal_s(device.card, kernel) for kernel in device.kernels])
    spent = np.array([quantise_s(device, kernel) if f else 0.0 for kernel, f in zip(device.kernels, fused, strict=True)])
    measured = np.maximum(np.exp(device.y) * ideal, np.where(fused, ideal + spent, 0.0))
    return np.log((seconds + spent) / measured), sigma * seconds / (seconds + spent), row == BETWEEN


def _best(device: Device, kernels: Sequence[Kernel], skip: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    """Surest answer to each kernel: seconds, sigma, log of the layout's ratio, and the row of this very kernel (or BETWEEN, NONE).

    skip: int64[K], a row to leave out for each.
    """
    known = [list(stands(device, kernel)) for kernel in kernels]
    flat = [stand for some in known for stand in some]
    of = [i for i, some in enumerate(known) for _ in some]
    query = np.array([coordinates(device.card, stand.kernel) for stand in flat], dtype=float).reshape(-1, DIMS)
    family = np.array([stand.family for stand in flat], dtype=np.int64)
    mean, variance, hit = estimate(query, family, device.ptr, device.x, device.y, None if skip is None else skip[of])
    own_sigma = np.where(hit >= 0, FLOOR, np.sqrt(variance * device.slope[family])) if len(device.slope) else np.zeros(len(flat))
    seconds = np.array([roofline_s(device, kernel) for kernel in kernels])
    sigma, layout, row = np.full(len(kernels), ROOFLINE_SIGMA), np.zeros(len(kernels)), np.full(len(kernels), NONE)
    for j, (i, stand) in enumerate(zip(of, flat, strict=True)):
        took, unsure = _scaled(device, kernels[i], stand, mean[j], own_sigma[j])
        if row[i] == NONE or unsure < sigma[i]:
            seconds[i], sigma[i], layout[i] = took, unsure, stand.layout
            row[i] = hit[j] if stand.own and hit[j] >= 0 else BETWEEN
    return seconds, sigma, layout, row


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
    return max(compute_s(card, kernel) / share, moved_bytes(kernel) / (card.hbm * efficiency)) + empty_s(card, kernel)
