"""`netsim bench SUITE`: measure speed and memory on this machine."""

import argparse
import importlib
import json
import os
import platform
from pathlib import Path
from typing import Any

from netsim.cli.run import leave, placeable
from netsim.errors import InputError, did_you_mean

HELP = "measure speed and memory on this machine"
SUITES = {
    "collectives": "netsim.bench.collectives", "flow": "netsim.bench.flow", "packet": "netsim.network.packet.bench",
    "scaling": "netsim.bench.scaling",
}  # fmt: skip
"""Suite -> module with `scenarios()`."""
Figures = dict[str, dict[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"what is measured: {', '.join(SUITES)} (default: all of them)")
    parser.add_argument("--json", action="store_true", help="print only one JSON document")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the figures as a page of Markdown too, or between its marks")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    unknown = [name for name in args.suites if name not in SUITES]
    if unknown:
        raise InputError(f"netsim bench: expected {', '.join(SUITES)}; got {unknown[0]!r}{did_you_mean(unknown[0], SUITES)}")
    placeable(args.page)
    suites: dict[str, Figures] = {}
    for suite in args.suites or SUITES:
        suites[suite] = importlib.import_module(SUITES[suite]).scenarios()
        for name, figures in suites[suite].items():
            if not args.json:
                print(name, *(f"{key}={_short(value)}" for key, value in figures.items()), sep="  ", flush=True)
    if args.page:
        leave(args.page, _marked(args.page, suites) or _page(suites))
    print(json.dumps({"scenarios": {name: figures for found in suites.values() for name, figures in found.items()}}))
    return 0


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _marked(path: Path, suites: dict[str, Figures]) -> str:
    """The page with the figures of suites between their marks, as `<!-- bench scaling -->` and `<!-- end -->`; empty where it has none."""
    text, found = path.read_text(encoding="utf-8") if path.is_file() else "", False
    for suite, figures in suites.items():
        before, mark, after = text.partition(f"<!-- bench {suite} -->\n")
        if mark:
            section = importlib.import_module(SUITES[suite]).section(figures)
            text, found = f"{before}{mark}{section}\n<!-- end -->{after.partition('<!-- end -->')[2]}", True
    return text if found else ""


def _page(suites: dict[str, Figures]) -> str:
    """One table per suite, a row per scenario."""
    machine = f"{len(os.sched_getaffinity(0))} cores ({platform.machine()}), Python {platform.python_version()}"
    command = f"python -m netsim bench {' '.join(suites)} --page FILE"
    lines = ["# Speed", "", f"Written by `{command}` on {machine}."]
    for suite, found in suites.items():
        doc = (importlib.import_module(SUITES[suite]).__doc__ or suite).strip()
        keys = list(dict.fromkeys(key for figures in found.values() for key in figures))
        lines += ["", f"## {suite}", "", doc, "", "| scenario | " + " | ".join(keys) + " |", "| --- " * (len(keys) + 1) + "|"]
        lines += [f"| {name} | " + " | ".join(_short(figures.get(key, "")) for key in keys) + " |" for name, figures in found.items()]
    return "\n".join(lines) + "\n"
