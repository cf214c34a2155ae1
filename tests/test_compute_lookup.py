"""Lookups: exact rows, interpolation, stand-ins by ratio, roofline, power limit."""

from dataclasses import replace

import numpy as np
import pytest

from compute import cards, tables
from compute.api import EXACT, INTERPOLATED, ROOFLINE, Kernel, flops, load_device, peak_flops, times
from compute.device import build
from compute.families import coordinates, family_of
from compute.kernels import ideal_s
from compute.lookup import leave_one_out, quantise_s, roofline_s, stands
from compute.tables import Ratio, Row
from netsim.config.compute import Compute, DeviceCard

CARD = DeviceCard(name="toy", arch="toy", sms=10, memory=1, hbm=1e12, peak={"bf16": 1e14, "fp8": 2e14}, launch=1_000_000)


def toy(rows, ratios=None, **changes):
    return build(replace(CARD, **changes), [rows], ratios or {})


def gemm(size, share, **fields):
    kernel = Kernel("gemm", m=size, n=size, k=size, **fields)
    return Row(kernel, ideal_s(CARD, kernel) * 1e6 / share)


def test_a_measured_shape_is_answered_by_its_row():
    rows = [gemm(1024, 0.5), gemm(2048, 0.6), gemm(4096, 0.7)]
    answer = times(toy(rows), [row.kernel for row in rows])
    assert answer.t_ps / 1e6 == pytest.approx([row.time_us for row in rows], rel=1e-6)
    assert list(answer.source) == [EXACT] * 3


def test_between_rows_of_one_efficiency_the_answer_has_it_too():
    kernel = Kernel("gemm", m=3000, n=3000, k=3000)
    answer = times(toy([gemm(n, 0.5) for n in (1024, 2048, 4096, 8192)]), [kernel])
    assert answer.t_ps[0] / 1e12 == pytest.approx(ideal_s(CARD, kernel) / 0.5, rel=1e-6)
    assert answer.source[0] == INTERPOLATED and 0 < answer.sigma[0] < 0.1


def test_fp16_reads_the_rows_of_bf16():
    row = gemm(2048, 0.5)
    assert times(toy([row]), [row.kernel._replace(dtype="fp16")]).t_ps[0] == times(toy([row]), [row.kernel]).t_ps[0]


def test_backward_layouts_borrow_forward_rows_through_their_ratio():
    ratios = {("gemm.dgrad", "*"): Ratio(1.25, 0.1, 5, "")}
    device = toy([gemm(n, 0.5) for n in (1024, 2048, 4096, 8192)], ratios)
    forward = Kernel("gemm", m=2048, n=2048, k=2048)
    answer = times(device, [forward, forward._replace(direction="dgrad"), forward._replace(direction="wgrad")])
    assert answer.t_ps[1] / answer.t_ps[0] == pytest.approx(1.25)
    assert answer.sigma[1] == pytest.approx(np.hypot(0.1, answer.sigma[0]))
    assert list(answer.source) == [EXACT, INTERPOLATED, ROOFLINE]  # no ratio leads to wgrad


def test_precisions_chain_their_ratios_relative_to_their_own_peak():
    ratios = {
        ("gemm.fp8", "*"): Ratio(1.1, 0.03, 5, ""),
        ("gemm.mxfp8", "*"): Ratio(1.2, 0.04, 5, ""),
        ("gemm.dgrad", "*"): Ratio(1.3, 0.0, 5, ""),
    }
    device = toy([gemm(n, 0.5) for n in (1024, 2048, 4096, 8192)], ratios)
    kernel = Kernel("gemm", "dgrad", "mxfp8", m=4096, n=4096, k=4096)
    [stand] = stands(device, kernel)
    assert stand.kernel == Kernel("gemm", m=4096, n=4096, k=4096) and stand.sigma == pytest.approx(0.05)
    assert times(device, [kernel]).t_ps[0] / 1e12 == pytest.approx(ideal_s(CARD, kernel) / 0.5 * 1.1 * 1.2 * 1.3)


