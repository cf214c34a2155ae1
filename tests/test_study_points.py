"""Study files: which points they make, what is refused, and how a table is gathered."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from netsim.config.study import Constraint, Figure
from netsim.errors import InputError
from netsim.study.figures import draw, front
from netsim.study.page import filled
from netsim.study.points import points, read
from netsim.study.results import DONE, FAILED, Result, find, path_of, save
from netsim.study.table import Row, broken, columns, gather, rows
from netsim.telemetry.table import read_table, write_table

STUDY = """
name: small
title: A small study
base: base.yaml
set: {topology: {nodes: 2}}
axes:
  - {name: NIC, variants: {fast: {topology.link.rate: 400 Gbps}, slow: {topology.link: {rate: 100 Gbps}}}}
  - {name: layout, zip: {workload.parallel.tp: [8, 4], workload.parallel.pp: [1, 2]}, labels: [wide, deep]}
  - {name: batch, field: workload.global_batch, values: [16, 32, 17]}
seeds: [1, 2]
metrics: [iteration_time_s, peak_memory_gib]
constraints: [{metric: peak_memory_gib, at_most: 70}]
"""
BASE = """
topology: {use: dgx_h100}
workload: {kind: training, model: {use: mpt_125m}, sequence: 1024, global_batch: 16}
compute: {device: {use: h100}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path / "study.yaml"


def test_points_are_all_combinations_in_order(file):
    found = points(read(file), file)
    assert len(found) == 2 * 2 * 3 * 2
    assert ["/".join(p.labels) for p in found[::2]][:4] == ["fast/wide/16", "fast/wide/32", "fast/wide/17", "fast/deep/16"]
    first, last = found[0].run, found[-1].run
    assert (first.topology.link.rate, first.workload.parallel.tp, first.seed) == (50e9, 8, 1)
    assert (last.topology.link.rate, last.workload.parallel.pp, last.workload.global_batch, last.seed) == (12.5e9, 2, 17, 2)
    assert last.topology.nodes == 2
    assert len({p.key for p in found}) == len(found)


def test_keys_follow_the_configuration_and_the_prices_not_the_labels(file):
    study = read(file)
    keys = [p.key for p in points(study, file)]
    file.write_text(STUDY.replace("fast:", "quick:"))
    assert [p.key for p in points(read(file), file)] == keys
    file.write_text(STUDY + "prices: {nic_400: 1}\n")
    assert not set(keys) & {p.key for p in points(read(file), file)}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("name: batch, field: workload.global_batch", "name: batch", "study.yaml:9:5: axes.2.field: expected a field with values"),
        ("[8, 4]", "[8]", "axes.1.zip: expected as many values for every field"),
        ("labels: [wide, deep]", "labels: [wide]", "axes.1.labels: expected one label for each of the 2 values"),
        ("name: NIC,", "name: batch,", "axes: expected axes with names that differ"),
        ("at_most: 70", "at_mots: 70", "constraints.0.at_mots: expected one of metric, at_most, at_least"),
        ("base.yaml", "bose.yaml", "no such file"),
        ("topology: {nodes: 2}", "topology: {nodse: 2}", "did you mean 'nodes'?"),
        ("name: ", "seeds: [1, 1]\nname: ", "seeds: expected every seed once; got 1, 1"),
        ("name: ", "prices: {nic_400: -1}\nname: ", "prices.nic_400: expected a number of at least 0; got -1"),
        ("at_most: 70", "at_most: .nan", "constraints.0.at_most: expected a number; got nan"),
    ],
)
def test_mistakes_are_told_with_their_place(file, old, new, says):
    file.write_text(STUDY.replace(old, new, 1) if old == "name: " else STUDY.replace(old, new))
    with pytest.raises(InputError, match=r".") as error:
        points(read(file), file)
    assert says in str(error.value)


def test_a_point_that_cannot_be_keeps_its_reason_and_the_others_go_on(file):
    file.write_text(STUDY.replace("[16, 32, 17]", "[16, -3]"))
    found = points(read(file), file)
    assert [p.run is None for p in found[:4]] == [False, False, True, True]
    assert "global_batch" in found[2].problem


def test_results_are_whole_or_missing(tmp_path):
    save(tmp_path, "abc", Result(DONE, "", {"mfu": 0.5}))
    assert find(tmp_path, "abc") == Result(DONE, "", {"mfu": 0.5})
    assert [p.name for p in (tmp_path / "points").iterdir()] == ["abc.json"]
    path_of(tmp_path, "cut").write_text('{"status": "do')
    assert find(tmp_path, "cut").status == find(tmp_path, "none").status == "missing"


def test_table_has_means_over_seeds_and_what_is_infeasible(file, tmp_path):
    study = read(file)
    found = points(study, file)
    for i, point in enumerate(found):
        save(tmp_path, point.key, Result(DONE, "", {"iteration_time_s": 1.0 + i % 2, "peak_memory_gib": 60 if i < 4 else 71}))
    save(tmp_path, found[-1].key, Result(FAILED, "it broke"))
    known = gather(found, tmp_path)
    table = columns(study, known)
    assert table["feasible"][:6] == [1, 1, 1, 1, 0, 0]
    assert table["note"][4] == "peak memory 71 above 70"
    mean = rows(study, known)
    assert mean[0].values["iteration_time_s"] == 1.5 and mean[0].spread["iteration_time_s"] == pytest.approx(0.5**0.5)
    assert mean[0].feasible and not mean[2].feasible
    assert (mean[-1].status, mean[-1].note, mean[-1].values) == (FAILED, "it broke", {})


def test_constraints_in_words():
    both = (Constraint("mfu", at_least=0.4), Constraint("peak_memory_gib", at_most=80))
    assert broken(both, {"mfu": 0.41, "peak_memory_gib": 80}) == ""
    assert broken(both, {"mfu": 0.39, "peak_memory_gib": 81}) == "MFU 39 below 40; peak memory 81 above 80"


def test_pareto_front():
    points_ = [(1, 1), (2, 3), (3, 2), (2, 2), (3, 3)]
    assert front(points_, (True, False)) == [0, 1]
    assert front(points_, (False, False)) == [4]
    assert front([(1, 1), (1, 1)], (True, True)) == [0, 1]


def test_tables_come_back_from_hdf5(tmp_path):
    table = {"axis": ["a", "b"], "value": [1.5, None], "count": [1, 2]}
    write_table(tmp_path / "t.h5", table, {"study": "x"}, {"value": "s"})
    back = read_table(tmp_path / "t.h5")
    assert back["axis"] == ["a", "b"] and back["count"] == [1, 2] and back["value"][0] == 1.5 and back["value"][1] != back["value"][1]
    with pytest.raises(InputError, match="expected a table"):
        read_table(tmp_path / "none.h5")


def test_a_page_about_points_that_cannot_be_says_why(file, tmp_path):
    study, row = read(file), Row(("400 Gbps", "wide", "32"), {}, {}, "illegal", "it does not divide")
    with pytest.raises(InputError, match="expected a point with a mfu; got '400 Gbps, wide, 32', which is illegal: it does not divide"):
        filled("{mfu @ 400 Gbps, wide, 32}", study, [row])
    figure = Figure("lines", study.axes[0].name, "mfu", series=study.axes[1].name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(draw(replace(study, figures=(figure,)), [row], tmp_path)) == 1
