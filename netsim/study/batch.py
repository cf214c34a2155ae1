"""Batch jobs: the scripts in slurm/ with their options and set-up taken from a run file or a study file, and handed to sbatch."""

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import netsim
from netsim.config.slurm import Slurm
from netsim.errors import InputError

PS_PER_S = 10**12
SETUP = "# setup\n"


class Job(NamedTuple):
    """A script, the arguments that it is given, and the name of the job."""

    name: str
    script: str
    arguments: list[str]


def options(name: str, asked: Slurm, shape: list[str]) -> list[str]:
    """The options of sbatch that a section asks for; `shape` are those of the kind of job."""
    seconds = -(-asked.time // PS_PER_S)
    found = [f"--job-name={shlex.quote(name)}", *shape, f"--time={seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"]
    found += [f"--{key}={shlex.quote(getattr(asked, key))}" for key in ("partition", "account", "qos") if getattr(asked, key)]
    if asked.memory is not None:
        found.append(f"--mem={-(-asked.memory // 2**20)}M")
    return [*found, *asked.options]


def margin_s(asked: Slurm) -> int:
    """Seconds before the limit at which a run is told to end: two minutes, or a third of a short job."""
    return max(1, min(120, asked.time // PS_PER_S // 3))


def run_job(name: str, file: Path, asked: Slurm, arguments: list[str], limited: bool) -> Job:
    """The job of one run. Unless it is `limited` by itself, the run ends by its own clock before the job does."""
    shape = [f"--nodes={asked.nodes}", f"--ntasks-per-node={asked.ranks_per_node}", "--output=%x-%j.log"]
    shape.append(f"--signal=B:TERM@{margin_s(asked)}")
    own = [] if limited else ["--set", f"simulate.max_wall={asked.time // PS_PER_S - margin_s(asked)} s"]
    return Job(name, _script("run", options(name, asked, shape), asked), [str(file), *own, *arguments])


def study_job(name: str, file: Path, asked: Slurm, arguments: list[str], todo: int) -> Job:
    """The array job of a study with `todo` points to simulate: `nodes` tasks with `ranks_per_node` points side by side in each."""
    side = min(asked.ranks_per_node, todo)
    tasks = min(asked.nodes, -(-todo // side))
    shape = [f"--array=0-{tasks - 1}", f"--cpus-per-task={side}", "--output=%x-%A_%a.log", "--requeue"]
    return Job(name, _script("study", options(name, asked, shape), asked), [str(file), *arguments])


def _script(kind: str, wanted: list[str], asked: Slurm) -> str:
    """A script of slurm/ with other #SBATCH lines and set-up."""
    lines = _ready(kind).splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith("#SBATCH"))
    rest = [line for line in lines if not line.startswith("#SBATCH")]
    text = "".join([*rest[:first], *(f"#SBATCH {option}\n" for option in wanted), *rest[first:]])
    assert text.count(SETUP) == 1, f"slurm/{kind}.sbatch: expected one line '# setup'"
    return text.replace(SETUP, _setup(kind, asked))


def _setup(kind: str, asked: Slurm) -> str:
    lines = [f"module load {shlex.join(asked.modules)}"] if asked.modules else []
    if asked.venv:
        lines.append(f"source {shlex.quote(asked.venv + '/bin/activate')}")
    if asked.container:
        lines.append(f"NETSIM_INSIDE={shlex.quote(f'apptainer exec {asked.container}')}")
        lines += ["NETSIM_LAUNCH='srun --mpi=pmi2'"] if kind == "run" else []
    return "".join(line + "\n" for line in lines)


def _ready(kind: str) -> str:
    """The text of slurm/KIND.sbatch, of the project's folder or of the installed package."""
    package = Path(netsim.__file__).parent
    for folder in (package.parent / "slurm", package / "slurm"):
        if (folder / f"{kind}.sbatch").is_file():
            return (folder / f"{kind}.sbatch").read_text(encoding="utf-8")
    raise InputError(f"slurm/{kind}.sbatch: expected it beside the package netsim in {package.parent}; there is none")


def submit(job: Job, folder: Path) -> str:
    """Leave the script in `folder`, submit it from the working directory, and return the number of the job."""
    if shutil.which("sbatch") is None:
        raise InputError("sbatch: expected Slurm's command on the PATH; there is none (--dry-run prints the script)")
    script = folder / "job.sbatch"
    script.write_text(job.script, encoding="utf-8")
    done = subprocess.run(["sbatch", "--parsable", str(script), *job.arguments], capture_output=True, text=True)
    if done.returncode:
        raise InputError([f"sbatch: {line}" for line in done.stderr.strip().splitlines()] or "sbatch: failed without a word")
    return done.stdout.strip().split(";")[0]
