"""Collectives, effects and single-node steps: what was measured and what is predicted, in the same terms, by hand."""

from pathlib import Path

import pytest

from netsim.collectives import Communicator, Platform
from netsim.collectives.plan import plan
from netsim.collectives.timing import idle_us
from netsim.config.nccl import Nccl
from netsim.validate import collectives
from netsim.validate.effects import effects
from netsim.validate.rows import Row
from netsim.validate.single_node import Step, _series

COLUMNS = ("table_id", "op", "gpu", "network", "ranks", "ranks_per_node", "size_bytes", "time_us", "busbw_GBs", "algo_proto")
ROW = dict.fromkeys(COLUMNS, "") | {"table_id": "t", "op": "all_reduce", "gpu": "H100", "ranks": "16", "size_bytes": str(1 << 20)}


@pytest.mark.parametrize(("op", "factor"), [("all_reduce", 1.875), ("all_gather", 0.9375), ("alltoall", 0.9375), ("sendrecv", 1.0)])
def test_time_follows_from_the_bus_bandwidth_of_nccl_tests(op: str, factor: float) -> None:
    row = ROW | {"op": op, "busbw_GBs": "50"}
    assert collectives.measured_us(row, 16, 1 << 20) == pytest.approx((1 << 20) * factor / 50e9 * 1e6)
    assert collectives.measured_us(row | {"time_us": "12.5"}, 16, 1 << 20) == 12.5
    assert collectives.measured_us(row | {"busbw_GBs": "0"}, 16, 1 << 20) == 0


def test_rows_are_read_with_their_machine_and_what_is_left_out_says_why(tmp_path: Path) -> None:
    rows = [
        ROW | {"time_us": "100", "network": "8x400G", "algo_proto": "ring"},
        ROW | {"table_id": "a", "gpu": "A100", "network": "16x100G", "time_us": "200", "ranks": "8"},
        ROW | {"table_id": "deepep-x", "time_us": "1"},
        ROW | {"table_id": "empty"},
    ]
    file = tmp_path / "calls.csv"
    file.write_text("\n".join([",".join(COLUMNS), *(",".join(row[c] for c in COLUMNS) for row in rows)]) + "\n")
    (first, second), left = collectives.read(file)
    assert left == {"deepep-x": "DeepEP kernels, not NCCL", "empty": "no size, ranks or time"}
    assert (first.measured_us, first.comm.node[-1], first.comm.local[-1], first.nccl.NCCL_ALGO) == (100, 1, 7, "Ring")
    assert (first.platform.arch, first.platform.nics_per_node, first.platform.nic_rate) == ("hopper", 8, 50e9)
    assert (second.platform.arch, second.platform.nics_per_node, second.platform.nic_rate) == ("ampere", 8, 25e9)
    assert max(second.comm.node) == 0


def test_bus_bandwidth_of_a_call_inside_a_node() -> None:
    fields = {"category": "NVLS", "metric": "all_gather busbw 1 GiB, ring", "hardware": "B200, 8 GPUs", "value": "600", "kind": "measured"}
    (item,) = effects([Row("n.csv", 2, fields)])
    platform = Platform("blackwell", 8, 8, 50e9, "intel", 900e9, 5)
    call = plan("all_gather", 1 << 30, Communicator((0,) * 8, tuple(range(8))), platform, Nccl(NCCL_NVLS_ENABLE=0))
    assert item.predicted == pytest.approx((1 << 30) * 7 / 8 / (idle_us(call) * 1e-6) / 1e9)
    assert (item.measured, item.skipped, item.group) == (600, "", "all_gather inside a node, ring")


def test_a_line_through_steps_tells_slope_and_fixed_part() -> None:
    """100 ms and 10 ms for each microbatch, against 80 ms and 11 ms; in any order, and only from three steps on."""
    steps = [Step("s", "x", m, 100 + 10 * m, 80 + 11 * m, 0.0, 0.0) for m in (8, 2, 4)]
    lines, slopes = _series([*steps, steps[0]._replace(series="short"), steps[1]._replace(series="short")])
    assert lines == [["s", "10.0", "10.0 to 10.0", "11.0", "+10.0 %", "100", "80", "-20"]]
    assert slopes == [("s", pytest.approx(10.0), pytest.approx(11.0))]
