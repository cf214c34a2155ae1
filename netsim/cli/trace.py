"""`netsim trace RUN`: a run as a trace for ui.perfetto.dev."""

import argparse
from pathlib import Path

from netsim.errors import InputError, did_you_mean
from netsim.kernels.structs import CATEGORIES
from netsim.units import PS_PER_S, format_size, format_time

HELP = "write a Perfetto trace of a run: streams, calls, memory, links; opens in ui.perfetto.dev"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run, or its result.h5")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="trace to write (default: run.perfetto-trace in the run's folder)")
    parser.add_argument("--rank", default="", metavar="R[,R...]", help="only these of the recorded GPUs")
    parser.add_argument("--window", metavar="FROM:TO", help="only this part of the run, such as 10ms:20ms")
    parser.add_argument("--category", default="", metavar="C[,C...]", help=f"only operations of these categories: {', '.join(CATEGORIES)}")


def run(args: argparse.Namespace) -> int:
    """Write the trace and say what is in it."""
    from netsim.cli.links import window_of
    from netsim.report import notes, trace
    from netsim.telemetry.read import open_run

    subset = trace.Subset(_ranks(args.rank), window_of(args.window) or (0.0, float("inf")), _categories(args.category))
    with open_run(args.run) as opened:
        if subset.window[0] >= opened.end_ps / PS_PER_S:
            raise InputError(f"--window: expected two times in order, the first before the end ({format_time(opened.end_ps)})")
        out = args.out or opened.path.parent / "run.perfetto-trace"
        slices = trace.write_trace(opened, subset, out)
        print("\n".join([*notes.of(opened), f"{slices:,} slices, {format_size(out.stat().st_size)}, in {out}"]))
    return 0


def _ranks(text: str) -> tuple[int, ...]:
    parts = [p for p in text.split(",") if p]
    if wrong := [p for p in parts if not p.isdecimal()]:
        raise InputError(f"--rank: expected numbers such as 0,8,16; got {wrong[0]!r}")
    return tuple(int(p) for p in parts)


def _categories(text: str) -> tuple[str, ...]:
    parts = [p for p in text.split(",") if p]
    if wrong := [p for p in parts if p not in CATEGORIES]:
        raise InputError(f"--category: expected some of {', '.join(CATEGORIES)}; got {wrong[0]!r}{did_you_mean(wrong[0], CATEGORIES)}")
    return tuple(parts)
