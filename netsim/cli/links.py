"""`netsim links RUN`: the busiest links of a run, when they were busy, and with what."""

import argparse
import csv
import json
import sys
from typing import Any

from netsim.errors import InputError
from netsim.units import PS_PER_S, format_size, format_time, parse_time

COUNTED = {"queue_max": "queue", "queue_mean": "mean queue", "ecn": "marks", "pause_ps": "paused", "drops": "drops"}
"""Counters that are listed, and their headings."""
LOADED = 5
"""Links of which is told what loaded them."""
HELP = "busiest links of a run, hot spots over time, imbalance, and what loaded them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run, or its result.h5")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="how many (sets of) links to list (20)")
    parser.add_argument("--tier", metavar="TIER", help="only links of a tier: scale_up, between, host, nic, spine or core")
    parser.add_argument("--rail", type=int, metavar="R", help="only links of a rail")
    parser.add_argument("--window", metavar="FROM:TO", help="only this part of the run, such as 10ms:20ms")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print the list as CSV")
    form.add_argument("--json", action="store_true", help="print everything as one JSON document in the last line")


def run(args: argparse.Namespace) -> int:
    """Read the result file and print what was asked for."""
    from netsim.report import links, notes
    from netsim.telemetry.read import open_run

    if args.top < 1:
        raise InputError(f"--top: expected a number of links from 1; got {args.top}")
    chosen = links.Selection(args.tier, args.rail, window_of(args.window))
    with open_run(args.run) as opened:
        rows = links.busiest(opened, chosen, args.top)
        if args.csv:
            _print_csv(rows)
            return 0
        uneven, hot = links.imbalance(opened, chosen), links.hot_spots(opened, chosen)
        said = notes.of(opened)
    if args.json:
        print(json.dumps({"links": rows, "imbalance": uneven, "hot_spots": hot, "notes": said}))
        return 0
    print(_render(rows, uneven, hot, said))
    return 0


def window_of(text: str | None) -> tuple[float, float] | None:
    """`'10ms:20ms'` -> seconds; either side may be left out."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        times = tuple(parse_time(part) / PS_PER_S if part else default for part, default in ((first, 0.0), (last, float("inf"))))
    except ValueError:
        times = ()
    if not colon or len(times) != 2 or times[0] >= times[1]:
        raise InputError(f"--window: expected two times in order such as 10ms:20ms; got {text!r}")
    return times[0], times[1]


def _print_csv(rows: list[dict[str, Any]]) -> None:
    from netsim.report.loaders import worded

    names = list(dict.fromkeys(name for row in rows for name in row if name not in ("over_time", "load", "operations")))
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow([*names, "load", "operations"])
    for row in rows:
        load = " ".join(f"{k}:{v}" for k, v in row.get("load", {}).items())
        calls = "; ".join(f"{one['share']:.4f} {worded(one)}" for one in row.get("operations", []))
        table.writerow([row.get(name, "") for name in names] + [load, calls])


def _render(rows: list[dict[str, Any]], uneven: list[dict[str, Any]], hot: list[dict[str, Any]], said: list[str]) -> str:
    from netsim.report.table import text_table

    out = [*said, *([""] if said else [])]
    out.append(text_table("busiest links (a row stands for all of its tier that are as busy)", _columns(rows)))
    if loaded := _loaded(rows):
        out += ["", text_table("what loaded them most", [("link", "bytes", "call", "from", "to"), *loaded])]
    if hot:
        spells = [(h["tier"], _time(h["start_s"]), _time(h["length_s"]), f"{h['links']:,}", _call(h)) for h in hot]
        out += ["", text_table("longest spells with links at 90 % or more", [("tier", "from", "for", "links", "with"), *spells])]
    if uneven:
        shares = [(u["switch"], str(u["links"]), format_size(u["bytes"]), f"{u['imbalance']:.2f}") for u in uneven]
        out += ["", text_table("least even links up (most over mean)", [("switch", "links", "bytes", "imbalance"), *shares])]
    return "\n".join(out)


def _columns(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    head = ["link", "tier", "such links", "bytes", "mean", "peak", "at", "loaded by"]
    counted = [name for name in COUNTED if any(row.get(name) for row in rows)]
    table = [tuple(head + [COUNTED[name] for name in counted] + (["over time"] if any("over_time" in r for r in rows) else []))]
    for row in rows:
        cells = [row["link"], row["tier"], f"{row['alike']:,}", format_size(row["bytes"]), f"{100 * row['utilisation']:.1f} %"]
        cells += [f"{100 * row['peak']:.0f} %", _time(row["peak_at_s"])] if "peak" in row else ["-", "-"]
        cells.append(", ".join(f"{name} {100 * share:.0f} %" for name, share in list(row.get("load", {}).items())[:3]) or "-")
        cells += [_count(name, row.get(name, 0)) for name in counted]
        if "over_time" in row:
            from netsim.report.links import sparks

            cells.append(sparks(row["over_time"]))
        table.append(tuple(cells))
    return table


def _loaded(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A line for each of the three calls that loaded a link most."""
    from netsim.report.loaders import worded

    out: list[tuple[str, ...]] = []
    for row in rows[:LOADED]:
        for i, one in enumerate(row.get("operations", [])[:3]):
            times = _time(one["from_s"]), _time(one["to_s"])
            out.append((row["link"] if i == 0 else "", f"{100 * one['share']:.0f} %", worded(one), *times))
    return out


def _call(spell: dict[str, Any]) -> str:
    from netsim.report.loaders import worded

    return worded(spell["operations"][0]) if spell["operations"] else "-"


def _count(name: str, value: float) -> str:
    return format_size(round(value)) if name.startswith("queue") else format_time(value) if name == "pause_ps" else f"{value:,}"


def _time(seconds: float) -> str:
    return format_time(seconds * PS_PER_S)
