"""Miss report: how much of the compute time rests on measurements, and what the uncertainties make of the sum.

Errors of single shapes are independent and partly cancel; what a whole table shares (clocks, software, campaign: `systematic` of the device
card; a projection's error) does not. The interval holds nine cases in ten: total +- 1.645 * sqrt(sum of single variances + (systematic *
total)^2).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from compute.kernels import Kernel
from compute.lookup import EXACT, INTERPOLATED, ROOFLINE, Times
from netsim.config.compute import DeviceCard

NINE_IN_TEN = 1.645


class Missed(NamedTuple):
    """One shape that no row of the table holds."""

    kernel: Kernel
    source: int
    t_ps: int
    runs: int
    share: float
    sigma: float


class MissReport(NamedTuple):
    """Shares of compute time by origin, the heaviest unmeasured shapes, and the interval of the total.

    The interval is of the sum of kernel times; scale an iteration's compute part by low / total and high / total.
    """

    total_ps: int
    low_ps: int
    high_ps: int
    exact: float
    interpolated: float
    roofline: float
    missed: tuple[Missed, ...]


def report(card: DeviceCard, kernels: Sequence[Kernel], answer: Times, counts: Sequence[int], worst: int = 10) -> MissReport:
    """Weigh the answers to kernels by how often each runs; `missed` holds the `worst` shapes on which most unmeasured time rests."""
    weight = np.asarray(counts, dtype=float) * answer.t_ps
    total = float(weight.sum())
    by_source = [float(weight[answer.source == s].sum()) / total if total else 0.0 for s in (EXACT, INTERPOLATED, ROOFLINE)]
    single = np.maximum(answer.sigma**2 - card.projection_sigma**2, 0.0)
    shared = np.hypot(card.systematic, card.projection_sigma)
    deviation = NINE_IN_TEN * float(np.sqrt((weight**2 * single).sum() + (shared * total) ** 2))
    order = [i for i in np.argsort(-weight, kind="stable") if answer.source[i] != EXACT and weight[i] > 0][:worst]
    missed = tuple(
        Missed(kernels[i], int(answer.source[i]), int(answer.t_ps[i]), int(counts[i]), weight[i] / total, float(answer.sigma[i]))
        for i in order
    )
    return MissReport(
        round(total), round(max(total - deviation, 0.0)), round(total + deviation), by_source[0], by_source[1], by_source[2], missed
    )
