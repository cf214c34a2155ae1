"""The table of a study: one row per run in the order of its points, as CSV and HDF5, and the means over seeds for figures and pages."""

import csv
import os
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from netsim.config.study import Constraint, Study
from netsim.study.metrics import column
from netsim.study.points import Point
from netsim.study.results import DONE, ILLEGAL, Result, find
from netsim.telemetry.table import write_table


class Row(NamedTuple):
    """One point with all its seeds: means of the metrics, standard deviations where there are several seeds."""

    labels: tuple[str, ...]
    values: dict[str, float]
    spread: dict[str, float]
    status: str
    note: str

    @property
    def feasible(self) -> bool:
        return self.status == DONE and not self.note


def gather(points: list[Point], folder: Path) -> list[tuple[Point, Result]]:
    """What is known of every point."""
    return [(p, Result(ILLEGAL, p.problem) if p.run is None else find(folder, p.key)) for p in points]


def broken(constraints: tuple[Constraint, ...], values: dict[str, float]) -> str:
    """The constraints that values do not keep, in words; empty where they keep all."""
    found = []
    for c in constraints:
        value = values.get(c.metric)
        if value is None:
            continue
        shown = f"{column(c.metric).title} {value * column(c.metric).factor:.4g}"
        if c.at_most is not None and value > c.at_most:
            found.append(f"{shown} above {c.at_most * column(c.metric).factor:g}")
        if c.at_least is not None and value < c.at_least:
            found.append(f"{shown} below {c.at_least * column(c.metric).factor:g}")
    return "; ".join(found)


def columns(study: Study, found: list[tuple[Point, Result]]) -> dict[str, list[Any]]:
    """The table by columns: axes, seed where there are several, status, feasible, metrics, note."""
    table: dict[str, list[Any]] = {axis.name: [p.labels[i] for p, _ in found] for i, axis in enumerate(study.axes)}
    if study.seeds:
        table["seed"] = [p.seed for p, _ in found]
    notes = [r.message or broken(study.constraints, r.values) for _, r in found]
    table["status"] = [r.status for _, r in found]
    table["feasible"] = [int(r.status == DONE and not note) for (_, r), note in zip(found, notes, strict=True)]
    table |= {metric: [r.values.get(metric) for _, r in found] for metric in study.metrics}
    return table | {"note": notes}


def write(study: Study, found: list[tuple[Point, Result]], folder: Path) -> None:
    """Leave `table.csv` and `table.h5` in the folder of a study."""
    table = columns(study, found)
    part = folder / f"table.csv.{os.getpid()}.part"
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*([("" if v is None else v) for v in values] for values in table.values()), strict=True))
    os.replace(part, folder / "table.csv")
    write_table(folder / "table.h5", table, {"study": study.name, "title": study.title}, {m: _unit(m) for m in study.metrics})


def _unit(metric: str) -> str:
    """The unit in which the table has a metric: that of its column, before the factor."""
    return column(metric).unit if column(metric).factor == 1 else ""


def rows(study: Study, found: list[tuple[Point, Result]]) -> list[Row]:
    """One row per point; a point is done when all its seeds are."""
    grouped: dict[tuple[str, ...], list[Result]] = {}
    for point, result in found:
        grouped.setdefault(point.labels, []).append(result)
    out = []
    for labels, results in grouped.items():
        worst = next((r for r in results if r.status != DONE), None)
        values = {} if worst else {m: fmean(r.values[m] for r in results) for m in results[0].values}
        spread = {m: stdev(r.values[m] for r in results) for m in values} if len(results) > 1 else {}
        note = worst.message if worst else next((r.message for r in results if r.message), "") or broken(study.constraints, values)
        out.append(Row(labels, values, spread, worst.status if worst else DONE, note))
    return out
