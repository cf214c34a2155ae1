"""The other tables: collectives, kernels, memory with single-node steps, effects of the network. Each has its evaluator; here they meet.

Every kind yields `Item`s: predicted and measured in one unit, under the name of a group, or the reason why the row has no prediction.
"""

import math
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from netsim.errors import InputError
from netsim.units import PS_PER_S
from netsim.validate import rows
from netsim.validate.report import percent, table


class Item(NamedTuple):
    """One row of a table with its prediction."""

    group: str
    source: str
    measured: float
    predicted: float
    skipped: str = ""

    @property
    def error(self) -> float:
        """Relative error."""
        return self.predicted / self.measured - 1


Validated = tuple[dict[str, Any], str]


def validate(kind: str, data: Path, condition: str | None) -> Validated:
    """Return the JSON document and the text of one kind of table."""
    items, text = EVALUATORS[kind](data, condition)
    return document(items), f"## {kind.capitalize()}\n\n{summary(items)}{text}"


def document(items: list[Item]) -> dict[str, Any]:
    """The same form as that of training rows."""
    names = dict.fromkeys(i.group for i in items)
    return {
        "overall": _figures(items),
        "groups": [{"by": {"group": name}, **_figures([i for i in items if i.group == name])} for name in names],
        "rows": [
            {
                "source": i.source, "group": i.group, "predicted": None if i.skipped else i.predicted, "measured": i.measured or None,
                "error": None if i.skipped else i.error, "assumed": [], "skipped": i.skipped or None,
            }
            for i in items
        ],
    }  # fmt: skip


def _figures(items: Iterable[Item]) -> dict[str, Any]:
    every = list(items)
    errors = np.array([i.error for i in every if not i.skipped])
    if not len(errors):
        return {"rows": len(every), "ran": 0, "median_abs_error": None, "p90_abs_error": None, "bias": None}
    return {
        "rows": len(every), "ran": len(errors), "median_abs_error": float(np.median(np.abs(errors))),
        "p90_abs_error": float(np.quantile(np.abs(errors), 0.9)), "bias": float(np.median(errors)),
    }  # fmt: skip


def summary(items: list[Item]) -> str:
    """Errors by group, and the reasons of rows without a prediction."""
    lines = []
    for name in dict.fromkeys(i.group for i in items if not i.skipped):
        f = _figures([i for i in items if i.group == name])
        lines.append(
            [
                name,
                f"{f['ran']} of {f['rows']}",
                *(percent(f[c] if f[c] is not None else math.nan) for c in ("median_abs_error", "p90_abs_error")),
                percent(f["bias"], True),
            ]
        )
    reasons: dict[str, int] = {}
    for item in items:
        if item.skipped:
            reasons[item.skipped] = reasons.get(item.skipped, 0) + 1
    left = "\n\n" + table(("not predicted", "rows"), [[why.replace("|", "/"), str(n)] for why, n in reasons.items()]) if reasons else ""
    return (table(("group", "ran", "median", "p90", "bias"), lines) if items else "") + left + "\n"


def _collectives(data: Path, condition: str | None) -> tuple[list[Item], str]:
    """Calls alone on their machine; multi-node rows from 1 MiB are the group with an aim."""
    import csv
    import tempfile

    from netsim.validate import collectives

    chosen = rows.choose(rows.read(data, "collectives"), condition)
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(chosen[0].field) if chosen else ["table_id"])
        writer.writeheader()
        writer.writerows(row.field for row in chosen)
        file.flush()
        found, left = collectives.read(Path(file.name))
    items = []
    for row in collectives.simulate(found):
        where = "multi-node" if max(row.comm.node) else "one node"
        items.append(Item(f"{where}, {'from' if row.nbytes >= 1 << 20 else 'below'} 1 MiB", row.table, row.measured_us, row.simulated_us))
    count = {name: sum(1 for r in chosen if r["table_id"] == name) for name in left}
    items += [Item("left out", name, 0.0, 0.0, why) for name, why in left.items() for _ in range(count[name])]
    return items, "\nAim for multi-node calls from 1 MiB: median 10 %, 90th percentile 30 %.\n"


def _kernels(data: Path, condition: str | None) -> tuple[list[Item], str]:
    """Rows against the lookup; without a table of kernels at hand, the shipped tables against themselves, each row left out in turn."""
    from compute import evaluate

    try:
        chosen = rows.choose(rows.read(data, "kernels"), condition)
    except InputError:
        lines, missed = evaluate.self_test()
        head = ("device", "family", "rows", "median", "p90", "within 1 sigma", "within 1.645 sigma")
        return [], "Leave-one-out over the shipped tables.\n\n" + evaluate.markdown(head, lines) + "".join(
            f"\n* misses its aim: {m}" for m in missed
        ) + "\n"
    return [_kernel(row) for row in chosen], ""


def _kernel(row: rows.Row) -> Item:
    from compute import evaluate, tabulate
    from compute.device import library_shift
    from compute.lookup import EXACT, quantise_s, times
    from netsim.validate.cluster import DEVICES

    name = DEVICES.get(row["gpu_family"], "")
    try:
        entry = tabulate.gemm_row(row.field) or tabulate.attention_row(row.field) or tabulate.layer_row(row.field)
    except (KeyError, ValueError):
        entry = None
    if not name or entry is None:
        return Item(
            row["kernel"], row["source"], 0.0, 0.0, f"no card for {row['gpu_family']}" if not name else "not a kernel of the tables"
        )
    if name not in _devices:
        _devices[name] = evaluate.device_of(name)
    device = _devices[name]
    answer = times(device, [entry.kernel], sustained=False)
    seconds = answer.t_ps[0] / PS_PER_S + (quantise_s(device, entry.kernel) if entry.fused else 0.0)
    seconds *= math.exp(-library_shift(device.card, device.scopes, device.ratios, entry))
    held = answer.source[0] == EXACT or entry.kernel in _held(name)
    group = f"{name} {entry.kernel.kind} {entry.kernel.dtype}{', in its table' if held else ''}"
    return Item(group, row["source"], entry.time_us, float(seconds * 1e6))


@cache
def _held(name: str) -> frozenset[Any]:
    """Kernels that a device's own tables hold, which says nothing of interpolation."""
    from compute import cards, tables

    return frozenset(row.kernel for table in cards.card(name).tables for row in tables.read(table))


_devices: dict[str, Any] = {}


def _memory(data: Path, condition: str | None) -> tuple[list[Item], str]:
    from netsim.validate.single_node import memory

    return memory(rows.choose(rows.read(data, "memory"), condition))


def _network(data: Path, condition: str | None) -> tuple[list[Item], str]:
    from netsim.validate.effects import effects

    return effects(rows.choose(rows.read(data, "network"), condition)), ""


EVALUATORS: dict[str, Callable[[Path, str | None], tuple[list[Item], str]]] = {
    "collectives": _collectives, "kernels": _kernels, "memory": _memory, "network": _network,
}  # fmt: skip
