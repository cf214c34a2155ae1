"""`netsim report RUN`: a run on the terminal, as an HTML page, and as figures."""

import argparse
from pathlib import Path

HELP = "summary, self-contained HTML page and figures of a run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run, or its result.h5")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page that needs nothing else, not even a network")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="write the figures (needs matplotlib: the extra 'plots')")
    parser.add_argument("--format", default="png", choices=("png", "svg", "pdf"), help="of the figures (png)")


def run(args: argparse.Namespace) -> int:
    """Print the summary and write what was asked for."""
    from netsim.report import notes
    from netsim.report.summary import render
    from netsim.telemetry.read import open_run

    with open_run(args.run) as opened:
        said = notes.of(opened)
        if said:
            print("\n".join(said))
        if "iteration_time_s" in opened.summary or "fct_us" in opened.summary:
            print(render(opened.summary))
        if args.html:
            from netsim.report.html import write_page

            write_page(opened, args.html)
            print(f"page in {args.html}")
        if args.figures:
            from netsim.report.figures import save_all

            print(f"{len(save_all(opened, args.figures, args.format))} figures in {args.figures}")
    return 0
