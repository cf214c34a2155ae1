"""Miss report: shares, heaviest shapes and interval by hand."""

import numpy as np
import pytest

from compute.api import ROOFLINE, Kernel, report, times
from compute.report import NINE_IN_TEN
from tests.test_compute_lookup import CARD, gemm, toy

ROWS = [gemm(n, 0.5) for n in (1024, 2048, 4096, 8192)]
KERNELS = [ROWS[2].kernel, Kernel("gemm", m=3000, n=3000, k=3000), Kernel("norm", nbytes=10**8)]


def told(device, kernels, counts):
    return report(device.card, kernels, times(device, kernels), counts)


def test_shares_and_interval():
    device = toy(ROWS, systematic=0.1)
    answer, counts = times(device, KERNELS), np.array([3, 5, 100])
    found = report(device.card, KERNELS, answer, counts)
    weight = counts * answer.t_ps
    assert found.total_ps == weight.sum()
    assert (found.exact, found.interpolated, found.roofline) == pytest.approx(tuple(weight / weight.sum()))
    half = NINE_IN_TEN * np.sqrt(((weight * answer.sigma) ** 2).sum() + (0.1 * weight.sum()) ** 2)
    assert (found.low_ps, found.high_ps) == pytest.approx((weight.sum() - half, weight.sum() + half))


def test_the_heaviest_unmeasured_shapes_come_first_and_measured_ones_never():
    kernels = [*KERNELS, *(Kernel("norm", nbytes=10**6 * i) for i in range(1, 20))]
    found = told(toy(ROWS), kernels, [1] * len(kernels))
    shares = [missed.share for missed in found.missed]
    assert len(shares) == 10 and shares == sorted(shares, reverse=True)
    assert ROWS[2].kernel not in [missed.kernel for missed in found.missed]
    assert found.missed[1].source == ROOFLINE or found.missed[0].source == ROOFLINE


def test_what_projection_adds_is_shared_by_all_kernels():
    measured, projected = (told(toy(ROWS, systematic=0.0, projection_sigma=s), KERNELS, [1, 1, 1]) for s in (0.0, 0.2))
    spread = ((projected.high_ps - projected.total_ps) / NINE_IN_TEN) ** 2 - ((measured.high_ps - measured.total_ps) / NINE_IN_TEN) ** 2
    assert spread == pytest.approx((0.2 * measured.total_ps) ** 2, rel=1e-3)


def test_nothing_to_compute():
    found = told(toy(ROWS), [], [])
    assert (found.total_ps, found.low_ps, found.high_ps, found.missed) == (0, 0, 0, ()) and CARD.name == "toy"
