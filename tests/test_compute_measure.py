"""Measuring: what is timed and what is left out, medians, interruption, and the command around it; scripts play the machine."""

import sys
import time

import numpy as np
import pytest

from compute import tables
from compute.kernels import Kernel
from compute.measure import Kept, chosen, measure, reasons
from compute.ways import LeftOut, Way
from netsim.cli.main import main
from netsim.errors import InputError
from netsim.progress import Progress

TINY = """
name: tiny
topology: {use: dgx_h100, nodes: 1}
workload:
  kind: training
  model: {name: tiny, layers: 2, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 256}
  sequence: 64
  global_batch: 8
compute: {device: {use: h100}}
"""


class Scripted:
    """Answers with prepared durations; knows no rope; stops like a user after `patience` kernels."""

    name = "a script"

    def __init__(self, durations=(1e-6,), patience=10**9):
        self.durations, self.patience, self.prepared = list(durations), patience, []

    def prepare(self, kernel):
        if len(self.prepared) == self.patience:
            raise KeyboardInterrupt
        self.prepared.append(kernel)
        if kernel.kind == "rope":
            raise LeftOut("it does not turn")
        return Way("by the book", lambda: None, (), "cudnn" if kernel.kind == "attention" else "")

    def seconds(self, way, repeats):
        return (self.durations * repeats)[:repeats]

    def state(self):
        return "warm"

    def expected_s(self, kernel, time_us, repeats):
        assert time_us > 0
        return 1.0


class Numpy(Scripted):
    """The CPU as a very slow GPU."""

    name = "NumPy"

    def prepare(self, kernel):
        a, b = np.ones((kernel.m, kernel.k)), np.ones((kernel.k, kernel.n))
        return Way("a @ b", lambda: a @ b, ())

    def seconds(self, way, repeats):
        spent = []
        for _ in range(repeats):
            start = time.perf_counter()
            way.call()
            spent.append(time.perf_counter() - start)
        return spent


def test_the_median_counts_and_the_row_says_how_it_came_about():
    result = measure([Kernel("gemm", m=1, n=1, k=1), Kernel("attention", batch=1)], Scripted([1e-6, 9e-6, 2e-6]), repeats=3)
    assert [row.time_us for row in result.rows] == pytest.approx([2.0, 2.0])
    assert [row.source for row in result.rows] == ["measured on a script; by the book; warm"] * 2
    assert [row.library for row in result.rows] == ["", "cudnn"]


def test_every_kernel_once_and_what_cannot_be_is_left_out_with_the_reason():
    kernels = [Kernel("norm", nbytes=8), Kernel("rope", nbytes=8), Kernel("norm", nbytes=8), Kernel("norm", nbytes=16)]
    timer = Scripted()
    result = measure(kernels, timer)
    assert [row.kernel for row in result.rows] == [kernels[0], kernels[3]]
    assert result.left_out == [(kernels[1], "it does not turn")] and len(timer.prepared) == 3


def test_reasons_are_said_once_per_kind():
    found = [(Kernel("rope", nbytes=8), "no"), (Kernel("rope", nbytes=9), "no"), (Kernel("rope", "bwd", nbytes=9), "no")]
    assert reasons(found) == ["left out: rope fwd bf16 (2 shapes): no", "left out: rope bwd bf16 (1 shape): no"]


def test_progress_is_the_share_of_the_expected_time():
    class Shown(Progress):
        def __init__(self):
            self.told = []

        def update(self, fraction, text=""):
            self.told.append((fraction, text))

    shown = Shown()
    measure([Kernel("norm", nbytes=n) for n in (1, 2, 3)], Scripted(), shown=shown, expected_s=[1.0, 3.0, 4.0])
    assert shown.told == [(0.0, "norm fwd bf16"), (0.125, "norm fwd bf16"), (0.5, "norm fwd bf16")]


def test_kinds_are_chosen_by_name():
    kernels = [Kernel("norm", nbytes=8), Kernel("rope", nbytes=8), Kernel("norm", nbytes=8)]
    assert chosen(kernels, []) == kernels[:2] and chosen(kernels, ["rope"]) == [kernels[1]]
    with pytest.raises(InputError) as error:
        chosen(kernels, ["rope", "nrom"])
    assert error.value.lines == ["device measure: --only: expected a kind of kernel that this run has (norm, rope); got nrom"]


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


def test_casts_to_different_precisions_are_different_families():
    from compute.api import EXACT, ROOFLINE, times
    from compute.device import build
    from tests.test_compute_lookup import CARD

    wide, narrow = Kernel("cast", nbytes=6000), Kernel("cast", dtype="fp8", nbytes=6000)
    device = build(CARD, [measure([narrow], Scripted([7e-6])).rows], {})
    answer = times(device, [wide, narrow])
    assert list(answer.source) == [ROOFLINE, EXACT] and answer.t_ps[1] == 7_000_000


