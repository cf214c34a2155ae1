"""The search for a layout: what is legal, how good the estimates are, and that the best of an exhaustive search is found."""

import csv
import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from netsim.config import from_data, load_section
from netsim.config.search import Knob, Search, Space
from netsim.progress import Progress
from netsim.simulate import simulate
from netsim.study import knobs
from netsim.study.estimate import RESERVED, Estimate, Model
from netsim.study.layouts import Layout, layouts, problem, training_of
from netsim.study.search import Candidate, agreement, estimated, points, refined, results_in

BASE = {
    "name": "base",
    "topology": {"use": "dgx_h100", "nodes": 2},
    "workload": {"kind": "training", "model": {"use": "llama3_8b"}, "sequence": 4096, "global_batch": 32},
    "compute": {"device": {"use": "h100"}},
    "telemetry": {"interval": "1 s"},
}
GRID = Space(tp=(2, 4, 8), pp=(1, 2, 4), vpp=(1, 2), cp=(1,), micro_batch=(1,), recompute=("none", "full"), sharding=("optimizer",))


def _run(**workload):
    return from_data(BASE | {"workload": BASE["workload"] | workload})


def _flow(run, layout, folder):
    return simulate(replace(run, workload=training_of(run.workload, layout)), folder, Progress())


def test_layouts_are_those_that_divide():
    run = _run()
    found = list(layouts(run, Space(recompute=("none",), sharding=("optimizer",), micro_batch=(1,))))
    assert len(set(found)) == len(found) > 50
    for x in found:
        assert 16 % (x.tp * x.pp * x.cp) == 0 and 32 % (x.pp * x.vpp) == 0 and (x.pp > 1 or x.vpp == 1) and x.ep == 1
    brute = {
        (tp, pp, vpp, cp)
        for tp, pp, vpp, cp in itertools.product((1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32), (1, 2, 4, 8))
        if 16 % (tp * pp * cp) == 0 and 32 % (pp * vpp) == 0 and (pp > 1 or vpp == 1) and 32 % (16 // (tp * pp * cp)) == 0
    }
    assert {(x.tp, x.pp, x.vpp, x.cp) for x in found} == brute
    legal = [x for x in found if not problem(run, training_of(run.workload, x))]
    assert 0 < len(legal) <= len(found)


def test_experts_are_spread_over_what_holds_them():
    run = _run(model={"use": "qwen3_30b_a3b"}, experts={"dispatcher": "alltoall"})
    found = list(layouts(run, Space(tp=(1,), pp=(1,), cp=(1,), recompute=("none",), sharding=("optimizer",), micro_batch=(1,))))
    assert [x.ep for x in found] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    "layout",
    [
        Layout(4, 2, 1, 1, 1, 1, "none", "optimizer"),
        Layout(2, 4, 2, 1, 1, 1, "full", "optimizer"),
        Layout(8, 1, 1, 1, 1, 2, "selective", "optimizer"),
        Layout(2, 2, 4, 2, 1, 1, "none", "optimizer"),
        Layout(4, 1, 1, 1, 1, 1, "none", "full"),
    ],
    ids=lambda layout: layout.name,
)
def test_estimates_are_near_the_flow_engine(layout, tmp_path):
    run = _run()
    estimate = Model(run, 0.94).estimate(layout, training_of(run.workload, layout))
    summary = _flow(run, layout, tmp_path)
    assert estimate.time_s == pytest.approx(summary["iteration_time_s"], rel=0.12)
    assert (estimate.memory - RESERVED) / 2**30 == pytest.approx(summary["peak_memory_gib"], rel=0.05)
    assert estimate.mfu == pytest.approx(summary["mfu"], rel=0.12)


def test_the_best_of_an_exhaustive_search_is_found(tmp_path):
    run, search = _run(), Search(name="x", base="", space=GRID, refine=6)
    found = estimated(run, search)
    feasible = [c.layout for c in found if not c.why]
    times = {layout: _flow(run, layout, tmp_path)["iteration_time_s"] for layout in feasible}
    best = min(times, key=lambda layout: times[layout])
    asked = [p.labels[0] for p in points(run, found, search)]
    assert len(asked) <= 6 < len(feasible)
    assert best.name in asked


def test_memory_and_estimates_say_why_the_others_lost(tmp_path):
    search = Search(name="x", base="", space=replace(GRID, tp=(1, 8), sharding=("none", "optimizer")), memory=0.5, refine=2)
    run = _run()
    found = refined(run, estimated(run, search), search, results_in(tmp_path))
    reasons = " ".join(c.why for c in found)
    assert "parameters do not fit" in reasons or "activations do not fit" in reasons
    assert "missing" in reasons and "against that of the best" in reasons


