"""Forty chosen rows of the shipped table: their errors are golden values (`--bless` rewrites them)."""

import json
from pathlib import Path

import pytest

from netsim.validate.rows import read
from netsim.validate.run import outcome
from netsim.validate.training import evaluate

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).parent / "golden" / "validate.json"
TABLE = ROOT / "docs" / "data" / "training_steps.csv"
SLACK = 0.002
"""How far an error may move without a --bless: rounding of kernel times over platforms."""


def test_errors_of_forty_rows(bless: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netsim.validate.run.LIMIT_S", float("inf"))  # as long as a busy machine takes
    wanted = json.loads(GOLDEN.read_text())
    rows = [row for row in read(TABLE, "training") if str(row.line) in wanted]
    assert len(rows) == len(wanted) == 40
    found = {
        str(r.row.line): {
            "row": f"{r.row['model']}, {r.row['num_gpus']} {r.row['gpu_family']}, {r.row['precision']}",
            "error": None if r.skipped else round(r.error, 4),
        }
        for r in evaluate(rows, 1)
    }
    if bless:
        GOLDEN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        return
    moved = {line: (wanted[line], found[line]) for line in wanted if _moved(wanted[line]["error"], found[line]["error"])}
    assert not moved, f"errors moved; if that is right, run pytest {Path(__file__).name} --bless: {moved}"


def _moved(old: float | None, new: float | None) -> bool:
    return (old is None) != (new is None) or (old is not None and new is not None and abs(old - new) > SLACK)


@pytest.mark.parametrize("layout", [{"tp": 1, "pp": 1, "cp": 1}, {"tp": 2, "pp": 2, "cp": 1}])
def test_a_long_step_follows_from_two_short_ones(layout: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Extrapolation over microbatches is exact: every further round takes the same time."""
    config = {
        "name": "row",
        "topology": {"use": "dgx_h100", "nodes": 1, "gpus_per_node": 8},
        "compute": {"device": {"use": "h100"}},
        "workload": {
            "kind": "training", "model": {"use": "llama3_8b", "layers": 4}, "sequence": 2048, "global_batch": 128, "micro_batch": 1,
            "parallel": layout, "data_parallel": {"overlap_grad_reduce": True, "overlap_param_gather": True},
        },
    }  # fmt: skip
    short = outcome(json.dumps(config)).summary
    monkeypatch.setattr("netsim.validate.run.ROUNDS", 10**9)
    full = outcome(json.dumps(config)).summary
    assert short["iteration_time_s"] == pytest.approx(full["iteration_time_s"], rel=1e-9)
    assert short["compute_s"] == pytest.approx(full["compute_s"], rel=1e-9)
