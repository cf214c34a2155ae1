"""`netsim run FILE`: simulate a run file, print the summary, leave the result files."""

import argparse
import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from netsim import parallel
from netsim.config import load, places
from netsim.errors import InputError
from netsim.progress import progress

if TYPE_CHECKING:
    from netsim.config import Run

HELP = "simulate a run file; leaves result.h5 and summary.json"
PARALLEL = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_file_and_settings(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the results (default: named after the run, printed)")
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON document in the last line")
    parser.add_argument("--quiet", action="store_true", help="no progress and no tables")


def add_file_and_settings(parser: argparse.ArgumentParser) -> None:
    """Declare what every command that reads a run file takes: FILE and --set."""
    parser.add_argument("file", metavar="FILE", help="run file (YAML)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="a.b.c=value", dest="settings", help="override one field; may be given several times"
    )


def run(args: argparse.Namespace) -> int:
    """Simulate on all ranks; rank 0 reports."""
    config = load(args.file, args.settings)
    out = args.out or folder_of(config)
    writable(out)
    from netsim.simulate import simulate
    from netsim.telemetry import spool

    first = parallel.world().rank == 0
    try:
        with places(config), progress(args.quiet or not first) as shown:
            summary = simulate(config, out, shown)
    except InputError:
        if first:
            spool.clear(out)
            with contextlib.suppress(OSError):
                out.rmdir()  # leaves a folder that holds anything
        raise
    if first and not args.quiet:
        from netsim.report.summary import render

        print(render(summary))
        print(f"results in {out}")
    if first and args.json:
        print(json.dumps(summary))
    return 0


def folder_of(config: "Run") -> Path:
    """The folder of a run whose results the command line does not place."""
    return Path(config.telemetry.directory, config.name)


def writable(folder: Path) -> None:
    """Raise InputError unless files can be written in `folder`, which is made where it is missing."""
    import tempfile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:  # a path that holds a null byte is a ValueError
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(f"{folder}: expected a folder that can be written; got: {reason}") from None


def placeable(path: Path | None) -> None:
    """Raise InputError where a file that is asked for cannot be: said before minutes of work, not after."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise InputError(f"{path}: expected a file in a folder that exists; got {'a folder' if path.is_dir() else 'no such folder'}")


def leave(path: Path, text: str) -> None:
    """Write a text whole or not at all; raises InputError where that cannot be."""
    from netsim.telemetry.write import whole

    with whole(path, f".{os.getpid()}") as part:
        part.write_text(text, encoding="utf-8")


def number(text: str) -> int:
    """A whole number of at least 1, for options such as --jobs."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1; got {text!r}")
    return int(text)
