"""`netsim submit FILE`: render the batch script of a run file or a study file and hand it to Slurm."""

import argparse
import json
import shlex
from pathlib import Path

from netsim.cli.run import add_file_and_settings, folder_of, writable
from netsim.config import load
from netsim.config.source import read
from netsim.errors import InputError
from netsim.study.batch import Job, run_job, study_job, submit

HELP = "submit a run file or a study file to Slurm, as its section slurm asks for"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_file_and_settings(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the results, as for run and study")
    parser.add_argument("--dry-run", action="store_true", help="print the script and the arguments that it would be submitted with")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print job number and path of the script (with --dry-run the script) as one JSON document in the last line",
    )


def run(args: argparse.Namespace) -> int:
    """Submit, or say what would be submitted."""
    data = read(args.file).data
    job, folder = _study(args) if isinstance(data, dict) and "axes" in data else _run(args)
    if args.dry_run:
        print(job.script + f"# submitted with: {shlex.join(job.arguments)}")
        if args.json:
            print(json.dumps({"job": None, "script": job.script, "arguments": job.arguments}))
        return 0
    writable(folder)
    number = submit(job, folder)
    print(f"job {number} submitted; its script is {folder / 'job.sbatch'}, its results come to {folder}")
    if args.json:
        print(json.dumps({"job": number, "script": str(folder / "job.sbatch")}))
    return 0


def _run(args: argparse.Namespace) -> tuple[Job, Path]:
    config = load(args.file, args.settings)
    folder = args.out or folder_of(config)
    given = [word for setting in args.settings for word in ("--set", setting)] + ["--out", str(folder)]
    return run_job(config.name, Path(args.file), config.slurm, given, config.simulate.max_wall is not None), folder


def _study(args: argparse.Namespace) -> tuple[Job, Path]:
    from netsim.study.points import points, read
    from netsim.study.results import todo

    if args.settings:
        raise InputError("--set: expected with a run file; a study has its fields in the file")
    study = read(Path(args.file))
    folder = args.out or Path("results", "studies", study.name)
    left = todo(points(study, Path(args.file)), folder)
    if not left:
        raise InputError(f"{args.file}: expected points that are not done yet; all are (study --collect makes the table)")
    return study_job(study.name, Path(args.file), study.slurm, ["--out", str(folder), "--quiet"], len(left)), folder
