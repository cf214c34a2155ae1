"""Search for the best layout: enumerate, discard, estimate, refine the best on the flow engine, and say of every loser why it lost."""

import csv
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from netsim.config import Run
from netsim.config.search import Search
from netsim.study.estimate import Estimate, Model
from netsim.study.fingerprint import key_of
from netsim.study.layouts import Layout, layouts, problem, training_of
from netsim.study.points import Point
from netsim.study.results import DONE, Result, find
from netsim.telemetry.table import write_table


class Candidate(NamedTuple):
    """A layout, what was estimated, what the flow engine said (NaN where it was not asked), and why it is not the best."""

    layout: Layout
    estimate: Estimate
    time_s: float = math.nan
    mfu: float = math.nan
    memory_gib: float = math.nan
    why: str = ""


def estimated(run: Run, search: Search) -> list[Candidate]:
    """Every layout of the space with its estimate, the fastest first, those that cannot be last."""
    model = Model(run, search.memory)
    found = []
    for layout in layouts(run, search.space):
        training = training_of(model.base, layout)
        wrong = problem(run, training)
        estimate = Estimate(math.inf, 0.0, math.nan, wrong) if wrong else model.estimate(layout, training)
        found.append(Candidate(layout, estimate, why=_why(estimate, search)))
    return sorted(found, key=lambda c: (c.estimate.time_s, c.layout))


def _why(estimate: Estimate, search: Search) -> str:
    if estimate.why and not math.isnan(estimate.memory):
        return f"{estimate.why}: {estimate.memory / 2**30:.1f} GiB"
    return estimate.why


def points(run: Run, candidates: list[Candidate], search: Search) -> Iterator[Point]:
    """The layouts that are worth simulating, as points of a study: the best by estimate, within the margin of the very best."""
    worth = candidates[0].estimate.time_s * (1 + search.margin)
    for candidate in candidates[: search.refine]:
        if math.isfinite(candidate.estimate.time_s) and candidate.estimate.time_s <= worth:
            chosen = replace(run, workload=training_of(run.workload, candidate.layout))  # type: ignore[arg-type]
            yield Point((candidate.layout.name,), None, key_of(chosen), chosen)


def refined(run: Run, candidates: list[Candidate], search: Search, results: Callable[[str], Result]) -> list[Candidate]:
    """Candidates with what the flow engine said of them, ranked."""
    known = {point.labels[0]: results(point.key) for point in points(run, candidates, search)}
    room = search.memory * run.compute.device.memory / 2**30 if run.compute else math.inf
    return ranked([_with(candidate, known.get(candidate.layout.name), room) for candidate in candidates])


def ranked(found: list[Candidate]) -> list[Candidate]:
    """Candidates with the fastest first - by simulation, then by estimate - and why each of the others lost."""
    found = sorted(found, key=_rank)
    return [found[0], *(_lost(candidate, found[0]) for candidate in found[1:])]


def _rank(c: Candidate) -> tuple[bool, bool, float, Layout]:
    return bool(c.why), math.isnan(c.time_s), c.estimate.time_s if math.isnan(c.time_s) else c.time_s, c.layout


def _with(candidate: Candidate, result: Result | None, room: float) -> Candidate:
    if result is None or candidate.why:
        return candidate
    if result.status != DONE:
        return candidate._replace(why=f"{result.status}: {result.message}")
    memory = result.values["peak_memory_gib"]
    why = f"memory: {memory:.1f} of {room:.1f} GiB" if memory > room else ""
    return candidate._replace(time_s=result.values["iteration_time_s"], mfu=result.values["mfu"], memory_gib=memory, why=why)


def _lost(candidate: Candidate, best: Candidate) -> Candidate:
    if candidate.why:
        return candidate
    if math.isnan(candidate.time_s):
        return candidate._replace(why=f"estimate {candidate.estimate.time_s / best.estimate.time_s - 1:+.1%} against that of the best")
    return candidate._replace(why=f"{candidate.time_s / best.time_s - 1:+.1%} against the best")


def agreement(found: list[Candidate]) -> str:
    """How estimates and simulations agree, and where the best by simulation stood by estimate; empty where nothing was simulated."""
    both = [c for c in found if math.isfinite(c.time_s) and math.isfinite(c.estimate.time_s)]
    if len(both) < 2:
        return ""
    ratio = [c.time_s / c.estimate.time_s for c in both]
    place = 1 + sum(c.estimate.time_s < both[0].estimate.time_s for c in found)
    return (
        f"{len(both)} layouts simulated: {min(ratio):.2f} to {max(ratio):.2f} times their estimate (median {median(ratio):.2f}); "
        f"the best was number {place} by estimate, the best by estimate is {_first(both).time_s / both[0].time_s - 1:+.1%} against it"
    )


def _first(both: list[Candidate]) -> Candidate:
    return min(both, key=lambda c: c.estimate.time_s)


def columns(candidates: list[Candidate]) -> dict[str, list[Any]]:
    """The table of a search."""
    table: dict[str, list[Any]] = {field: [getattr(c.layout, field) for c in candidates] for field in Layout._fields}
    table["estimate_s"] = [c.estimate.time_s for c in candidates]
    table["estimate_memory_gib"] = [c.estimate.memory / 2**30 for c in candidates]
    table |= {field: [getattr(c, field) for c in candidates] for field in ("time_s", "mfu", "memory_gib")}
    return table | {"why": [c.why or "the best" for c in candidates]}


def write(candidates: list[Candidate], folder: Path, name: str) -> None:
    """Leave `table.csv` and `table.h5` in `folder`."""
    table = columns(candidates)
    part = folder / f"table.csv.{os.getpid()}.part"
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(
            zip(*(["" if isinstance(v, float) and not math.isfinite(v) else v for v in values] for values in table.values()), strict=True)
        )
    os.replace(part, folder / "table.csv")
    write_table(folder / "table.h5", table, {"search": name}, {"estimate_s": "s", "time_s": "s"})


def results_in(folder: Path) -> Callable[[str], Result]:
    """What is known of points in a folder, by key."""
    return lambda key: find(folder, key)