def test_rows_of_an_interrupted_measurement_are_taken_up_on_the_same_machine_only(tmp_path):
    kernels = [Kernel("norm", nbytes=n) for n in (8, 16, 24)]
    path, timer = tmp_path / "mine.csv", Scripted([3e-6], patience=2)
    kept = Kept(path, timer)
    with pytest.raises(KeyboardInterrupt):
        measure(kernels, timer, known=kept.rows(), keep=kept.keep)
    assert not path.exists() and [file.name for file in tmp_path.iterdir()] == ["mine.csv.part"]

    again = Scripted([5e-6])
    result = measure(kernels, again, known=Kept(path, again).rows())
    assert again.prepared == kernels[2:] and [row.time_us for row in result.rows] == pytest.approx([3, 3, 5])
    Kept(path, again).finish(result.rows)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.csv"]
    assert [row.kernel for row in tables.read(str(path))] == kernels

    (tmp_path / "other.csv.part").mkdir()
    with pytest.raises(InputError, match=r"--out: expected a file that can be written; got '.*other\.csv\.part' \(Is a directory\)"):
        Kept(tmp_path / "other.csv", timer).keep(result.rows)

    other = Scripted()
    other.name = "a script too"
    kept.keep(result.rows)
    assert Kept(path, other).rows() == []


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A run file in the working folder, and a list of what is asked of the machine."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_goes_on_from_where_it_was_interrupted(tiny, monkeypatch, capsys):
    first, second = Scripted(patience=4), Scripted()
    monkeypatch.setattr("compute.machine.Torch", lambda device, loss: first)
    assert main(["device", "measure", "tiny.yaml", "--out", "mine.csv"]) == 130
    said = capsys.readouterr()
    assert "interrupted; measured so far: mine.csv.part; the same command goes on from there" in said.err and not said.out
    monkeypatch.setattr("compute.machine.Torch", lambda device, loss: second)
    assert main(["device", "measure", "tiny.yaml", "--out", "mine.csv", "--json"]) == 0
    out = capsys.readouterr().out
    assert "4 kernels were measured before: mine.csv.part" in out and "left out: rope bwd bf16 (1 shape): it does not turn" in out
    assert not set(first.prepared) & set(second.prepared) and not (tiny / "mine.csv.part").exists()
    rows = tables.read("mine.csv")
    assert len(rows) == len(first.prepared) + len(second.prepared) - 2 and f'"rows": {len(rows)}' in out


def test_the_command_times_the_kinds_that_are_asked_for(tiny, monkeypatch, capsys):
    timer = Scripted()
    monkeypatch.setattr("compute.machine.Torch", lambda device, loss: timer)
    assert main(["device", "measure", "tiny.yaml", "--only", "gemm,norm", "--quiet"]) == 0
    assert {kernel.kind for kernel in timer.prepared} == {"gemm", "norm"} and {r.kernel.kind for r in tables.read("measured.csv")} == {
        "gemm",
        "norm",
    }
    assert main(["device", "measure", "tiny.yaml", "--only", "rope", "--out", "none.csv", "--quiet"]) == 2
    assert "expected a kernel that can be timed here; got none" in capsys.readouterr().err and not (tiny / "none.csv").exists()


WRONG = [
    (["none.yaml"], "none.yaml"),
    (["tiny.yaml", "--set", "workload.sequense=5"], "sequense"),
    (["tiny.yaml", "--set", "workload.global_batch=12"], "global_batch: expected a multiple of micro_batch x dp = 1 x 8 = 8; got 12"),
    (["tiny.yaml", "--set", "compute.device.tables=[none.csv]"], "got 'none.csv'"),
    (["tiny.yaml", "--out", "none/mine.csv"], "expected a file in a folder that exists; got 'none/mine.csv'"),
    (["tiny.yaml", "--out", "."], "expected a file in a folder that exists; got '.'"),
    (["tiny.yaml", "--repeats", "0"], "--repeats: expected at least 1; got 0"),
    (["tiny.yaml", "--only", "gem"], "got gem"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_cannot_be_is_said_in_one_line_before_anything_is_timed(tiny, monkeypatch, capsys, words, said):
    monkeypatch.setattr("compute.machine.Torch", lambda device, loss: pytest.fail("a machine was asked for"))
    assert main(["device", "measure", *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and said in lines[0]


def test_a_run_of_traffic_has_nothing_to_time(capsys):
    assert main(["device", "measure", "runs/incast_64.yaml"]) == 2
    said = "runs/incast_64.yaml: workload.kind: expected training, which has kernels to time; got traffic\n"
    assert capsys.readouterr().err == said


def test_without_pytorch_the_command_says_so_in_one_line(tiny, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["device", "measure", "tiny.yaml"]) == 2
    said = "device measure: expected PyTorch (pip install 'netsim-llm[measure]'); got no module named torch\n"
    assert capsys.readouterr().err == said and not (tiny / "measured.csv").exists()


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


def test_a_projection_that_cannot_be_written_leaves_nothing(tmp_path, capsys):
    (tmp_path / "taken").mkdir()
    assert main(["device", "project", "--from", "h100", "--to", "h200", "--out", str(tmp_path / "taken")]) == 2
    assert "--out: expected a file that can be written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
