"""Batch jobs: what the scripts ask for, and a real Slurm of one node that runs them."""

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from netsim.config.slurm import Slurm
from netsim.study.batch import run_job, study_job
from tests.conftest import PATIENCE_S, ROOT, _environment, filled, mpirun

MINUTE = 60 * 10**12
RUN = """
topology: {use: dgx_h100, nodes: 2}
workload: {kind: training, model: {use: mpt_125m}, sequence: 1024, global_batch: 16}
compute: {device: {use: h100}}
telemetry: {interval: 1 ms}
slurm: {partition: test, ranks_per_node: 2, time: 10 min}
"""
STUDY = """
name: rates
title: Rates
base: run.yaml
axes: [{name: NIC, field: topology.link.rate, values: [400 Gbps, 200 Gbps, 100 Gbps, 50 Gbps, 25 Gbps]}]
metrics: [iteration_time_s]
slurm: {nodes: 2, ranks_per_node: 1, time: 5 min}
"""


def _options(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]


def test_a_run_asks_for_what_its_section_says():
    asked = Slurm(
        partition="gpu", account="abc", qos="low", nodes=4, ranks_per_node=16, time=90 * MINUTE, memory=3 * 2**30,
        modules=("gcc", "mpich/4"), venv="/opt/env", options=("--exclusive",),
    )  # fmt: skip
    job = run_job("big", Path("runs/big.yaml"), asked, ["--out", "x"], limited=False)
    assert _options(job.script) == [
        "--job-name=big", "--nodes=4", "--ntasks-per-node=16", "--output=%x-%j.log", "--signal=B:TERM@120", "--time=1:30:00",
        "--partition=gpu", "--account=abc", "--qos=low", "--mem=3072M", "--exclusive",
    ]  # fmt: skip
    assert "module load gcc mpich/4\nsource /opt/env/bin/activate\n" in job.script and "# setup\n" not in job.script
    assert job.arguments == ["runs/big.yaml", "--set", "simulate.max_wall=5280 s", "--out", "x"]
    assert run_job("big", Path("f"), asked, [], limited=True).arguments == ["f"]


def test_a_container_takes_the_place_of_a_venv():
    job = run_job("x", Path("x.yaml"), Slurm(container="images/netsim.sif"), [], False)
    assert "NETSIM_INSIDE='apptainer exec images/netsim.sif'\nNETSIM_LAUNCH='srun --mpi=pmi2'\n" in job.script


@pytest.mark.parametrize(("todo", "array", "side"), [(100, "0-3", 8), (20, "0-2", 8), (3, "0-0", 3)])
def test_a_study_asks_for_no_more_tasks_than_it_has_points(todo, array, side):
    job = study_job("s", Path("s.yaml"), Slurm(nodes=4, ranks_per_node=8), [], todo)
    assert f"--array={array}" in _options(job.script) and f"--cpus-per-task={side}" in _options(job.script)


@pytest.mark.parametrize("kind", ["run", "study"])
def test_scripts_are_bash(kind):
    assert subprocess.run(["bash", "-n", ROOT / "slurm" / f"{kind}.sbatch"]).returncode == 0


