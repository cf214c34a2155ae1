"""`netsim explain [SECTION]`: what a section of a run file takes."""

import argparse
import json

from netsim.config import explain

HELP = "what a section of a run file takes: fields, units, defaults, meaning"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("section", metavar="SECTION", nargs="?", default="", help="dotted name, as topology.link (default: the run file)")
    parser.add_argument("--json", action="store_true", help="print the fields as one JSON document in the last line")


def run(args: argparse.Namespace) -> int:
    """Print the section."""
    print(explain.text(args.section))
    if args.json:
        print(json.dumps({cls.__name__: explain.rows(cls) for cls in explain.section(args.section)}))
    return 0