def test_the_ratio_of_the_nearest_scope_counts():
    ratios = {("gemm.dgrad", "*"): Ratio(2.0, 0.1, 5, ""), ("gemm.dgrad", "toy"): Ratio(3.0, 0.1, 5, "")}
    device = toy([gemm(2048, 0.5)], ratios)
    forward = Kernel("gemm", m=2048, n=2048, k=2048)
    answer = times(device, [forward, forward._replace(direction="dgrad")]).t_ps
    assert answer[1] / answer[0] == pytest.approx(3.0)


def test_fused_rows_lose_their_quantisation():
    ratios = {("gemm.fp8.quantise_us", "*"): Ratio(10.0, 0.0, 1, ""), ("gemm.fp8.quantise_gbps", "*"): Ratio(1000.0, 0.0, 1, "")}
    row = gemm(4096, 0.25, dtype="fp8")._replace(fused="quantise")
    device = toy([row], ratios)
    spent_us = 10 + 3 * 4096 * 4096 / 1e6
    assert quantise_s(device, row.kernel) * 1e6 == pytest.approx(spent_us)
    assert times(device, [row.kernel]).t_ps[0] / 1e6 == pytest.approx(row.time_us - spent_us)


def test_without_rows_the_roofline_answers():
    device = toy([], memory_efficiency={"swiglu": 0.5, "swiglu.bwd": 0.4}, hbm_efficiency=0.8, gemm_efficiency=0.5)
    kernels = [
        Kernel("norm", nbytes=10**9),
        Kernel("swiglu", nbytes=10**9),
        Kernel("swiglu", "bwd", nbytes=10**9),
        Kernel("gemm", m=4096, n=4096, k=4096),
    ]
    answer = times(device, kernels)
    busy = [1e-3 / 0.8, 1e-3 / 0.5, 1e-3 / 0.4, 2 * 4096**3 / 0.5e14]
    assert answer.t_ps / 1e12 == pytest.approx([t + 1e-6 for t in busy])
    assert (answer.source == ROOFLINE).all()
    assert [roofline_s(device, k) for k in kernels] == pytest.approx(answer.t_ps / 1e12)


def test_no_gemm_is_faster_than_the_power_limit_lets_it_be():
    device = toy([gemm(4096, 0.9)], sustained={"bf16": 6e13})
    kernel = Kernel("gemm", m=4096, n=4096, k=4096)
    assert times(device, [kernel]).t_ps[0] / 1e12 == pytest.approx(flops(kernel) / 6e13)
    assert times(device, [kernel], sustained=False).t_ps[0] / 1e12 == pytest.approx(ideal_s(CARD, kernel) / 0.9)


def test_adding_into_a_wide_gradient_comes_on_top_of_the_power_limit():
    device = toy([gemm(4096, 0.9)], {("gemm.wgrad.fp32_grad", "*"): Ratio(1.25, 0.0, 1, "x")}, sustained={"bf16": 6e13})
    kernel = Kernel("gemm", "wgrad", m=4096, n=4096, k=4096, accumulate=True)
    assert times(device, [kernel]).t_ps[0] / 1e12 == pytest.approx(1.25 * flops(kernel) / 6e13)


def test_of_several_tables_the_surest_answers_and_the_last_wins_ties():
    shipped = [gemm(1024, 0.5), gemm(2048, 0.5), gemm(8192, 0.5), Row(Kernel("residual", nbytes=10**8), 200.0)]
    own = [gemm(2048, 0.25), gemm(2560, 0.25)]
    device = build(replace(CARD, systematic=0.05), [shipped, own], {})
    kernels = [Kernel("gemm", m=n, n=n, k=n) for n in (1024, 2048, 2304, 8192)]
    answer = times(device, [*kernels, shipped[3].kernel])
    assert list(answer.source) == [EXACT, EXACT, INTERPOLATED, EXACT, EXACT]
    share = [ideal_s(CARD, kernel) * 1e12 / t_ps for kernel, t_ps in zip(kernels, answer.t_ps[:4], strict=True)]
    assert share == pytest.approx([0.5, 0.25, 0.25, 0.5], rel=1e-6)
    assert answer.sigma[0] == pytest.approx(np.hypot(0.01, 0.05)) and answer.sigma[1] == pytest.approx(0.01)


