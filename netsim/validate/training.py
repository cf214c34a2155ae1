"""All rows of training tables: which can run, what they predict, how far off they are."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from netsim.validate.assume import CannotRun, Case, case_of
from netsim.validate.rows import Row
from netsim.validate.run import Outcome, simulate


class Result(NamedTuple):
    """A row with its prediction; `skipped` says why there is none."""

    row: Row
    measured_s: float
    predicted_s: float
    assumed: list[str]
    skipped: str
    moe: bool
    summary: dict[str, Any]

    @property
    def error(self) -> float:
        """Relative error of the predicted step time."""
        return self.predicted_s / self.measured_s - 1


def evaluate(rows: Sequence[Row], jobs: int, report: Callable[[int, int], None] = lambda done, total: None) -> list[Result]:
    """Predict every row; equal runs are simulated once. `report(done, total)` is told of simulated runs."""
    cases = [_case(row) for row in rows]
    texts = [json.dumps(case.config, sort_keys=True) if isinstance(case, Case) else "" for case in cases]
    unique = list(dict.fromkeys(text for text in texts if text))
    outcomes: dict[str, Outcome] = {}
    for text, outcome in zip(unique, simulate(unique, jobs), strict=True):
        outcomes[text] = outcome
        report(len(outcomes), len(unique))
    return [_result(row, case, outcomes.get(text)) for row, case, text in zip(rows, cases, texts, strict=True)]


def _case(row: Row) -> Case | str:
    try:
        return case_of(row)
    except CannotRun as reason:
        return str(reason)


def _result(row: Row, case: Case | str, outcome: Outcome | None) -> Result:
    if isinstance(case, str):
        return Result(row, 0.0, 0.0, [], case, False, {})
    assert outcome is not None
    predicted = 0.0 if outcome.skipped else float(outcome.summary["iteration_time_s"])
    return Result(row, case.measured_s, predicted, case.assumed + outcome.assumed, outcome.skipped, case.moe, outcome.summary)
