"""`netsim validate`: predict published measurements and print how far off the predictions are."""

import argparse
import json
import os
import sys
from pathlib import Path

from netsim.cli.run import leave, placeable
from netsim.errors import InputError

HELP = "hold the simulator against published measurements"
KINDS = ("training", "collectives", "kernels", "memory", "network")
DATA = Path(__file__).resolve().parents[2] / "docs" / "data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--data", type=Path, metavar="FILE_OR_DIR", help="CSV table, or folder of them (the tables in docs/data)")
    parser.add_argument("--only", choices=KINDS, default="training", help="what to validate (training)")
    parser.add_argument("--filter", metavar="CONDITION", help="rows to take, such as 'gpu_family=H100 and num_gpus>=512'; ~ means contains")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1), metavar="N", help="processes (one per core, at most 8)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every row and group as JSON")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page that docs/validation.md shows")
    parser.add_argument("--quiet", action="store_true", help="tables only, not every row")


def run(args: argparse.Namespace) -> int:
    """Predict the rows and print the errors."""
    if args.jobs < 1:
        raise InputError(f"validate: --jobs: expected at least 1; got {args.jobs}")
    if args.page and args.only != "training":
        raise InputError(f"validate: --page: expected it with --only training; got --only {args.only}")
    for path in (args.page, args.json):
        placeable(path)
    data = args.data or DATA
    if args.only != "training":
        from netsim.validate.others import validate

        document, text = validate(args.only, data, args.filter)
        print(text)
    else:
        from netsim.validate import page, report, rows
        from netsim.validate.training import evaluate

        chosen = rows.choose(rows.read(data, "training"), args.filter)
        if not chosen:
            raise InputError(f"validate: --filter: expected at least one row; got none that meets {args.filter!r}")
        results = evaluate(chosen, args.jobs, _progress)
        document = report.document(results)
        if not args.quiet:
            print(report.rows(results))
        print(page.tables(results))
        if args.page:
            leave(args.page, page.page(results, data))
    if args.json:
        leave(args.json, json.dumps(document, indent=1) + "\n")
    return 0


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {total} runs", end="\n" if done == total else "", file=sys.stderr, flush=True)
