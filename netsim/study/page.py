"""The page of a study, in Markdown: question, table, figures and what one learns, all from its table."""

import re
from pathlib import Path

from netsim.config.study import Study
from netsim.errors import InputError
from netsim.study.cost import listed
from netsim.study.metrics import column
from netsim.study.table import Row

_PLACE = re.compile(r"\{([\w.]+) @ (.+?)(?: vs (.+?))?(?: \| (\S+))?\}")
_BEST = re.compile(r"\{arg(max|min) ([\w.]+)\}")


def page(study: Study, rows: list[Row], figures: list[Path], command: str) -> str:
    """The page; `figures` lie beside it."""
    lines = [f"# {study.title}", "", f"Written by `{command}`; do not edit.", ""]
    lines += [study.question.strip(), ""] if study.question else []
    if study.lessons:
        lines += ["## What one learns", "", " ".join(filled(text, study, rows) for text in study.lessons), ""]
    lines += ["## Table", "", *_table(study, rows), ""]
    for path in figures:
        lines += [f"![{path.stem}]({path.name})", ""]
    lines += [f"Base: `{Path(study.base).name}`."]
    lines += _prices(study) if _priced(study) else []
    return "\n".join(lines) + "\n"


def _priced(study: Study) -> bool:
    return any("usd" in metric or "kilowatts" in metric for metric in study.metrics)


def _prices(study: Study) -> list[str]:
    """What the cost model took, and what of it has no source."""
    ready, given = listed(), dict(study.prices)
    said = "Dollars, watts (`watts_`), and what turns both into dollars per hour. **Assumed** figures have no source."
    lines = ["", "## Prices", "", said, "", "| | value | source |", "| --- | ---: | --- |"]
    for name, price in ready.items():
        if name in given:
            lines.append(f"| `{name}` | {given[name]:,g} | **given by the study** in place of {price.value:,g} |")
        else:
            source = re.sub(r"\bassumed\b", "**assumed**", price.source)
            lines.append(f"| `{name}` | {price.value:,g} | {source} |")
    return lines


def _table(study: Study, rows: list[Row]) -> list[str]:
    heads = [axis.name for axis in study.axes]
    shown = [column(metric) for metric in study.metrics]
    heads += [f"{c.title} ({c.unit})" if c.unit else c.title for c in shown]
    noted = any(row.note or row.status != "done" for row in rows)
    ruler = ["---"] * len(study.axes) + ["---:"] * len(shown) + ["---"] * noted
    lines = ["| " + " | ".join(heads + ["note"] * noted) + " |", "| " + " | ".join(ruler) + " |"]
    for row in rows:
        cells = [*row.labels, *(_cell(row, metric) for metric in study.metrics)]
        lines.append("| " + " | ".join(cells + [_note(row)] * noted) + " |")
    return lines


def _note(row: Row) -> str:
    first = row.note.split("; ")[0].replace("|", "/")
    return first if row.status == "done" else f"{row.status}: {first}"


def _cell(row: Row, metric: str) -> str:
    value, how = row.values.get(metric), column(metric)
    if value is None:
        return "-"
    text = format(value * how.factor, how.form)
    return f"{text} ± {row.spread[metric] * how.factor:.2g}" if row.spread.get(metric) else text


def filled(text: str, study: Study, rows: list[Row]) -> str:
    """A sentence with its places filled from the table; raises InputError where a place names no point."""
    text = _BEST.sub(lambda m: _best(rows, m[2], m[1] == "max", study), text)
    return _PLACE.sub(lambda m: _filled(m, study, rows), text)


def _best(rows: list[Row], metric: str, most: bool, study: Study) -> str:
    known = [row for row in rows if row.feasible and metric in row.values]
    if not known:
        raise InputError(f"{study.name}: lessons: expected a feasible point with a {metric}; there is none")
    return ", ".join((max if most else min)(known, key=lambda row: row.values[metric]).labels)


def _filled(match: re.Match[str], study: Study, rows: list[Row]) -> str:
    metric, label, other, form = match.groups()
    value = _of(rows, metric, label, study)
    how = column(metric)
    if other:
        shown, ready, unit = value / _of(rows, metric, other, study), ".2f", ""
    else:
        shown, ready, unit = value * how.factor, how.form, how.unit
    try:
        return f"{format(shown, form or ready)} {unit}".rstrip()
    except ValueError:
        raise InputError(f"{study.name}: lessons: expected a format such as .2f; got {form!r}") from None


def _of(rows: list[Row], metric: str, label: str, study: Study) -> float:
    for row in rows:
        if ", ".join(row.labels) == label and metric in row.values:
            return row.values[metric]
    there = next((f", which is {row.status}: {row.note}" for row in rows if ", ".join(row.labels) == label and row.status != "done"), "")
    raise InputError(f"{study.name}: lessons: expected a point with a {metric}; got {label!r}{there}")
