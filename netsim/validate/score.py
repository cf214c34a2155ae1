"""How well the predictions do: errors by group, the groups that have an aim, scaling of whole series, and the ranking of layouts."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from netsim.validate.training import Result


class Score(NamedTuple):
    """Errors of a group of rows; NaN where none ran."""

    rows: int
    ran: int
    median: float
    p90: float
    bias: float


class Aim(NamedTuple):
    """A group of rows with the errors that are aimed at; `partial`: rows count too that leave one or two things open."""

    name: str
    median: float
    p90: float
    holds: Callable[[Result], bool]
    partial: bool = False


def _family(*names: str) -> Callable[[Result], bool]:
    return lambda r: r.row["gpu_family"] in names


def _audited(r: Result) -> bool:
    return ("dgxc-benchmarking" in r.row["source"] and "together" not in r.row["source"]) or "mlcommons" in r.row["source"]


def _fp8(r: Result) -> bool:
    return "fp8" in r.row["precision"].lower()


AIMS = (
    Aim(
        "H100 BF16, dense, DGX Cloud and MLPerf", 0.05, 0.12,
        lambda r: _family("H100")(r) and not r.moe and r.row["precision"].lower() == "bf16" and _audited(r),
    ),
    Aim("H100 FP8, dense", 0.08, 0.20, lambda r: _family("H100")(r) and not r.moe and _fp8(r)),
    Aim("A100 (Korthikanti, SC21)", 0.06, 0.15, lambda r: "Korthikanti" in r.row["source"] or "(SC21)" in r.row["framework"], True),
    Aim("B200, GB200, dense", 0.12, 0.30, lambda r: _family("B200", "GB200")(r) and not r.moe),
    Aim("MoE", 0.15, 0.40, lambda r: r.moe),
)  # fmt: skip
SERIES = ("source", "model", "gpu_family", "precision", "tp", "pp", "cp", "ep", "mbs")
"""Columns that rows of one scaling series share."""


def score(results: Iterable[Result]) -> Score:
    """Median and 90th percentile of the absolute error, and the median of the signed one."""
    all_rows = list(results)
    errors = np.array([r.error for r in all_rows if not r.skipped])
    if not len(errors):
        return Score(len(all_rows), 0, float("nan"), float("nan"), float("nan"))
    absolute = np.abs(errors)
    return Score(len(all_rows), len(errors), float(np.median(absolute)), float(np.quantile(absolute, 0.9)), float(np.median(errors)))


def ready(results: Iterable[Result]) -> list[Result]:
    """The rows that are said to be complete and have a step time or tokens per second."""
    timed = ("step_time_s", "tokens_per_s_per_gpu", "tokens_per_s_total")
    return [r for r in results if r.row["simulate_ready"] in ("Y", "") and any(r.row.number(c) for c in timed)]


def grouped(results: Iterable[Result], *columns: str) -> dict[tuple[str, ...], list[Result]]:
    """Results by the values of columns, in order of their first row."""
    groups: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    for result in results:
        groups[tuple(result.row[c] for c in columns)].append(result)
    return dict(groups)


def ranks(values: Sequence[float]) -> np.ndarray:
    """Ranks from 0, ties at their mean."""
    array = np.asarray(values)
    return np.array([(array < v).sum() + ((array == v).sum() - 1) / 2 for v in array])


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Rank correlation; NaN with fewer than three pairs or where one side does not vary."""
    a, b = ranks(one), ranks(other)
    if len(a) < 3 or a.std() == 0 or b.std() == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def per_sample(r: Result) -> tuple[float, float]:
    """Predicted and measured seconds per sequence and billion parameters: layouts of different batches and candidates of different size."""
    size = (r.row.number("gbs") or 1.0) * (r.row.number("params_b") or 1.0)
    return r.predicted_s / size, r.measured_s / size


def layouts(results: Iterable[Result]) -> tuple[int, float]:
    """(rows, Spearman correlation) of the layouts that BLOOM's engineers tried."""
    rows = [r for r in results if "BLOOM" in r.row["model"] and not r.skipped]
    pairs = [per_sample(r) for r in rows]
    return len(rows), spearman([p for p, _ in pairs], [m for _, m in pairs])


def scaling(results: Iterable[Result]) -> list[tuple[str, int, int, float, float]]:
    """Series that differ in GPUs and batch alone: (name, fewest, most, growth of the measured step, growth of the predicted one)."""
    found = []
    for key, rows in grouped([r for r in results if not r.skipped and r.row["gbs"]], *SERIES).items():
        by_size = {r.row.count("num_gpus") or 0: r for r in sorted(rows, key=lambda r: r.row.count("num_gpus") or 0)}
        if len(by_size) < 3:
            continue
        first, *_, last = by_size.values()
        rate = [(r.row.number("gbs") or 1.0) / (r.row.count("num_gpus") or 1) for r in (first, last)]
        grow = rate[0] / rate[1]
        name = f"{key[1]} {key[2]} {key[3]}, {key[0].split(' ')[-1]}"
        found.append(
            (name, min(by_size), max(by_size), last.measured_s / first.measured_s * grow, last.predicted_s / first.predicted_s * grow)
        )
    return found
