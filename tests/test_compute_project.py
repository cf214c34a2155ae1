"""Projection: scaling laws of single rows, files that load again, and the error between GPUs that were measured."""

from dataclasses import replace

import numpy as np
import pytest

from compute import cards, evaluate, tables
from compute.api import EXACT, Kernel, load_device, times
from compute.kernels import ideal_s
from compute.project import project, project_row, save
from compute.tables import Row
from netsim.config.compute import Compute
from tests.test_compute_lookup import CARD, toy

TWICE = replace(CARD, peak={"bf16": 2e14, "fp8": 4e14}, hbm=1.5e12, launch=500_000)


def test_compute_bound_rows_follow_the_peak_and_memory_bound_ones_the_bandwidth():
    big, wide = Row(Kernel("gemm", m=8192, n=8192, k=8192), 20_000.0), Row(Kernel("residual", nbytes=10**9), 1_201.0)
    base = toy([big, wide])
    assert project_row(base, TWICE, big).time_us == pytest.approx((20_000 - 1) / 2 + 0.5, rel=1e-3)
    assert project_row(base, TWICE, wide).time_us == pytest.approx(1_200 / 1.5 + 0.5)


def test_at_the_ridge_both_count_half():
    kernel = Kernel("gemm", m=150, n=10_000, k=10_000)  # 300 ns of operations at peak against 204.5 MB
    base = toy([], peak={"bf16": 2 * 150 * 1e8 * 1e12 / (2 * (10_000 * 10_150) + 2 * 150 * 10_000)})
    factor = (project_row(base, replace(base.card, peak={"bf16": 2 * base.card.peak["bf16"]}), Row(kernel, 401.0)).time_us - 1) / 400
    assert factor == pytest.approx(0.75)


def test_a_projected_card_loads_again_and_never_claims_to_be_exact(tmp_path):
    target = replace(
        cards.card("b200"), name="next", arch="next", sms=200, hbm=16e12, peak={"bf16": 5e15, "fp8": 1e16}, sustained={}, tables=()
    )
    card, rows = project(cards.card("h100"), target)
    path, _ = save(card, rows, tmp_path / "next.yaml")
    device = load_device(Compute(cards.card(str(path))))
    assert device.card.projected_from.startswith("NVIDIA H100") and device.card.hbm == 16e12
    assert device.card.sustained["bf16"] == pytest.approx(cards.card("h100").sustained["bf16"] * 5e15 / 989.4e12, rel=1e-4)
    kernel = Kernel("gemm", m=8192, n=8192, k=8192)
    answer, measured = times(device, [kernel], sustained=False), times(load_device(Compute(cards.card("h100"))), [kernel], sustained=False)
    assert answer.t_ps[0] / measured.t_ps[0] == pytest.approx(989.4e12 / 5e15, rel=0.01)
    assert answer.source[0] != EXACT and answer.sigma[0] >= 0.2
    assert ideal_s(device.card, kernel) < answer.t_ps[0] / 1e12


def test_projection_between_measured_gpus_stays_within_what_the_docs_say():
    for pair, family, _, _, _, _, median in evaluate.projections():
        if family.startswith("gemm"):
            assert float(median.rstrip("%")) <= 16, (pair, family)


def test_one_row_more_does_not_change_the_others():
    rows = [Row(Kernel("gemm", m=n, n=n, k=n), 100.0) for n in (512, 1024)]
    base = toy(rows)
    assert np.isfinite([project_row(base, TWICE, row).time_us for row in rows]).all()


def test_of_a_base_with_two_tables_each_family_comes_from_the_last_that_has_it():
    card, rows = project(cards.card("b200_simumax"), replace(cards.card("b300"), tables=()))
    measured = {row.kernel for row in tables.read("b200_simumax.csv")}
    assert {row.kernel for row in rows if row.kernel.kind == "gemm" and row.kernel.dtype == "bf16"} == measured
    assert any(row.kernel.kind == "attention" for row in rows) and card.projected_from
