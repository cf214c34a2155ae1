"""The nccl-test command: its table, its groups, and the fluid engine against the closed form of plans on an idle fabric."""

import json

import pytest

from netsim.cli.main import main
from netsim.cli.nccl_test import size
from netsim.collectives import idle_us, plan
from netsim.config.nccl import Nccl
from tests.collectives_cases import H100, comm

CLUSTER = ["--cluster", "dgx_h100_superpod", "--set", "nodes=4"]


def table(capsys, *words):
    assert main(["nccl-test", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_table_equals_the_closed_form_on_an_idle_fabric(capsys):
    rows = table(capsys, "all_reduce", *CLUSTER, "-b", "8", "-e", "512M", "-f", "64")["rows"]
    assert [r["size"] for r in rows] == [8, 512, 32768, 2**21, 2**27]
    for r in rows:
        expected = idle_us(plan("all_reduce", r["size"], comm(4), H100._replace(rails_joined=False, wire_us=(0.5, 1.2)), Nccl()))
        assert r["time_us"] == pytest.approx(expected, rel=0.001)
        assert r["busbw_GBs"] == pytest.approx(r["algbw_GBs"] * 62 / 32, rel=1e-2, abs=2e-3)
    assert [r["algorithm"] for r in rows] == ["tree", "tree", "tree", "tree", "nvls_tree"]


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv", "gather"])
def test_every_operation_has_a_time(capsys, op):
    (row,) = table(capsys, op, *CLUSTER, "--nodes", "2", "-b", "4M", "-e", "4M")["rows"]
    assert row["time_us"] > 0
    assert row["count"] == 2**20 // (16 if op in ("all_gather", "reduce_scatter", "alltoall", "gather") else 1)


def test_rails_do_not_slow_each_other(capsys):
    """Eight all-gathers, one per rail, take as long together as one alone."""
    words = ["all_gather", *CLUSTER, "-b", "64M", "-e", "64M"]
    together = table(capsys, *words, "--split", "MOD8")
    alone = table(capsys, *words, "-g", "1")
    assert together["groups"] == 8
    assert together["rows"][0]["time_us"] == pytest.approx(alone["rows"][0]["time_us"], rel=1e-6)


def test_traffic_across_rails_collapses_through_a_thin_spine(capsys):
    """An all-to-all with relays stays on its rails, under one leaf each; without, seven eighths of it go through the spine."""
    words = ["alltoall", *CLUSTER[:3], "nodes=16", "--set", "leaf.oversubscription=8", "-b", "256M", "-e", "256M"]
    relayed = table(capsys, *words)["rows"][0]["time_us"]
    crossing = table(capsys, *words, "--set", "NCCL_PXN_DISABLE=1")["rows"][0]["time_us"]
    assert crossing > 1.5 * relayed


def test_variables_are_read_and_wrong_ones_explained(capsys):
    words = ["all_reduce", *CLUSTER, "-b", "1M", "-e", "1M"]
    assert table(capsys, *words, "--set", "NCCL_ALGO=Ring", "--set", "NCCL_PROTO=Simple")["rows"][0]["algorithm"] == "ring"
    assert main(["nccl-test", *words, "--set", "NCCL_ALGOS=Ring"]) == 2
    assert "did you mean 'NCCL_ALGO'" in capsys.readouterr().err
    assert main(["nccl-test", *words, "--nodes", "5"]) == 2
    assert "--nodes: expected 1 to 4, as the cluster has; got 5" in capsys.readouterr().err
    assert main(["nccl-test", *words, "--split", "EVERY2"]) == 2
    assert "MODn or DIVn" in capsys.readouterr().err


def test_csv(capsys, tmp_path):
    file = tmp_path / "t.csv"
    table(capsys, "all_gather", *CLUSTER, "-b", "1M", "-e", "4M", "-f", "2", "--csv", str(file))
    lines = file.read_text().splitlines()
    assert lines[0].startswith("size,count,type") and len(lines) == 4


def test_sizes_are_those_of_nccl_tests():
    assert [size(t) for t in ("8", "128M", "8G", "16 KiB")] == [8, 2**27, 2**33, 16384]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "0"], "--nodes: expected 1 to 4, as the cluster has; got 0"),
        (["--ngpus", "0"], "--ngpus: expected 1 to 8, as the cluster has; got 0"),
        (["--nodes", "1", "--ngpus", "1"], "expected at least 2 ranks in every group; got 1"),
        (["--split", "MOD32"], "expected at least 2 ranks in every group; got 1"),
        (["--split", "MOD\u00b2"], "--split: expected MODn or DIVn, such as MOD8"),
        (["--stepfactor", "0"], "-f of at least 2"),
        (["--csv", "absent/table.csv"], "absent/table.csv: expected a file in a folder that exists; got no such folder"),
    ],
    ids=str,
)
def test_wrong_arguments_are_one_line(capsys, words, said):
    assert main(["nccl-test", "all_reduce", *CLUSTER, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
