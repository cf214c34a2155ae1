"""A study file: a base run, what is varied, what is collected, and how it is shown."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from netsim.config.fields import Amount, Index, can_name_a_folder
from netsim.config.slurm import Slurm


@dataclass(frozen=True)
class Axis:
    """One thing that is varied; the points of a study are all combinations of its axes.

    name: heading of its column. Then one of three:
    field, values: a field of the run file, and its values one by one;
    zip: fields whose values go together, first with first, second with second;
    variants: named sets of fields; `base` among them takes another run file than the study's.
    labels: what to call the values, where they do not speak for themselves.
    """

    name: str
    field: str = ""
    values: tuple[Any, ...] = ()
    zip: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] = ()

    def settings(self) -> list[tuple[str, dict[str, Any]]]:
        """(label, fields and their values) of every step along the axis."""
        if self.variants:
            return list(self.variants.items())
        if self.zip:
            rows = [dict(zip(self.zip, row, strict=True)) for row in zip(*self.zip.values(), strict=True)]
        else:
            rows = [{self.field: value} for value in self.values]
        labels = self.labels or tuple(", ".join(str(v) for v in row.values()) for row in rows)
        return list(zip(labels, rows, strict=True))

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) for what single fields cannot say."""
        given = [name for name in ("values", "zip", "variants") if getattr(self, name)]
        if len(given) != 1:
            yield "name", f"expected values, zip or variants; got {' and '.join(given) or 'none of them'}"
            return
        if bool(self.field) != bool(self.values):
            yield "field", "expected a field with values, and only there"
        lengths = {len(column) for column in self.zip.values()}
        if len(lengths) > 1:
            yield "zip", f"expected as many values for every field; got {sorted(lengths)}"
            return
        steps = len(self.values) or next(iter(lengths), 0) or len(self.variants)
        if self.labels and (len(self.labels) != steps or self.variants):
            yield "labels", f"expected one label for each of the {steps} values (variants have names); got {len(self.labels)}"
        elif len({label for label, _ in self.settings()}) < steps:
            yield "labels", "expected labels that differ; some are the same"


@dataclass(frozen=True)
class Constraint:
    """What a point must keep to be feasible: `metric` at most, or at least, so much."""

    metric: str
    at_most: float | None = None
    at_least: float | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) for what single fields cannot say."""
        if self.at_most is None and self.at_least is None:
            yield "metric", "expected at_most or at_least with it; got neither"
        for name in ("at_most", "at_least"):
            if getattr(self, name) is not None and math.isnan(getattr(self, name)):
                yield name, "expected a number; got nan"


@dataclass(frozen=True)
class Figure:
    """One figure.

    kind: bars or lines of metrics `y` over axis (or metric) `x`; pareto: metric `y` against metric `x` with the front of the best.
    series: axis whose values are bars or lines of their own. log: logarithmic axes, 'x', 'y' or 'xy'.
    lower_is_better: metrics among x and y of which less is better (pareto).
    """

    kind: Literal["bars", "lines", "pareto"]
    x: str
    y: str
    series: str = ""
    title: str = ""
    log: Literal["", "x", "y", "xy"] = ""
    lower_is_better: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """A design study.

    name: of its folder and page. title, question: of the page. base: run file from which every point starts, relative to this file.
    set: fields that all points have in common. axes: what is varied. seeds: every point is repeated with each.
    metrics: columns of the table: fields of the summary (`exposed_s.dp`) or what `netsim.study.metrics` computes.
    constraints: what makes a point infeasible. prices: of single items, where they differ from netsim/study/prices.yaml.
    figures: drawn from the table. lessons: sentences of the page; `{metric @ label}` and `{metric @ label vs label | .2f}` stand for values
    and ratios of the table, `{argmax metric}` and `{argmin metric}` for the label of the best feasible point.
    slurm: what an array job asks for: `nodes` tasks with `ranks_per_node` points side by side in each.
    """

    name: str
    title: str
    base: str
    axes: tuple[Axis, ...]
    metrics: tuple[str, ...]
    question: str = ""
    set: dict[str, Any] = dataclasses.field(default_factory=dict)
    seeds: tuple[Index, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    prices: dict[str, Amount] = dataclasses.field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    lessons: tuple[str, ...] = ()
    slurm: Slurm = dataclasses.field(default_factory=Slurm)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) for what single fields cannot say."""
        if not can_name_a_folder(self.name):
            yield "name", f"expected a name that can be a folder's; got {self.name!r}"
        names = [axis.name for axis in self.axes]
        if not names or len(set(names)) < len(names):
            yield "axes", f"expected axes with names that differ; got {', '.join(names) or 'none'}"
        if len(set(self.seeds)) < len(self.seeds):
            yield "seeds", f"expected every seed once; got {', '.join(map(str, self.seeds))}"
        known = {*names, *self.metrics}
        for i, figure in enumerate(self.figures):
            for part in ("x", "y", "series"):
                if getattr(figure, part) and getattr(figure, part) not in known:
                    yield f"figures.{i}.{part}", f"expected an axis or a metric of this study; got {getattr(figure, part)!r}"
