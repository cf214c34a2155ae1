"""docs/validation.md: the tables that the command prints, and what there is to say about them."""

from collections.abc import Sequence
from pathlib import Path

from netsim.validate import report
from netsim.validate.score import ready, scaling
from netsim.validate.training import Result


def tables(results: Sequence[Result]) -> str:
    """Overall figures, groups with an aim, scaling series, errors by source, device and model, and reasons of rows that did not run."""
    complete = ready(results)
    parts = [
        report.overall(results),
        "## Groups with an aim\n\n" + report.aims(results),
        "## Scaling\n\n" + _scaling(results),
        "## By device and precision\n\n" + report.groups(complete, "gpu_family", "precision"),
        "## By source\n\n" + report.groups(complete, "source"),
        "## By model\n\n" + report.groups(complete, "model", "gpu_family"),
        "## Rows that did not run\n\n" + report.skipped(results),
    ]
    return "\n\n".join(parts)


def _scaling(results: Sequence[Result]) -> str:
    rows = [
        [name, f"{fewest} to {most}", f"{measured:.3f}", f"{predicted:.3f}"] for name, fewest, most, measured, predicted in scaling(results)
    ]
    return (
        "Growth of the step time from the fewest to the most GPUs of a series, at the same batch per GPU (1 is perfect).\n\n"
        + report.table(("series", "GPUs", "measured", "predicted"), rows)
    )


def page(results: Sequence[Result], data: Path) -> str:
    """The page: how it was made, the tables, and the notes that stand beside this module in notes.md."""
    notes = Path(__file__).with_name("notes.md").read_text(encoding="utf-8")
    memory = _other("memory", data)
    return (
        "\n\n".join(
            [
                "# Predictions against published measurements",
                "Written by `python -m netsim validate --page docs/validation.md` from the tables in `docs/data`, with their sources.\n"
                "An error is predicted over measured step time, less one. Nothing is fitted to a row, a source or a model.",
                tables(results),
                memory,
                notes.strip(),
            ]
        )
        + "\n"
    )


def _other(kind: str, data: Path) -> str:
    from netsim.errors import InputError
    from netsim.validate.others import validate

    try:
        return validate(kind, data, None)[1]
    except InputError:
        return ""
