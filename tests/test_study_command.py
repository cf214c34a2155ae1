"""`netsim study` as a user starts it: table, figures, page, parts, and a kill -9 in the middle."""

import csv
import signal
from pathlib import Path

import pytest

from tests.conftest import PATIENCE_S, start

STUDY = """
name: small
title: A small study
question: Does the rate of the NICs matter?
base: base.yaml
axes:
  - {name: NIC, field: topology.link.rate, values: [400 Gbps, 200 Gbps, 100 Gbps, 50 Gbps], labels: ["400", "200", "100", "50"]}
  - {name: batch, field: workload.global_batch, values: [16, 32, 40]}
metrics: [iteration_time_s, tokens_per_s, mfu, exposed_s.dp, nic_utilisation, peak_memory_gib, usd, tokens_per_usd]
figures:
  - {kind: lines, x: NIC, y: tokens_per_s, series: batch, log: x}
  - {kind: bars, x: NIC, y: mfu, series: batch}
  - {kind: pareto, x: usd, y: tokens_per_s, lower_is_better: [usd]}
lessons:
  - "400 Gb/s are {tokens_per_s @ 400, 32 vs 50, 32} times as fast as 50 Gb/s; the best is {argmax tokens_per_s}."
"""
BASE = """
topology: {use: dgx_h100, nodes: 2}
workload: {kind: training, model: {use: mpt_125m}, sequence: 1024, global_batch: 16}
compute: {device: {use: h100}}
telemetry: {interval: 1 ms}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path


def _table(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open(newline="") as file:
        return list(csv.DictReader(file))

KILLED = """
import os, signal, sys
from netsim.cli import main
from netsim.study import pool
from netsim.study.results import Result

receive, ended = pool._receive, []

def receive_three(*words):
    found = receive(*words)
    ended.extend([found] if isinstance(found, Result) else [])
    if len(ended) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return found

pool._receive = receive_three
sys.exit(main.main())
"""


def test_killed_in_the_middle_and_started_again_gives_the_same_table(study, netsim):
    whole = netsim("study", "study.yaml", "--jobs", "1", "--out", "whole", "--page", "pages")
    assert whole.returncode == 0, whole.stderr
    rows = _table(study / "whole")
    assert [r["status"] for r in rows] == ["done", "done", "illegal"] * 4
    assert "multiple of micro_batch x dp" in rows[2]["note"]
    times = {(r["NIC"], r["batch"]): float(r["iteration_time_s"]) for r in rows if r["status"] == "done"}
    assert times["400", "16"] < times["200", "16"] < times["100", "16"] < times["50", "16"]
    page = (study / "pages" / "small.md").read_text()
    assert f"{times['50', '32'] / times['400', '32']:.2f} times as fast" in page and "the best is 400, 32" in page
    assert sorted(p.name for p in (study / "pages").iterdir()) == ["small.md", "small_1.svg", "small_2.svg", "small_3.svg"]

    process = start(1, ["-c", KILLED, "study", "study.yaml", "--jobs", "2", "--out", "cut", "--quiet"], study, {})
    process.communicate(timeout=PATIENCE_S)  # until its workers, which have the same pipes, have ended too
    assert process.returncode == -signal.SIGKILL
    points = study / "cut" / "points"
    kept = {p.name: p.stat().st_mtime_ns for p in points.glob("*.json")}
    assert 3 <= len(kept) < len(rows)
    again = netsim("study", "study.yaml", "--jobs", "1", "--out", "cut")
    assert again.returncode == 0, again.stderr
    assert {p.name: p.stat().st_mtime_ns for p in points.glob("*.json")}.items() >= kept.items()
    assert (study / "cut" / "table.csv").read_bytes() == (study / "whole" / "table.csv").read_bytes()


def test_parts_make_the_whole_and_collect_says_what_is_missing(study, netsim):
    assert netsim("study", "study.yaml", "--count").stdout.strip() == "12"
    assert netsim("study", "study.yaml", "--part", "1/3", "--out", "parts", "--jobs", "1").returncode == 0
    some = netsim("study", "study.yaml", "--collect", "--out", "parts")
    assert some.returncode == 0 and "8 of 12 points have no result" in some.stdout
    assert [r["status"] for r in _table(study / "parts")] == ["missing", "done", "missing"] * 4
    assert netsim("study", "study.yaml", "--part", "0/3", "--out", "parts", "--jobs", "1").returncode == 0
    assert netsim("study", "study.yaml", "--out", "parts", "--count").stdout.strip() == "4"
    wrong = netsim("study", "study.yaml", "--part", "3/3")
    assert wrong.returncode == 2 and "expected I/N with I below N" in wrong.stderr


def test_nothing_that_can_be_is_an_error(study, netsim):
    (study / "study.yaml").write_text(STUDY.replace("[16, 32, 40]", "[40]"))
    done = netsim("study", "study.yaml", "--jobs", "1")
    assert done.returncode == 2 and "multiple of micro_batch x dp" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "mfu, exposed_s.dp",
            "mfuu, exposed_s.dp",
            "study.yaml: metrics.2: expected a metric of these runs; got 'mfuu'; did you mean 'mfu'?",
        ),
        ("figures:", "constraints: [{metric: memory, at_most: 3}]\nfigures:", "constraints.0.metric: expected a metric of these runs"),
        ("{argmax tokens_per_s}", "{mfu @ 400, 16 | zz}", "lessons: expected a format such as .2f; got 'zz'"),
        ("figures:", "prices: {years: 0}\nfigures:", "study.yaml: prices.years: expected more than 0; got 0"),
        ("figures:", "prices: {gpu: 3}\nfigures:", "study.yaml: prices.gpu: expected the name of a price; got 'gpu'"),
    ],
)
def test_what_turns_out_to_be_wrong_is_one_line(study, netsim, old, new, said):
    text = STUDY.replace("[16, 32, 40]", "[16, 32]").replace("  - {kind: bars, x: NIC, y: mfu, series: batch}\n", "")
    assert old in text
    (study / "study.yaml").write_text(
        text.replace(old, new).replace(', "100", "50"]', "]").replace(", 100 Gbps, 50 Gbps]", "]").replace("50, 32", "200, 32")
    )
    done = netsim("study", "study.yaml", "--jobs", "1", "--quiet", "--page", "pages", timeout=300)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    (line,) = done.stderr.splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--jobs", "-1"), "--jobs: expected a whole number of at least 1; got '-1'"),
        (("--part", "\u00b2/3"), "--part: expected I/N with I below N, such as 0/4"),
    ],
)
def test_wrong_words(study, netsim, words, said):
    done = netsim("study", "study.yaml", *words)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
