"""Tables: round trip, wrong files, shipped data and its sources, leave-one-out aims."""

import csv

import numpy as np
import pytest

from compute import cards, tables
from compute.device import build, leave_one_out
from compute.kernels import Kernel
from compute.tables import Row
from netsim.errors import InputError


def test_what_is_written_is_read_back(tmp_path):
    rows = [
        Row(Kernel("gemm", "wgrad", "bf16", 1, 2, 3, accumulate=True), 12.5, "", "", "s1"),
        Row(Kernel("attention", batch=2, seq_q=8, seq_kv=16, heads=4, kv_heads=2, head_dim=64, causal=False), 3.25, "", "cudnn", "s2"),
        Row(Kernel("gemm", dtype="fp8", m=1, n=1, k=1), 1e-3, "quantise"),
    ]
    tables.write(tmp_path / "t.csv", rows)
    assert tables.read(str(tmp_path / "t.csv")) == rows


@pytest.mark.parametrize(("change", "said"), [({"m": "x"}, "m 'x'"), ({"time_us": "0"}, "time_us '0'"), ({"time_us": ""}, "time_us ''")])
def test_wrong_rows_are_named_by_file_and_line(tmp_path, change, said):
    path = tmp_path / "t.csv"
    good = {"kind": "gemm", "direction": "fwd", "dtype": "bf16", "m": "1", "n": "1", "k": "1", "time_us": "5"}
    path.write_text(",".join(tables.COLUMNS) + "\n" + ",".join((good | change).get(name, "") for name in tables.COLUMNS) + "\n")
    with pytest.raises(InputError, match=rf"t\.csv:2: .*{said}"):
        tables.read(str(path))


def test_a_table_that_is_none_and_one_that_is_missing(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"t\.csv:1: expected a kernel table with columns"):
        tables.read(str(tmp_path / "t.csv"))
    with pytest.raises(InputError, match=r"got 'h10\.csv'; did you mean 'h100\.csv'"):
        tables.find("h10.csv")


def test_a_row_without_sizes_is_refused():
    with pytest.raises(InputError, match="cannot place"):
        build(cards.card("h100"), [[Row(Kernel("gemm", m=8, n=8), 1.0)]])


def test_every_shipped_row_names_a_listed_source():
    with (tables.FOLDER / "sources.csv").open(newline="") as file:
        keys = {entry["key"] for entry in csv.DictReader(file)}
    for path in [*tables.FOLDER.glob("*.csv"), *tables.FOLDER.glob("cross_check/*.csv")]:
        if path.stem not in ("sources", "ratios", "fused"):
            assert {row.source for row in tables.read(str(path))} <= keys, path


def test_ratios_name_their_source():
    for ratio in tables.read_ratios().values():
        assert ratio.value > 0 and ratio.sigma >= 0 and ratio.source


@pytest.mark.parametrize("name", ["a100_sxm", "h100", "h200", "b200", "gb200", "gb300"])
def test_leave_one_out_meets_the_aims_where_rows_are_many(name):
    card = cards.card(name)
    device = build(card, [tables.read(table) for table in card.tables])
    error, variance = leave_one_out(device.ptr, device.x, device.y)
    for family, f in device.family.items():
        part = slice(device.ptr[f], device.ptr[f + 1])
        apart = variance[part] > 0
        if apart.sum() < 100:
            continue
        off = np.abs(np.expm1(error[part][apart]))
        assert np.median(off) <= (0.04 if family.startswith("gemm") else 0.05), family
        assert np.percentile(off, 90) <= 0.12, family
        within = np.abs(error[part][apart]) < 1.645 * np.sqrt(variance[part][apart] * device.slope[f])
        assert 0.85 <= within.mean() <= 0.96, family
