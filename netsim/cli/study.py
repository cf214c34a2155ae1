"""`netsim study FILE`: simulate every point of a design study, and leave its table, figures and page."""

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from netsim.cli.run import leave, number, writable
from netsim.errors import InputError, did_you_mean
from netsim.progress import progress
from netsim.study import points as study_points
from netsim.study.points import Point
from netsim.study.results import DONE, FAILED, ILLEGAL, MISSING, Result, todo

if TYPE_CHECKING:
    from netsim.config.study import Study
    from netsim.study.table import Row

HELP = "simulate the points of a study file; leaves table.csv, table.h5 and figures"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("file", metavar="FILE", type=Path, help="study file (YAML)")
    parser.add_argument("--jobs", type=number, default=0, metavar="N", help="points simulated side by side (default: one per core)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the study (default: results/studies/NAME)")
    parser.add_argument("--part", metavar="I/N", default="", help="only every N-th point, beginning with the I-th (from 0); no table")
    parser.add_argument("--collect", action="store_true", help="simulate nothing: make the table of what is there")
    parser.add_argument("--count", action="store_true", help="print the number of points that are still to be simulated")
    parser.add_argument("--page", type=Path, metavar="DIR", help="write the page NAME.md with its figures into this folder")
    parser.add_argument("--keep", action="store_true", help="keep the result files of every point")
    parser.add_argument("--json", action="store_true", help="print the table as one JSON document in the last line")
    parser.add_argument("--quiet", action="store_true", help="no progress and no table on the terminal")


def run(args: argparse.Namespace) -> int:
    """Simulate what is not there yet, then gather all."""
    study = study_points.read(args.file)
    folder = args.out or Path("results", "studies", study.name)
    writable(folder)
    found = study_points.points(study, args.file)
    _check_prices(dict(study.prices), args.file)
    left = todo(_part(found, args.part), folder)
    if args.count:
        print(len(left))
        return 0
    if left and not args.collect:
        _simulate(left, folder, dict(study.prices), args)
    return 0 if args.part else _finish(study, found, folder, args)


def _check_prices(prices: dict[str, float], file: Path) -> None:
    if prices:
        from netsim.study.cost import prices as known

        try:
            known(prices)
        except InputError as error:
            raise InputError(f"{file}: {line}" for line in error.lines) from None


def _part(found: list[Point], part: str) -> list[Point]:
    """Every N-th distinct configuration, beginning with the I-th, whatever has been done; all without a part."""
    distinct = list({point.key: point for point in found if point.run is not None}.values())
    if not part:
        return distinct
    first, _, step = part.partition("/")
    if not (first.isdecimal() and step.isdecimal() and int(first) < int(step)):
        raise InputError(f"--part: expected I/N with I below N, such as 0/4; got {part!r}")
    return distinct[int(first) :: int(step)]


def _simulate(left: list[Point], folder: Path, prices: dict[str, float], args: argparse.Namespace) -> None:
    from netsim.study.pool import simulate_all

    jobs = args.jobs or len(os.sched_getaffinity(0))
    with progress(args.quiet) as shown:

        def told(done: float, point: Point, result: Result | None) -> None:
            what = point.name + ("" if result is None else f": {result.status}")
            shown.update(done / len(left), f"{int(done)} of {len(left)} points, {what}")

        simulate_all(left, folder, prices, jobs, told, args.keep)


def _finish(study: "Study", found: list[Point], folder: Path, args: argparse.Namespace) -> int:
    from netsim.study import table
    from netsim.study.figures import draw

    known = table.gather(found, folder)
    table.write(study, known, folder)
    rows = table.rows(study, known)
    drawn = draw(study, rows, folder) if any(row.values for row in rows) else []
    if args.page:
        _page(study, rows, args)
    if not args.quiet:
        print((folder / "table.csv").read_text(encoding="utf-8"), end="")
        print(f"results in {folder}" + (f", {len(drawn)} figures" if drawn else ""))
    if lines := list(_unknown_metrics(study, [result.values for _, result in known if result.status == DONE])):
        raise InputError(f"{args.file}: {line}" for line in lines)
    bad = [(point, result) for point, result in known if result.status in (FAILED, MISSING)]
    if args.json:
        print(json.dumps(table.columns(study, known)))
    if any(result.status == ILLEGAL for _, result in known) and not any(result.status == DONE for _, result in known):
        raise InputError(f"{args.file}: expected points that can be; of '{known[0][0].name}': {known[0][1].message}")
    if bad:
        print(f"{len(bad)} of {len(known)} points have no result; '{bad[0][0].name}': {bad[0][1].message or 'not simulated yet'}")
    return 1 if any(result.status == FAILED for _, result in bad) else 0


def _unknown_metrics(study: "Study", done: list[dict[str, float]]) -> Iterator[str]:
    """Yield a line for every metric that no finished point has; which there are depends on what is simulated, so they come late."""
    known = dict.fromkeys(name for values in done for name in values)
    asked = [(f"metrics.{i}", name) for i, name in enumerate(study.metrics)]
    asked += [(f"constraints.{i}.metric", constraint.metric) for i, constraint in enumerate(study.constraints)]
    for field, name in asked if done else []:
        if name not in known:
            yield f"{field}: expected a metric of these runs; got {name!r}{did_you_mean(name, known)}"


def _page(study: "Study", rows: "list[Row]", args: argparse.Namespace) -> None:
    from netsim.study.figures import draw
    from netsim.study.page import page

    writable(args.page)
    text = page(study, rows, draw(study, rows, args.page), f"python -m netsim study {args.file} --page {args.page}")
    leave(args.page / f"{study.name}.md", text)
