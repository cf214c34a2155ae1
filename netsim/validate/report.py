"""What `validate` prints, and what it leaves as JSON."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from netsim.validate.score import AIMS, Score, grouped, layouts, ready, score
from netsim.validate.training import Result


def percent(value: float, signed: bool = False) -> str:
    """`0.123` -> `12.3 %`; a dash where there is no value."""
    return "-" if math.isnan(value) else f"{100 * value:+.1f} %" if signed else f"{100 * value:.1f} %"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, numbers to the right."""
    rule = ["---" if i == 0 else "--:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(head), rule, *rows])


def aims(results: Sequence[Result]) -> str:
    """The groups with an aim."""
    rows = []
    for aim in AIMS:
        mine = [r for r in results if aim.holds(r)]
        mine = mine if aim.partial else ready(mine)
        s = score(mine)
        met = "-" if not s.ran else "yes" if s.median <= aim.median and s.p90 <= aim.p90 else "no"
        rows.append(
            [
                aim.name,
                f"{s.ran} of {s.rows}",
                percent(s.median),
                percent(aim.median),
                percent(s.p90),
                percent(aim.p90),
                percent(s.bias, True),
                met,
            ]
        )
    count, rank = layouts(ready(results))
    rows.append(
        [
            "BLOOM layouts: Spearman",
            str(count),
            "-" if math.isnan(rank) else f"{rank:.2f}",
            "at least 0.90",
            "",
            "",
            "",
            "-" if math.isnan(rank) else "yes" if rank >= 0.9 else "no",
        ]
    )
    return table(("group", "ran", "median", "aim", "p90", "aim", "bias", "met"), rows)


def groups(results: Sequence[Result], *columns: str) -> str:
    """Errors by the values of columns."""
    rows = []
    for key, mine in grouped(results, *columns).items():
        s = score(mine)
        rows.append(
            [
                " / ".join(k or "-" for k in key).replace("|", "/"),
                f"{s.ran} of {s.rows}",
                percent(s.median),
                percent(s.p90),
                percent(s.bias, True),
            ]
        )
    return table((" / ".join(columns), "ran", "median", "p90", "bias"), rows)


def skipped(results: Sequence[Result]) -> str:
    """The reasons why rows did not run, with their number."""
    count = Counter(r.skipped for r in results if r.skipped)
    return table(("reason", "rows"), [[reason.replace("|", "/"), str(n)] for reason, n in count.most_common()])


def rows(results: Sequence[Result]) -> str:
    """Every row: what was measured, what is predicted, what was assumed."""
    lines = []
    for r in results:
        f = r.row
        layout = " ".join(f"{c}{f[c] or 1}" for c in ("tp", "pp", "cp"))
        what = f"{f['model']} {f['precision']} on {f['num_gpus']} {f['gpu_family']}, {layout}, batch {f['gbs'] or '-'}"
        if r.skipped:
            lines.append(f"{f.file}:{f.line}: {what}: not run: {r.skipped}")
        else:
            lines.append(
                f"{f.file}:{f.line}: {what}: measured {r.measured_s:.3f} s, predicted {r.predicted_s:.3f} s, {percent(r.error, True)}"
            )
            lines.append("    assumed: " + "; ".join(r.assumed))
    return "\n".join(lines)


def overall(results: Sequence[Result]) -> str:
    """One line: rows, how many ran, errors."""
    s, full = score(results), score(ready(results))
    share = full.ran / full.rows if full.rows else float("nan")
    return (
        f"{s.ran} of {s.rows} rows ran ({full.ran} of {full.rows} complete ones, {percent(share)}):"
        f" median error {percent(s.median)}, 90th percentile {percent(s.p90)}, bias {percent(s.bias, True)}"
    )


def document(results: Sequence[Result]) -> dict[str, Any]:
    """The JSON document: overall, groups by source, device and model, and every row."""
    return {
        "overall": _figures(score(results)),
        "groups": [
            {"by": dict(zip(columns, key, strict=True)), **_figures(score(mine))}
            for columns in (("source",), ("gpu_family",), ("model",), ("source", "gpu_family", "model"))
            for key, mine in grouped(results, *columns).items()
        ]
        + [{"by": {"aim": a.name}, **_figures(score(ready(r for r in results if a.holds(r))))} for a in AIMS],
        "bloom_spearman": _finite(layouts(ready(results))[1]),
        "rows": [
            {
                "source": r.row["source"], "file": r.row.file, "line": r.row.line, "model": r.row["model"], "gpu": r.row["gpu_family"],
                "gpus": r.row.count("num_gpus"), "precision": r.row["precision"],
                "predicted": r.predicted_s if not r.skipped else None, "measured": r.measured_s or None,
                "error": r.error if not r.skipped else None, "assumed": r.assumed, "skipped": r.skipped or None,
            }
            for r in results
        ],
    }  # fmt: skip


def _figures(s: Score) -> dict[str, Any]:
    return {"rows": s.rows, "ran": s.ran, "median_abs_error": _finite(s.median), "p90_abs_error": _finite(s.p90), "bias": _finite(s.bias)}


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value