def test_a_thousand_layouts_a_second():
    """Counted in calls of functions, of which one takes half a microsecond on a slow core: the clock would tell what else the core does."""
    run = from_data(BASE | {"topology": {"use": "dgx_h100", "nodes": 8}, "workload": BASE["workload"] | {"global_batch": 128}})
    search = Search(name="x", base="")
    estimated(run, replace(search, space=replace(GRID, tp=(2,))))
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        found = estimated(run, search)
    finally:
        sys.setprofile(before)
    assert len(found) > 3000 and calls < 2000 * len(found)


def test_knobs_are_turned_towards_the_best_and_the_same_seed_repeats():
    pytest.importorskip("optuna")
    turned = (Knob("a", 1, 1000), Knob("b", 1, 64, whole=True))
    tried = knobs.optimise(turned, 30, 1, 3, lambda v: ((v["a"] / 30 - 1) ** 2 + abs(v["b"] - 8),))
    assert tried == knobs.optimise(turned, 30, 1, 3, lambda v: ((v["a"] / 30 - 1) ** 2 + abs(v["b"] - 8),))
    (best,) = knobs.best(tried)
    assert best.objectives[0] == min(t.objectives[0] for t in tried) < 3
    assert len(knobs.best([*tried, best._replace(knobs=(0.0, 0.0))])) == 1
    two = knobs.optimise(turned, 10, 2, 3, lambda v: (v["a"], -v["a"]) if v["b"] > 4 else ())
    assert len(knobs.best(two)) == len([t for t in two if t.objectives]) > 1


def test_command_finds_and_explains(tmp_path, netsim):
    (tmp_path / "base.yaml").write_text(json.dumps(BASE))
    (tmp_path / "search.yaml").write_text(
        "name: s\nbase: base.yaml\nrefine: 2\n"
        "space: {tp: [4, 8], pp: [1, 2], vpp: [1], cp: [1], micro_batch: [1], recompute: [none], sharding: [optimizer]}\n"
        "knobs: [{field: workload.data_parallel.bucket_size, low: 10000000, high: 1000000000, whole: true}]\ntrials: 4\n"
    )
    done = netsim("search", "search.yaml", "--jobs", "1", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["layouts"] == 4 and 0.2 < said["mfu"] < 0.7 and said["knobs"]
    with (tmp_path / "results" / "searches" / "s" / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["why"] == "the best" and float(rows[0]["time_s"]) <= float(rows[1]["time_s"]) and rows[2]["time_s"] == ""
    assert said["best"]["tp"] == int(rows[0]["tp"])
    nothing = netsim("search", "search.yaml", "--estimate", "--quiet", "--json")
    assert nothing.returncode == 0
    said = json.loads(nothing.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert said["time_s"] is said["mfu"] is None and said["estimate_time_s"] > 0
    assert "--jobs: expected a whole number of at least 1; got '-1'" in netsim("search", "search.yaml", "--jobs", "-1").stderr
    (tmp_path / "small.yaml").write_text("name: s\nbase: base.yaml\nmemory: 0.01\n")
    assert "expected a space with a layout that can be" in netsim("search", "small.yaml").stderr


def test_search_file_is_checked(tmp_path: Path):
    from netsim.errors import InputError

    (tmp_path / "s.yaml").write_text("name: s\nbase: b\nspace: {tp: [0]}\nknobs: [{field: a, low: 2, high: -1}]\n")
    with pytest.raises(InputError) as error:
        load_section(tmp_path / "s.yaml", Search)
    assert len(error.value.lines) == 2
    (tmp_path / "s.yaml").write_text("name: a/b\nbase: b\nobjectives: []\n")
    with pytest.raises(InputError) as error:
        load_section(tmp_path / "s.yaml", Search)
    assert [line.partition("expected")[2].partition(";")[0] for line in error.value.lines] == [
        " a name that can be a folder's",
        " a metric of a run, such as iteration_time_s",
    ]


def test_agreement_of_estimates_and_simulations():
    def candidate(tp, estimate, time_s):
        return Candidate(Layout(tp, 1, 1, 1, 1, 1, "none", "optimizer"), Estimate(estimate, 0.4, 1e9), time_s)

    found = [candidate(1, 10.5, 10.8), candidate(2, 10.0, 11.0), candidate(4, 12.0, 12.0), candidate(8, 13.0, float("nan"))]
    said = agreement(found)
    assert "3 layouts simulated: 1.00 to 1.10 times their estimate (median 1.03)" in said
    assert "the best was number 2 by estimate, the best by estimate is +1.9% against it" in said
    assert agreement(found[:1]) == ""


def test_exhaustive_simulates_all_that_the_margin_lets_in():
    found = estimated(_run(), replace(Search("s", "b"), space=GRID))
    possible = [c for c in found if c.estimate.time_s <= found[0].estimate.time_s * 1.5]
    assert len(list(points(_run(), found, Search("s", "b", refine=2)))) == 2
    assert len(list(points(_run(), found, Search("s", "b", refine=1 << 62)))) == len(possible) > 2
