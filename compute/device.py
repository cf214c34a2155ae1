"""A GPU ready for lookups: its card, its measured rows by family, and how far interpolation within each family can be trusted."""

from collections.abc import Iterable
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np

from compute import tables
from compute.families import coordinates, family_of
from compute.kernels import Kernel, ideal_s
from compute.kriging import DIMS, estimate
from netsim.config.compute import Compute, DeviceCard
from netsim.errors import InputError

TRAINING_LIBRARIES = {"ampere": "flash-attn 2", "hopper": "cudnn", "blackwell": "cudnn"}
"""Attention that Transformer Engine picks by itself on each architecture; rows of others are brought to its level by a ratio."""
FLOOR = 0.01
"""Relative standard deviation of a repeated measurement."""


class Device(NamedTuple):
    """A GPU: figures, and N measured rows in F families, each from one table.

    family: numbers of the families of each table by name, the last table first; x float64[N, DIMS] coordinates; y float64[N]
    log(time / ideal time); ptr int64[F + 1] rows of a family; slope float64[F] variance of y per unit of distance; exact bool[N]: the row
    is of the very kernel, not of a stand-in library.
    """

    card: DeviceCard
    family: tuple[dict[str, int], ...]
    ptr: np.ndarray
    x: np.ndarray
    y: np.ndarray
    slope: np.ndarray
    exact: np.ndarray
    fused: np.ndarray  # bool[F] times hold the quantisation of activations
    scopes: tuple[str, ...]  # where ratios are looked for, nearest first
    ratios: dict[tuple[str, str], tables.Ratio]
    kernels: tuple[Kernel, ...]  # of the rows


def load_device(config: Compute) -> Device:
    """Read the tables of the configured GPU; `InputError` where one is missing or malformed."""
    return build(config.device, [tables.read(name) for name in config.device.tables])


def build(card: DeviceCard, sheets: list[list[tables.Row]], ratios: dict[tuple[str, str], tables.Ratio] | None = None) -> Device:
    """Sort the rows of each table into families and calibrate each by leave-one-out; `InputError` for rows without sizes."""
    ratios = tables.read_ratios() if ratios is None else ratios
    scopes = (*(Path(name).stem for name in reversed(card.tables)), card.arch, "*")
    if wrong := [f"compute.device.tables: {card.name}: cannot place {row.kernel}" for s in sheets for row in s if not _sane(row.kernel)]:
        raise InputError(wrong)

    def shift(row: tables.Row) -> float:
        return library_shift(card, scopes, ratios, row)

    family: list[dict[str, int]] = []
    groups: list[list[tables.Row]] = []
    for sheet in reversed(sheets):
        found = by_family(sorted(sheet, key=lambda row: shift(row) != 0.0))  # a hit finds the very kernel first
        family.append({name: len(groups) + i for i, name in enumerate(found)})
        groups += found.values()
    flat = [row for rows in groups for row in rows]
    ptr = np.cumsum([0] + [len(rows) for rows in groups])
    x = np.array([coordinates(card, row.kernel) for row in flat], dtype=float).reshape(-1, DIMS)
    y = np.array([log(row.time_us * 1e-6 / ideal_s(card, row.kernel)) + shift(row) for row in flat])
    exact = np.array([shift(row) == 0.0 and not card.projected_from for row in flat], dtype=bool)
    fused = np.array([any(row.fused == "quantise" for row in rows) for rows in groups], dtype=bool)
    slope = calibrate(ptr, x, y)
    return Device(card, tuple(family), ptr, x, y, slope, exact, fused, scopes, ratios, tuple(row.kernel for row in flat))


def by_family(rows: Iterable[tables.Row]) -> dict[str, list[tables.Row]]:
    """Rows by the name of their family, in their order."""
    found: dict[str, list[tables.Row]] = {}
    for row in rows:
        found.setdefault(family_of(row.kernel), []).append(row)
    return found


def _sane(kernel: Kernel) -> bool:
    if kernel.kind in ("gemm", "grouped_gemm"):
        return min(kernel.m, kernel.n, kernel.k, kernel.groups) >= 1
    if kernel.kind == "attention":
        return min(kernel.batch, kernel.seq_q, kernel.seq_kv, kernel.heads, kernel.kv_heads, kernel.head_dim) >= 1
    return kernel.nbytes >= 1


def ratio_of(scopes: tuple[str, ...], ratios: dict[tuple[str, str], tables.Ratio], name: str) -> tables.Ratio | None:
    """The named ratio of the nearest scope that has it."""
    return next((ratios[name, scope] for scope in scopes if (name, scope) in ratios), None)


def library_shift(card: DeviceCard, scopes: tuple[str, ...], ratios: dict[tuple[str, str], tables.Ratio], row: tables.Row) -> float:
    """What to add to the log time of an attention row so that it speaks of the library that training uses; 0 for all others."""
    if row.kernel.kind != "attention" or row.library in ("", TRAINING_LIBRARIES.get(card.arch)):
        return 0.0
    ratio = ratio_of(scopes, ratios, f"attention.{row.library}")
    return log(ratio.value) if ratio else 0.0


def calibrate(ptr: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Variance of y per unit of unscaled kriging variance, family by family, from predicting every row from the others of its family."""
    family = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    mean, variance, _ = estimate(x, family, ptr, x, y, np.arange(len(y)))
    error, slope = mean - y, np.empty(len(ptr) - 1)
    for f in range(len(slope)):
        part = slice(ptr[f], ptr[f + 1])
        few = ptr[f + 1] - ptr[f] < 4  # too few to judge: assume a spread of 20 percent per factor e
        apart = variance[part] > 0  # not where two libraries were measured at the same shape
        slope[f] = 0.04 if few or not apart.any() else max(float(np.mean(error[part][apart] ** 2 / variance[part][apart])), FLOOR**2)
    return slope
