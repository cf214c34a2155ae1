"""Figures of a study, drawn with matplotlib: bars, lines, Pareto fronts. The same table gives the same file."""

from pathlib import Path
from typing import Any

from netsim.config.study import Figure, Study
from netsim.errors import InputError
from netsim.study.metrics import column
from netsim.study.table import Row

SIZE = (7.0, 4.0)
"""Inches of a figure."""


def draw(study: Study, rows: list[Row], folder: Path) -> list[Path]:
    """Draw every figure of a study into `folder` as NAME_1.svg, ...; returns their paths. Raises InputError without matplotlib."""
    if not study.figures:
        return []
    try:
        import matplotlib
    except ImportError:
        raise InputError("figures need matplotlib: pip install 'netsim-llm[plots]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams.update({"svg.hashsalt": study.name, "svg.fonttype": "none", "font.size": 9})
    matplotlib.rcParams.update({"axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True})
    paths = []
    for number, figure in enumerate(study.figures, 1):
        canvas, axes = plt.subplots(figsize=SIZE, layout="constrained")
        {"bars": _bars, "lines": _lines, "pareto": _pareto}[figure.kind](axes, study, figure, rows)
        axes.set_title(figure.title or study.title)
        axes.set_xlabel(_label(figure.x))
        axes.set_ylabel(_label(figure.y))
        path = folder / f"{study.name}_{number}.svg"
        canvas.savefig(path, metadata={"Date": None})
        plt.close(canvas)
        paths.append(path)
    return paths


def _label(name: str) -> str:
    shown = column(name)
    return f"{shown.title} ({shown.unit})" if shown.unit else shown.title


def _value(study: Study, row: Row, name: str) -> float | str | None:
    """A metric in its unit, or the label of an axis."""
    names = [axis.name for axis in study.axes]
    if name in names:
        return row.labels[names.index(name)]
    value = row.values.get(name)
    return None if value is None else value * column(name).factor


def _series(study: Study, figure: Figure, rows: list[Row]) -> dict[str, list[Row]]:
    """Rows with a value of y, by the label of the series axis."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if _value(study, row, figure.y) is not None:
            found.setdefault(str(_value(study, row, figure.series)) if figure.series else "", []).append(row)
    return found


def _spread(row: Row, name: str) -> float:
    return row.spread.get(name, 0.0) * column(name).factor


def _bars(axes: Any, study: Study, figure: Figure, rows: list[Row]) -> None:
    """Bars over the labels of an axis, side by side for the series."""
    ticks = list(dict.fromkeys(str(_value(study, row, figure.x)) for row in rows))
    series = _series(study, figure, rows)
    width = 0.8 / max(1, len(series))
    for i, (label, mine) in enumerate(series.items()):
        at = [ticks.index(str(_value(study, row, figure.x))) + (i - (len(series) - 1) / 2) * width for row in mine]
        bars = axes.bar(
            at, [_value(study, r, figure.y) for r in mine], width * 0.92, label=label,
            yerr=[_spread(r, figure.y) for r in mine] if any(r.spread for r in mine) else None, capsize=2,
        )  # fmt: skip
        for bar, row in zip(bars, mine, strict=True):
            if not row.feasible:
                bar.set_hatch("///")
    axes.set_xticks(range(len(ticks)), ticks, rotation=20 if max(map(len, ticks), default=0) > 10 else 0)
    if figure.log:
        axes.set_yscale("log")
    if figure.series and axes.get_legend_handles_labels()[0]:
        axes.legend(title=figure.series, fontsize=8)


def _lines(axes: Any, study: Study, figure: Figure, rows: list[Row]) -> None:
    """Lines over an axis or a metric; labels that are numbers are placed by their size."""
    for label, mine in _series(study, figure, rows).items():
        xs = [_number(_value(study, row, figure.x)) for row in mine]
        axes.errorbar(
            xs, [_value(study, r, figure.y) for r in mine], [_spread(r, figure.y) for r in mine] if any(r.spread for r in mine) else None,
            marker="o", markersize=4, capsize=2, label=label,
        )  # fmt: skip
        if "x" in figure.log and all(isinstance(x, float) for x in xs):
            axes.set_xscale("log", base=2)
            axes.set_xticks(xs, [f"{x:,.0f}" if x == int(x) else f"{x:g}" for x in xs])
            axes.minorticks_off()
    if "y" in figure.log:
        axes.set_yscale("log")
    if figure.series and axes.get_legend_handles_labels()[0]:
        axes.legend(title=figure.series, fontsize=8)


def _number(label: Any) -> Any:
    try:
        return float(str(label).split()[0].replace(",", ""))
    except ValueError:
        return label


def _pareto(axes: Any, study: Study, figure: Figure, rows: list[Row]) -> None:
    """Points with their labels, and a line through those that no other point beats in both metrics."""
    done = [row for row in rows if row.feasible and _value(study, row, figure.y) is not None]
    at = [(float(_value(study, r, figure.x) or 0), float(_value(study, r, figure.y) or 0)) for r in done]
    axes.scatter([x for x, _ in at], [y for _, y in at], s=18)
    for (x, y), row in zip(at, done, strict=True):
        axes.annotate(", ".join(row.labels), (x, y), xytext=(4, 4), textcoords="offset points", fontsize=8)
    edge = sorted(at[i] for i in front(at, (figure.x in figure.lower_is_better, figure.y in figure.lower_is_better)))
    axes.plot([x for x, _ in edge], [y for _, y in edge], color="C3", linewidth=1)


def front(points: list[tuple[float, float]], less: tuple[bool, bool]) -> list[int]:
    """Indices of the points that no other beats in one coordinate without losing in the other; `less` says where less is better."""
    sign = [(-1 if down else 1) for down in less]
    signed = [(x * sign[0], y * sign[1]) for x, y in points]
    return [i for i, p in enumerate(signed) if not any(q[0] >= p[0] and q[1] >= p[1] and q != p for q in signed)]