def test_dry_run_shows_the_script(netsim, tmp_path):
    (tmp_path / "run.yaml").write_text(RUN)
    (tmp_path / "study.yaml").write_text(STUDY)
    shown = netsim("submit", "run.yaml", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "#SBATCH --partition=test" in shown.stdout
    assert "# submitted with: run.yaml --set 'simulate.max_wall=480 s' --out results/run" in shown.stdout
    shown = netsim("submit", "study.yaml", "--dry-run")
    assert "#SBATCH --array=0-1" in shown.stdout and "# submitted with: study.yaml --out results/studies/rates --quiet" in shown.stdout
    assert not (tmp_path / "results").exists()
    shown = netsim("submit", "run.yaml", "--dry-run", "--json")
    said = json.loads(shown.stdout.splitlines()[-1])
    assert shown.stdout.startswith(said["script"]) and said["arguments"][0] == "run.yaml" and said["job"] is None
    assert "#SBATCH --job-name='a b'\n" in netsim("submit", "run.yaml", "--dry-run", "--set", "name=a b").stdout
    refused = netsim("submit", "run.yaml", "--dry-run", "--set", 'slurm.qos="a\\n#SBATCH --exclusive"')
    assert refused.returncode == 2 and "slurm.qos: expected one line of plain text" in refused.stderr


# --- a real Slurm ----------------------------------------------------------------------------------------------------

LONG = ("--set", "simulate.iterations=5000000", "--set", "simulate.fold=off", "--set", "telemetry.interval=1 s")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel")


class Node:
    """A Slurm of one node, and the folder in which jobs are submitted."""

    def __init__(self, folder: Path, conf: str) -> None:
        bin_first = f"{Path(sys.executable).parent}:{Path(str(mpirun())).parent}:{os.environ['PATH']}"
        self.folder, self.late = folder, ""
        self.environment = _environment({"SLURM_CONF": conf, "PATH": bin_first, "NETSIM_RANKS_PER_NODE": "2"})

    def call(self, *words: str) -> str:
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def netsim(self, *words: str) -> str:
        return self.call(sys.executable, "-m", "netsim", *words)

    def submit(self, file: str, *words: str) -> str:
        return str(json.loads(self.netsim("submit", file, "--json", *words).splitlines()[-1])["job"])

    def state(self, job: str) -> set[str]:
        return set(self.call("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").split())

    def wait(self, job: str, *states: str) -> set[str]:
        end = time.monotonic() + PATIENCE_S
        while not (now := self.state(job)) <= set(states):
            assert time.monotonic() < end and not now & {"FAILED", "TIMEOUT"}, f"{now}: {self.log(job)}"
            time.sleep(0.2)
        return now

    def wait_until_played(self, out: str, job: str) -> None:
        """Wait until a run has simulated so much that it leaves something when it is told to end."""
        end, reached = time.monotonic() + PATIENCE_S, filled(self.folder / out / "spool" / "frame.json")
        while not reached():
            assert time.monotonic() < end and self.state(job) <= {"PENDING", "RUNNING"}, f"{self.state(job)}: {self.log(job)}"
            time.sleep(0.2)

    def ends_cut_short(self, out: str, job: str, states: set[str]) -> None:
        """Wait for the end in one of `states`, with results that say that they are not complete."""
        end = time.monotonic() + PATIENCE_S
        while not (now := self.state(job)) <= {"FAILED", "COMPLETED", "TIMEOUT"}:
            assert time.monotonic() < end, self.log(job)
            time.sleep(0.2)
        assert now <= states, f"{now}: {self.log(job)}"
        assert (self.folder / out / "result.h5").exists(), self.log(job)
        assert not json.loads((self.folder / out / "summary.json").read_text())["complete"]

    def log(self, job: str) -> str:
        return "\n".join(p.read_text() for p in sorted(self.folder.glob(f"*-{job}*.log")))


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no Slurm ({', '.join(missing)}): apt-get install slurmctld slurmd slurm-client munge")
    if os.geteuid() != 0 or mpirun() is None:
        pytest.skip("a Slurm of one node needs root, and mpirun")
    folder = tmp_path_factory.mktemp("slurm")
    script = str(ROOT / "tests" / "slurm_node.sh")
    up = subprocess.run([script, "start", str(folder)], capture_output=True, text=True, timeout=PATIENCE_S)
    try:
        assert up.returncode == 0, up.stderr
        work = folder / "work"
        work.mkdir()
        (work / "run.yaml").write_text(RUN)
        (work / "study.yaml").write_text(STUDY)
        one = Node(work, up.stdout.strip())
        one.netsim("run", "run.yaml", "--quiet")  # compiles what the jobs need
        one.late = one.submit("run.yaml", "--out", "late", *LONG, "--set", "slurm.time=2 min")
        yield one
    finally:
        subprocess.run([script, "stop", str(folder)], timeout=PATIENCE_S)


def test_a_job_runs_over_mpi_and_leaves_its_results(node):
    job = node.submit("run.yaml", "--out", "one")
    node.wait(job, "COMPLETED")
    summary = json.loads((node.folder / "one" / "summary.json").read_text())
    assert summary["complete"] and summary["ranks"] == 2, node.log(job)
    assert (node.folder / "one" / "result.h5").exists()


def test_an_array_does_a_study_and_collect_makes_the_table(node):
    job = node.submit("study.yaml", "--out", "many")
    node.wait(job, "COMPLETED")
    node.netsim("study", "study.yaml", "--collect", "--quiet", "--out", "many")
    with (node.folder / "many" / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["done"] * 5, node.log(job)
    times = [float(row["iteration_time_s"]) for row in rows]
    assert times == sorted(times) and times[0] < times[-1]


def test_a_cancelled_job_ends_and_the_next_one_runs(node):
    job = node.submit("run.yaml", "--out", "cancelled", *LONG)
    node.wait(job, "RUNNING")
    node.call("scancel", job)
    assert node.wait(job, "CANCELLED") == {"CANCELLED"}
    summary = node.folder / "cancelled" / "summary.json"  # there if the run had begun when it was cancelled
    assert not summary.exists() or not json.loads(summary.read_text())["complete"]
    node.wait(node.submit("run.yaml", "--out", "next"), "COMPLETED")


def test_told_to_end_or_at_the_end_of_its_own_clock_a_run_writes_what_it_has(node):
    """`scancel --batch --signal=TERM` is what Slurm does by itself before the limit."""
    told = node.submit("run.yaml", "--out", "told", *LONG)
    clock = node.submit("run.yaml", "--out", "clock", *LONG, "--set", "simulate.max_wall=5 s")
    assert node.wait(clock, "COMPLETED") == {"COMPLETED"}
    node.wait_until_played("told", told)
    node.call("scancel", "--batch", "--signal=TERM", told)
    node.ends_cut_short("told", told, {"FAILED"})  # 143, as if the signal had ended it
    node.ends_cut_short("clock", clock, {"COMPLETED"})


def test_a_job_that_runs_out_of_time_writes_what_it_has(node):
    """Submitted first of all, with a limit of two minutes; Slurm may give its signal a minute early."""
    node.ends_cut_short("late", node.late, {"FAILED", "COMPLETED"})
