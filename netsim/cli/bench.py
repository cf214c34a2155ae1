"""`netsim bench SUITE`: measure speed and memory on this machine."""

import argparse
import importlib
import json
from typing import Any

HELP = "measure speed and memory on this machine"
SUITES = {"flow": "netsim.bench.flow", "packet": "netsim.network.packet.bench", "scaling": "netsim.bench.scaling"}
"""Suite -> module with `scenarios()`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("suite", nargs="?", choices=(*SUITES, "all"), default="all", help="what is measured (default: all)")
    parser.add_argument("--json", action="store_true", help="print only one JSON document")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    results: dict[str, dict[str, Any]] = {}
    for suite in SUITES if args.suite == "all" else (args.suite,):
        for name, figures in importlib.import_module(SUITES[suite]).scenarios().items():
            results[name] = figures
            if not args.json:
                print(name, *(f"{key}={_short(value)}" for key, value in figures.items()), sep="  ")
    print(json.dumps({"scenarios": results}))
    return 0


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
