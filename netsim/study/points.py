"""The points of a study: every combination of its axes, each a run of its own with a key that tells what has been done."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from netsim.config import Run, load, load_section
from netsim.config.study import Study
from netsim.errors import InputError
from netsim.study.fingerprint import key_of


class Point(NamedTuple):
    """One run of a study. `run` is None where the configuration cannot be, and `problem` says why."""

    labels: tuple[str, ...]
    seed: int | None
    key: str
    run: Run | None
    problem: str = ""

    @property
    def name(self) -> str:
        """How messages call the point."""
        return ", ".join(self.labels) + ("" if self.seed is None else f", seed {self.seed}")


def read(file: Path) -> Study:
    """Load a study file; raises InputError with a line for every mistake."""
    return load_section(file, Study)


def points(study: Study, file: Path) -> list[Point]:
    """All points in the order of the axes, the last fastest; seeds fastest of all."""
    prices = json.dumps(dict(study.prices), sort_keys=True)
    found = []
    for steps in itertools.product(*(axis.settings() for axis in study.axes)):
        labels = tuple(label for label, _ in steps)
        settings = [*_flat(study.set), *(pair for _, fields in steps for pair in _flat(fields))]
        for seed in study.seeds or (None,):
            found.append(_point(file.parent, study.base, labels, dict(settings), seed, prices))
    if all(point.run is None for point in found):
        raise InputError(f"{file}: expected points that can be; of '{found[0].name}': {found[0].problem}")
    return found


def _point(beside: Path, base_of_all: str, labels: tuple[str, ...], written: dict[str, Any], seed: int | None, prices: str) -> Point:
    base = beside / written.pop("base", base_of_all)
    written |= {} if seed is None else {"seed": seed}
    try:
        run = load(base, [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in written.items()])
    except InputError as error:
        if not base.is_file():
            raise
        return Point(labels, seed, "", None, "; ".join(error.lines))
    return Point(labels, seed, key_of(run, prices), run)


def _flat(fields: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """`{topology: {nodes: 4}}` and `{topology.nodes: 4}` alike as `topology.nodes`, 4."""
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + str(name), value
