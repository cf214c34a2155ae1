"""`netsim search FILE`: the best parallel layout of a model on a cluster, and why the others lose."""

import argparse
import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from netsim.cli.run import number, writable
from netsim.config import load, load_section
from netsim.config.search import Search
from netsim.errors import InputError
from netsim.progress import progress

if TYPE_CHECKING:
    from netsim.config import Run
    from netsim.study.search import Candidate

HELP = "find the best parallel layout for a model and a cluster; leaves table.csv and table.h5"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("file", metavar="FILE", type=Path, help="search file (YAML)")
    parser.add_argument("--jobs", type=number, default=0, metavar="N", help="layouts simulated side by side (default: one per core)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the search (default: results/searches/NAME)")
    parser.add_argument("--exhaustive", action="store_true", help="simulate all layouts that the margin lets in, not only the best")
    parser.add_argument("--estimate", action="store_true", help="estimates only: simulate nothing")
    parser.add_argument("--json", action="store_true", help="print the best layout and the counts as one JSON document in the last line")
    parser.add_argument("--quiet", action="store_true", help="no progress and no table on the terminal")


def run(args: argparse.Namespace) -> int:
    """Estimate every layout, refine the best, turn the knobs, print the table."""
    from netsim.study import search as searching

    search = load_section(args.file, Search)
    base = load(args.file.parent / search.base, [f"{name}={json.dumps(value)}" for name, value in search.set.items()])
    if args.exhaustive:
        search = replace(search, refine=1 << 62)
    folder = args.out or Path("results", "searches", search.name)
    writable(folder)
    began = time.process_time()
    found = searching.estimated(base, search)
    took = time.process_time() - began
    if not found or not math.isfinite(found[0].estimate.time_s):
        reason = f"; of {found[0].layout.name}: {found[0].why}" if found else ""
        raise InputError(f"{args.file}: expected a space with a layout that can be; all {len(found)} cannot{reason}")
    if not args.estimate:
        _refine(base, search, found, folder, args)
        found = searching.refined(base, found, search, searching.results_in(folder))
    else:
        found = searching.ranked(found)
    searching.write(found, folder, search.name)
    if not args.quiet:
        print(f"{len(found):,} layouts estimated in {took:.1f} s, {len(found) / took:,.0f} per second of one core")
        print(render(found))
        if said := searching.agreement(found):
            print(said)
    knobs = _turn(base, search, found[0], folder, args) if search.knobs and not args.estimate else []
    if not args.quiet:
        print(f"results in {folder}")
    if args.json:
        best = found[0]
        rate = {"layouts": len(found), "estimate_s": took, "best": best.layout._asdict()}
        rate |= {"time_s": _finite(best.time_s), "mfu": _finite(best.mfu), "estimate_time_s": best.estimate.time_s}
        print(json.dumps(rate | {"knobs": knobs}))
    return 0


def _finite(value: float) -> float | None:
    """What has not been simulated is null in JSON, which knows no NaN."""
    return value if math.isfinite(value) else None


def _refine(base: "Run", search: Search, found: "list[Candidate]", folder: Path, args: argparse.Namespace) -> None:
    from netsim.study.pool import simulate_all
    from netsim.study.results import todo
    from netsim.study.search import points

    left = todo(list(points(base, found, search)), folder)
    with progress(args.quiet) as shown:
        jobs = args.jobs or len(os.sched_getaffinity(0))
        simulate_all(left, folder, {}, jobs, lambda done, point, _: shown.update(done / len(left), point.name), False)


def render(found: "list[Candidate]", count: int = 24) -> str:
    """The best of the table, and the reasons of all others by number."""
    from collections import Counter

    lines = [f"{'layout':52}{'time s':>9}{'estimate':>10}{'MFU %':>7}{'GiB':>7}  why it lost"]
    for c in [c for c in found if math.isfinite(c.estimate.time_s)][:count]:
        memory = c.memory_gib if math.isfinite(c.memory_gib) else c.estimate.memory / 2**30
        simulated = f"{c.time_s:9.3f}" if math.isfinite(c.time_s) else f"{'-':>9}"
        mfu = c.mfu if math.isfinite(c.mfu) else c.estimate.mfu
        lines.append(f"{c.layout.name:52}{simulated}{c.estimate.time_s:10.3f}{100 * mfu:7.1f}{memory:7.1f}  {c.why or 'the best'}")
    reasons = Counter(c.why.split(":")[0] for c in found if not math.isfinite(c.estimate.time_s))
    lines += [f"{count:6,} layouts: {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def _turn(base: "Run", search: Search, best: "Candidate", folder: Path, args: argparse.Namespace) -> list[dict[str, object]]:
    """Turn the knobs of the best layout; returns the trials that no other beats."""
    from netsim.config import from_data, resolved
    from netsim.progress import Progress
    from netsim.study import knobs
    from netsim.study.fingerprint import key_of
    from netsim.study.layouts import training_of
    from netsim.study.points import Point
    from netsim.study.pool import simulate_point
    from netsim.study.results import DONE, find

    chosen = resolved(replace(base, workload=training_of(base.workload, best.layout)))  # type: ignore[arg-type]

    def simulate(values: dict[str, float]) -> tuple[float, ...]:
        turned = from_data(chosen, [f"{field}={value}" for field, value in values.items()], str(args.file))
        point = Point((best.layout.name,), None, key_of(turned), turned)
        known = find(folder, point.key)
        result = known if known.status == DONE else simulate_point(point, folder, {}, Progress())
        missing = [name for name in search.objectives if result.status == DONE and name not in result.values]
        if missing:
            raise InputError(f"{args.file}: objectives: expected metrics of a run; got {', '.join(missing)}")
        return tuple(result.values[name] for name in search.objectives) if result.status == DONE else ()

    tried = knobs.optimise(search.knobs, search.trials, len(search.objectives), base.seed, simulate)
    names = [knob.field for knob in search.knobs]
    shown = [dict(zip(names, t.knobs, strict=True)) | dict(zip(search.objectives, t.objectives, strict=True)) for t in knobs.best(tried)]
    if not args.quiet:
        print(f"{len(tried)} trials of {len(names)} knobs; not beaten by another:")
        print("\n".join("  " + ", ".join(f"{name} {value:.6g}" for name, value in row.items()) for row in shown))
    return [dict(row) for row in shown]