def test_a_table_without_the_family_answers_through_its_nearest_relative():
    forward = [gemm(n, 0.5) for n in (1024, 2048, 4096, 8192)]
    ratios = {("gemm.dgrad", "*"): Ratio(1.25, 0.02, 5, "")}
    device = build(replace(CARD, systematic=0.0), [forward, [gemm(8192, 0.25, direction="dgrad")]], ratios)
    kernels = [Kernel("gemm", "dgrad", m=n, n=n, k=n) for n in (1024, 8192)]
    assert [(s.own, s.kernel.direction) for s in stands(device, kernels[0])] == [(True, "dgrad"), (False, "fwd")]
    near, far = times(device, kernels).t_ps[::-1]
    assert near / 1e12 == pytest.approx(ideal_s(CARD, kernels[1]) / 0.25)
    assert far / 1e12 == pytest.approx(ideal_s(CARD, kernels[0]) / 0.5 * 1.25)


def test_leave_one_out_looks_a_row_up_as_if_it_were_not_there():
    rows = [gemm(1024, 0.5), gemm(2048, 0.5), gemm(4096, 0.5), gemm(8192, 0.4)]
    error, sigma, apart = leave_one_out(toy(rows))
    assert error[:2] == pytest.approx([0, 0], abs=0.2) and error[3] == pytest.approx(np.log(0.4 / 0.5), abs=0.05)
    without = times(toy(rows[:3]), [rows[3].kernel])
    assert error[3] == pytest.approx(np.log(without.t_ps[0] / 1e6 / rows[3].time_us)) and apart.all() and (sigma > 0).all()


def test_no_kernels_no_times():
    assert len(times(toy([gemm(1024, 0.5)]), []).t_ps) == 0


@pytest.mark.parametrize("name", cards.names())
def test_every_shipped_row_has_a_place_of_its_own(name):
    """Two kernels of a family never share their coordinates, or an exact answer could be that of another kernel."""
    card = cards.card(name)
    for table in card.tables:
        places = {}
        for row in tables.read(table):
            kernel = row.kernel._replace(dtype="bf16") if row.kernel.dtype == "fp16" else row.kernel
            assert places.setdefault((family_of(kernel), coordinates(card, kernel)), kernel) == kernel


@pytest.mark.parametrize("name", cards.names())
def test_shipped_devices_answer_for_every_kind_within_the_roofs(name):
    device = load_device(Compute(cards.card(name)))
    sizes = dict(m=2048, n=6144, k=4096)
    kernels = [Kernel("gemm", d, t, **sizes) for d in ("fwd", "dgrad", "wgrad") for t in ("bf16", "fp8", "fp8_blockwise", "mxfp8", "nvfp4")]
    kernels += [Kernel("gemm", "wgrad", accumulate=True, **sizes), Kernel("grouped_gemm", groups=8, **sizes)]
    shape = dict(batch=1, seq_q=4096, seq_kv=4096, heads=16, kv_heads=4, head_dim=128)
    kernels += [Kernel("attention", d, causal=c, **shape) for d in ("fwd", "bwd") for c in (True, False)]
    kernels += [
        Kernel(kind, d, nbytes=50 * 2**20)
        for kind in ("norm", "swiglu", "rope", "residual", "adam", "cross_entropy")
        for d in ("fwd", "bwd")
    ]
    answer = times(device, kernels)
    for kernel, t_ps in zip(kernels, answer.t_ps, strict=True):
        assert t_ps / 1e12 >= 0.98 * flops(kernel) / peak_flops(device, kernel.dtype)
    assert (answer.sigma > 0).all() and (answer.sigma < 1).all()
    assert (answer.source[:-12] != ROOFLINE).all()
