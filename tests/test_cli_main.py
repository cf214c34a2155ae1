"""The program as a user meets it: help, wrong commands and files, exit codes, interruption, and many ranks that speak once."""

import signal
from pathlib import Path

import pytest

from netsim.cli.main import commands, usage
from tests.conftest import PATIENCE_S, Cli, start

BASE = Path(__file__).parent / "golden" / "base.yaml"


def test_help_lists_every_command_without_importing_it(python: Cli) -> None:
    code = "import sys; from netsim.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    shown = python("-c", code)
    assert shown.stdout == usage() + "\n"
    assert not {"numpy", "yaml", "mpi4py", "netsim.config", "netsim.cli.run"} & set(shown.stderr.split())
    for name, line in commands().items():
        assert f"  {name}" in shown.stdout and line in shown.stdout


def test_every_command_has_help_that_stands_alone(netsim: Cli) -> None:
    for name in commands():
        shown = netsim(name, "--help")
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.startswith(f"usage: netsim {name}")


def test_version(netsim: Cli) -> None:
    from netsim import __version__

    assert netsim("--version").stdout == f"netsim {__version__}\n"


def test_unknown_command(netsim: Cli) -> None:
    ended = netsim("chek", "x.yaml")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.endswith("got 'chek'; did you mean 'check'?\n") and ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "netsim run: the following arguments are required: FILE"),
        (["run", "a.yaml", "--sett", "x"], "netsim run: unrecognized arguments: --sett x"),
        (["run", "absent.yaml"], "absent.yaml: expected a YAML file; got no such file"),
    ],
)
def test_wrong_arguments(netsim: Cli, words: list[str], said: str) -> None:
    ended = netsim(*words)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[0] == said
    assert "Traceback" not in ended.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("words", [["run", BASE, "--set", "seed=-1"], ["check", BASE, "--set", "a=1"], ["run", BASE, "--no"]], ids=str)
def test_many_ranks_say_it_once(netsim: Cli, words: list[str | Path]) -> None:
    alone, many = netsim(*words), netsim(*words, ranks=4)
    assert many.returncode == alone.returncode == 2
    said = alone.stderr.splitlines()
    assert many.stderr.splitlines()[: len(said)] == said, "Open MPI's mpirun adds lines of its own"
    assert all(many.stderr.count(line) == 1 for line in said)
    assert many.stdout == alone.stdout == ""


@pytest.mark.mpi
def test_a_command_that_needs_no_mpi_runs_once_under_mpirun(netsim: Cli) -> None:
    assert netsim("--version", ranks=3).stdout.count("netsim") == 1
    assert netsim("explain", "topology.link", ranks=3).stdout == netsim("explain", "topology.link").stdout


def test_results_that_cannot_be_written(netsim: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = netsim("run", BASE, "--out", tmp_path / "file" / "results")
    assert ended.returncode == 2
    assert ended.stderr == f"{tmp_path}/file/results: expected a folder that can be written; got: not a directory\n"


def test_a_run_that_cannot_be_names_the_place_and_leaves_nothing(netsim: Cli, tmp_path: Path) -> None:
    ended = netsim("run", BASE, "--quiet", "--set", "workload.parallel.dp=3", "--out", tmp_path / "results")
    assert ended.returncode == 2
    assert ended.stderr == "--set workload.parallel.dp: expected tp x pp x cp x dp = 16 GPUs, so 4; got 3\n"
    assert not (tmp_path / "results").exists()


def test_a_run_that_turns_out_to_be_none_leaves_nothing(netsim: Cli, tmp_path: Path) -> None:
    words = ["run", BASE, "--quiet", "--set", "network.engine=packet", "--set", "network.pfc.xoff=7", "--out", tmp_path / "results"]
    ended = netsim(*words)
    assert ended.returncode == 2
    assert "network.pfc: expected xoff of at least a packet" in ended.stderr
    assert not (tmp_path / "results").exists()


def test_an_override_that_is_no_text(netsim: Cli) -> None:
    ended = netsim("run", BASE, "--set", "name=\udcff")
    assert ended.returncode == 2
    assert ended.stderr == "--set name: expected text in UTF-8; got other bytes\n"


def test_reader_that_goes_away_is_no_error(python: Cli) -> None:
    code = """
import os, sys
from netsim.cli.main import main
read, write = os.pipe(); os.close(read)
sys.stdout = os.fdopen(write, "w", buffering=1)
sys.exit(main(["--help"]))
"""
    ended = python("-c", code)
    assert (ended.returncode, ended.stderr) == (0, "")


SLEEPING = """
import sys, time
from netsim import parallel
from netsim.cli import main

def sleep(words):
    parallel.start()
    print("ready", flush=True) if parallel.world().rank == 0 else None
    time.sleep(1000)

main._run = sleep
sys.exit(main.main([]))
"""


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.mpi)])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"])
def test_interrupted(tmp_path: Path, ranks: int, number: signal.Signals, code: int) -> None:
    process = start(ranks, ["-c", SLEEPING], tmp_path, {})
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err
    assert process.returncode == code or (ranks > 1 and process.returncode), err  # of many ranks, mpirun chooses the code
