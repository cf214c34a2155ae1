"""Rows of measurements: reading, recognising, filtering."""

from pathlib import Path

import pytest

from netsim.errors import InputError
from netsim.validate import rows

TABLE = """model,gpu_family,num_gpus,step_time_s
a,H100,64,1.5
b,H100,512,2.5
c,A100,512,
d,,,9
"""


@pytest.fixture
def table(tmp_path: Path) -> list[rows.Row]:
    file = tmp_path / "steps.csv"
    file.write_text(TABLE)
    return rows.read(file, "training")


def chosen(table: list[rows.Row], condition: str | None) -> str:
    return "".join(r["model"] for r in rows.choose(table, condition))


@pytest.mark.parametrize(
    ("condition", "models"),
    [
        (None, "abcd"),
        ("gpu_family=H100", "ab"),
        ("gpu_family=h100 and num_gpus>=512", "b"),
        ("gpu_family!=H100", "cd"),
        ("num_gpus<512 or gpu_family=A100", "ac"),
        ("gpu_family~100 and num_gpus=512", "bc"),
        ("step_time_s>2", "bd"),
    ],
)
def test_conditions(table: list[rows.Row], condition: str | None, models: str) -> None:
    assert chosen(table, condition) == models


def test_an_empty_number_meets_no_comparison(table: list[rows.Row]) -> None:
    assert chosen(table, "step_time_s<100") == "abd"


def test_a_column_that_is_not_there_offers_one_that_is(table: list[rows.Row]) -> None:
    with pytest.raises(InputError, match="num_gpus"):
        rows.choose(table, "num_gpu=8")


def test_what_is_no_clause_is_said(table: list[rows.Row]) -> None:
    with pytest.raises(InputError, match="expected clauses"):
        rows.choose(table, "gpu_family")


def test_columns_that_a_table_lacks_are_empty(table: list[rows.Row]) -> None:
    assert table[0]["recompute"] == "" and table[0].count("tp") is None and table[1].count("num_gpus") == 512


def test_a_folder_gives_the_tables_of_one_kind(tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text(TABLE)
    (tmp_path / "calls.csv").write_text("table_id,op,busbw_GBs\nx,all_reduce,1\n")
    assert len(rows.read(tmp_path, "training")) == 4 and len(rows.read(tmp_path, "collectives")) == 1
    with pytest.raises(InputError, match="kind kernels"):
        rows.read(tmp_path, "kernels")
