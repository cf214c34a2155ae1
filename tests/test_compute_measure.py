"""Measuring: warm-up, medians, what is left out, and the command without a GPU; a NumPy timer plays the GPU."""

import importlib.util
import time

import numpy as np
import pytest

from compute import tables
from compute.kernels import Kernel
from compute.measure import measure
from netsim.cli.main import main


class Scripted:
    """Answers with prepared durations and counts its calls."""

    name = "a script"

    def __init__(self, durations):
        self.durations, self.calls, self.prepared = list(durations), 0, []

    def prepare(self, kernel):
        self.prepared.append(kernel)
        return None if kernel.kind == "rope" else (lambda: None)

    def seconds(self, call):
        self.calls += 1
        return self.durations[min(self.calls, len(self.durations)) - 1]


class Numpy:
    """The CPU as a very slow GPU."""

    name = "NumPy"

    def prepare(self, kernel):
        if kernel.kind != "gemm":
            return None
        a, b = np.ones((kernel.m, kernel.k)), np.ones((kernel.k, kernel.n))
        return lambda: a @ b

    def seconds(self, call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start


def test_the_median_after_warm_up_counts():
    timer = Scripted([9.0, 9.0, 1e-6, 5e-6, 2e-6])
    result = measure([Kernel("gemm", m=1, n=1, k=1)], timer, warmup=2, repeats=3)
    assert result.rows[0].time_us == pytest.approx(2.0) and timer.calls == 5
    assert result.rows[0].source == "measured on a script"


def test_every_kernel_once_and_unknown_kinds_are_left_out():
    kernels = [Kernel("norm", nbytes=8), Kernel("rope", nbytes=8), Kernel("norm", nbytes=8), Kernel("norm", nbytes=16)]
    timer = Scripted([1e-6])
    result = measure(kernels, timer)
    assert [row.kernel for row in result.rows] == [kernels[0], kernels[3]]
    assert result.left_out == [kernels[1]] and len(timer.prepared) == 3


def test_a_measured_table_answers_for_its_shapes(tmp_path):
    from compute.api import EXACT, times
    from compute.device import build
    from tests.test_compute_lookup import CARD

    result = measure([Kernel("gemm", m=64, n=64, k=64), Kernel("gemm", m=128, n=128, k=128)], Numpy(), repeats=3)
    tables.write(tmp_path / "mine.csv", result.rows)
    device = build(CARD, [tables.read(str(tmp_path / "mine.csv"))], {})
    answer = times(device, [row.kernel for row in result.rows])
    assert list(answer.source) == [EXACT, EXACT]
    assert answer.t_ps / 1e6 == pytest.approx([row.time_us for row in result.rows], rel=1e-4)


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_pytorch_the_command_says_so_in_one_line(capsys):
    from compute.measure import Torch
    from netsim.errors import InputError

    with pytest.raises(InputError) as error:
        Torch()
    assert error.value.lines == ["device measure: expected PyTorch with CUDA; got no module named torch"]


def test_show_prints_figures_and_one_json_line(capsys):
    import json

    assert main(["device", "show", "h100", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert facts["sms"] == 132 and any(f["family"] == "gemm/fwd/bf16" and f["median"] < 0.04 for f in facts["families"])


def test_unknown_devices_are_named_with_what_was_meant(capsys):
    assert main(["device", "show", "h10"]) == 2
    assert "did you mean 'h100'" in capsys.readouterr().err


def test_project_writes_a_card_that_show_reads(tmp_path, capsys):
    (tmp_path / "my.yaml").write_text("use: h100\nname: mine\nhbm: 6.7 TB/s\ntables: []\n")
    assert main(["device", "project", "--from", "h100", "--to", str(tmp_path / "my.yaml")]) == 0
    assert main(["device", "show", str(tmp_path / "my.projected.yaml")]) == 0
    assert "at 6.7 TB/s" in capsys.readouterr().out
