"""Errors of groups, rank correlation, growth of scaling series."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.validate.report import aims, document
from netsim.validate.rows import Row
from netsim.validate.score import layouts, scaling, score, spearman
from netsim.validate.training import Result


def result(predicted: float, measured: float, skipped: str = "", **fields: str) -> Result:
    return Result(
        Row("t.csv", 2, {"simulate_ready": "Y", "step_time_s": str(measured), **fields}), measured, predicted, ["x"], skipped, False, {}
    )


def test_figures_by_hand() -> None:
    s = score([result(1.1, 1.0), result(0.8, 1.0), result(1.3, 1.0), result(0.0, 1.0, "no card")])
    assert (s.rows, s.ran) == (4, 3)
    assert s.median == pytest.approx(0.2) and s.bias == pytest.approx(0.1) and s.p90 == pytest.approx(0.28)


def test_a_group_without_runs_has_no_errors() -> None:
    assert math.isnan(score([result(0.0, 1.0, "why")]).median)


def test_rank_correlation_of_order_alone() -> None:
    assert spearman([1, 2, 3, 4], [10, 100, 1000, 10000]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 1, 2, 3], [1, 1, 2, 3]) == pytest.approx(1)
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))


@given(st.lists(st.integers(1, 1000), min_size=3, max_size=20, unique=True))
def test_rank_correlation_ignores_any_rising_scale(values: list[int]) -> None:
    assert spearman(values, [v**3 for v in values]) == pytest.approx(1)


def test_bloom_layouts_are_ranked_per_sequence_and_parameter() -> None:
    rows = [result(p, m, model="BLOOM-candidate", gbs="2048", params_b="181") for p, m in ((1, 10), (2, 20), (3, 15))]
    assert layouts(rows) == (3, pytest.approx(0.5))


def test_growth_of_a_series_is_at_equal_batch_per_gpu() -> None:
    rows = [
        result(p, m, model="m", num_gpus=n, gbs=b) for p, m, n, b in ((1.0, 1.0, "8", "8"), (1.1, 1.2, "16", "16"), (0.6, 0.5, "32", "16"))
    ]
    ((_, fewest, most, measured, predicted),) = scaling(rows)
    assert (fewest, most) == (8, 32) and measured == pytest.approx(1.0) and predicted == pytest.approx(1.2)


def test_an_aim_is_met_by_median_and_90th_percentile() -> None:
    def line(*errors: float) -> str:
        rows = [result(1 + error, 1.0)._replace(moe=True) for error in errors]
        rows.append(rows[0]._replace(row=Row("t.csv", 3, {"simulate_ready": "Y"})))
        return next(line for line in aims(rows).splitlines() if "MoE" in line)

    assert line(*[0.1] * 8, 0.39, 0.39).endswith("| yes |") and "| 10 of 10 |" in line(*[0.1] * 10), "without a time a row is not complete"
    assert line(*[0.1] * 7, 0.41, 0.41, 0.41).endswith("| no |")
    assert line(*[0.16] * 10).endswith("| no |")


def test_what_did_not_run_is_neither_met_nor_missed() -> None:
    assert all(line.endswith(" - |") for line in aims([]).splitlines()[2:])


def test_the_document_has_every_row_and_no_nan() -> None:
    found = document([result(1.1, 1.0, source="a"), result(0.0, 1.0, "why", source="b")])
    assert found["overall"] == {
        "rows": 2,
        "ran": 1,
        "median_abs_error": pytest.approx(0.1),
        "p90_abs_error": pytest.approx(0.1),
        "bias": pytest.approx(0.1),
    }
    assert [r["skipped"] for r in found["rows"]] == [None, "why"]
    assert {"by": {"source": "b"}, "rows": 1, "ran": 0, "median_abs_error": None, "p90_abs_error": None, "bias": None} in found["groups"]
