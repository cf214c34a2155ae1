"""Shared by all tests: `--bless` rewrites golden results, one thread per process, and the run of `netsim` as a user starts it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from netsim.launch import quiet_threads

quiet_threads()
settings.register_profile("netsim", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("netsim")
ROOT = Path(__file__).resolve().parent.parent
Cli = Callable[..., subprocess.CompletedProcess[str]]
PATIENCE_S = 300.0
"""After so long something hangs. No test asks how fast a process is: a machine may be busy, and kernels may have to be compiled first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite golden results with what the code gives now")


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--bless"))


def mpirun() -> str | None:
    """The launcher that the variable MPIRUN names, or that of the MPI library in this environment."""
    if "MPIRUN" in os.environ:
        return shutil.which(os.environ["MPIRUN"])
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else shutil.which("mpirun")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `mpi` need a launcher; the mpi extra brings one."""
    if mpirun() is None:
        for item in items:
            if item.get_closest_marker("mpi"):
                item.add_marker(pytest.mark.skip(reason="no mpirun: pip install 'netsim-llm[mpi]'"))


def _environment(extra: dict[str, str]) -> dict[str, str]:
    """This process's environment less a launcher's variables; the project importable from any folder; all ranks work, cores or not."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PMI_", "OMPI_COMM_", "SLURM_", "MPI_LOCAL"))}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    return clean | root | {"PYTHONPATH": str(ROOT), "NETSIM_RANKS_PER_NODE": "64"} | extra


def _interruptible() -> None:
    """A shell starts what it puts in the background deaf to SIGINT, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(ranks: int, words: list[str], cwd: Path, extra: dict[str, str]) -> "subprocess.Popen[str]":
    """Start `python WORDS` on one or more ranks."""
    launcher = [str(mpirun()), "-n", str(ranks)] if ranks > 1 else []
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    pipes["preexec_fn"] = _interruptible
    return subprocess.Popen([*launcher, sys.executable, *words], cwd=cwd, text=True, env=_environment(extra), **pipes)


def until(process: "subprocess.Popen[str]", reached: Callable[[], bool]) -> None:
    """Wait until a run has got so far; fails when it ends before."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def filled(*files: Path) -> Callable[[], bool]:
    """Whether all of these files are there and hold something."""
    return lambda: all(file.exists() and file.stat().st_size for file in files)


@pytest.fixture
def python(tmp_path: Path) -> Cli:
    """Run `python WORDS` in a fresh folder, on `ranks` ranks; returns what it printed and its exit code."""

    def run(*words: str | Path, ranks: int = 1, timeout: float = PATIENCE_S, **extra: str) -> subprocess.CompletedProcess[str]:
        process = start(ranks, [str(w) for w in words], tmp_path, extra)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


@pytest.fixture
def netsim(python: Cli) -> Cli:
    """Run `python -m netsim WORDS` in a fresh folder."""
    return lambda *words, **options: python("-m", "netsim", *words, **options)
