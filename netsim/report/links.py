"""Which links were busy, when, with what; and how evenly traffic spread over links that could have shared it.

Utilisation of a link over a span is bytes / (rate x span). Links of a tier that are used to the same per mille are told once, with their
number.
"""

from typing import Any, NamedTuple

import numpy as np

from netsim.errors import InputError, did_you_mean
from netsim.kernels.structs import LINK_TIERS, Array
from netsim.report.loaders import ALL, Loaders
from netsim.telemetry.channels import COUNTERS
from netsim.telemetry.read import RunFile
from netsim.units import format_time

HOT = 0.9
"""Utilisation from which an interval of a link counts as hot."""
SPARKS = " ▁▂▃▄▅▆▇█"
COUNTED = tuple(COUNTERS)


class Selection(NamedTuple):
    """Which links, and which part of the run (seconds)."""

    tier: str | None = None
    rail: int | None = None
    window: tuple[float, float] | None = None


class Links(NamedTuple):
    """The links of a selection with what they carried in its window; arrays of one entry per link."""

    name: Array
    tier: Array
    rail: Array
    rate: Array
    nbytes: Array  # in the window
    row: Array  # of series/*, -1 where nothing was carried
    load: Array | None  # float[link, category], over the whole run
    number: Array  # in the file
    span_s: float
    columns: tuple[int, int]  # of series/*, in the window


def select(run: RunFile, chosen: Selection) -> Links:
    """Read the links of a selection; InputError where it names what the run does not have."""
    tier, rail = run["links/tier"], run["links/rail"]
    keep = np.ones(len(tier), bool)
    if chosen.tier is not None:
        if chosen.tier not in LINK_TIERS:
            raise InputError(f"--tier: expected one of {', '.join(LINK_TIERS)}; got {chosen.tier!r}{did_you_mean(chosen.tier, LINK_TIERS)}")
        keep &= tier == chosen.tier
    if chosen.rail is not None:
        if chosen.rail not in rail:
            raise InputError(f"--rail: expected a rail of this run (0 to {rail.max()}); got {chosen.rail}")
        keep &= rail == chosen.rail
    index = np.flatnonzero(keep)
    row = run["links/series"] if "links/series" in run else np.full(len(tier), -1)
    end_s = run.end_ps * 1e-12
    nbytes, span = run["links/bytes"], end_s
    if chosen.window is not None:
        nbytes, span = _in_window(run, row, chosen.window), min(chosen.window[1], end_s) - chosen.window[0]
    load = run["links/load"][index] if "links/load" in run else None
    name, rate = run["links/name"][index], run["links/rate"][index]
    columns = (0, 1 << 62)
    if chosen.window is not None:
        load = None
        columns = int(chosen.window[0] / run.interval_ps * 1e12), int(np.ceil(min(chosen.window[1], end_s) / run.interval_ps * 1e12))
    return Links(name, tier[index], rail[index], rate, nbytes[index], row[index], load, index, max(span, 1e-30), columns)


def _in_window(run: RunFile, row: Array, window: tuple[float, float]) -> Array:
    """Bytes of every link in a window; of an interval that is cut, its share."""
    if "series/bytes" not in run:
        raise InputError("--window: expected a run that recorded series over time; telemetry.channels left them out")
    first, last = (t / (run.interval_ps * 1e-12) for t in window)
    if not 0 <= first < last or window[0] >= run.end_ps * 1e-12:
        raise InputError(f"--window: expected two times in order, the first before the end ({format_time(run.end_ps)})")
    last = min(last, run.shape("series/bytes")[1])
    a, b = int(first), int(np.ceil(last))
    share = np.minimum(np.arange(a, b) + 1, last) - np.maximum(np.arange(a, b), first)
    carried = run.slice("series/bytes", slice(None), slice(a, b)).astype(float) @ share
    return np.where(row < 0, 0.0, np.append(carried, 0.0)[row])


def utilisation(links: Links) -> Array:
    """Share of the capacity used, float64[links]; 0 where a link has failed."""
    return np.where(links.rate > 0, links.nbytes / np.maximum(links.rate, 1) / links.span_s, 0.0)


def busiest(run: RunFile, chosen: Selection, top: int) -> list[dict[str, Any]]:
    """Rows about the busiest links, one for all of a tier that are as busy to the per mille, most used first."""
    links = select(run, chosen)
    used = utilisation(links)
    tiers = np.array([LINK_TIERS.index(t) for t in links.tier], float)
    _, first, group = np.unique(np.stack([tiers, links.rate, np.round(used, 3)]), axis=1, return_index=True, return_inverse=True)
    order = np.lexsort((first, -used[first]))[:top]
    counted = {name: run[f"links/{name}"][links.number] for name in COUNTED if f"links/{name}" in run}
    rows = [_about(run, links, used, np.flatnonzero(group.ravel() == g), counted) for g in order if links.nbytes[first[g]] > 0]
    loaders = Loaders(run)
    for row, g in zip(rows, order, strict=False):
        if found := loaders.of(int(links.number[first[g]]), chosen.window or ALL, 5):
            row["operations"] = found
        if "load" not in row and (shares := loaders.categories(int(links.number[first[g]]), chosen.window or ALL)):
            row["load"] = shares
    return rows


def _about(run: RunFile, links: Links, used: Array, alike: Array, counted: dict[str, Array]) -> dict[str, Any]:
    """A row about links that are alike: the first of them, and the highest counters of any."""
    i = int(alike[0])
    out: dict[str, Any] = {
        "link": str(links.name[i]),
        "tier": str(links.tier[i]),
        "rail": int(links.rail[i]),
        "alike": len(alike),
        "bytes": float(links.nbytes[i]),
        "utilisation": float(used[i]),
        "rate": float(links.rate[i]),
    }
    if links.row[i] >= 0 and "series/bytes" in run:
        first, last = links.columns
        over_time = run.slice("series/bytes", int(links.row[i]), slice(first, last)) / (links.rate[i] * run.interval_ps * 1e-12)
        out |= {"peak": float(over_time.max()), "peak_at_s": (first + int(over_time.argmax())) * run.interval_ps * 1e-12}
        out["hot_share"] = float((over_time >= HOT).mean())
        out["over_time"] = [round(float(v), 4) for v in resampled(over_time, 40)]
    if links.load is not None and links.load[i].sum() > 0:
        share = links.load[i] / links.load[i].sum()
        names = run.names("categories")
        out["load"] = {names[c]: round(float(share[c]), 4) for c in np.argsort(-share) if share[c] > 0.0005}
    return out | {name: values[alike].max().item() for name, values in counted.items()}


def resampled(values: Array, n: int) -> Array:
    """Mean of `values` over n equal parts of its length (or as it is, where it is shorter)."""
    if len(values) <= n:
        return np.asarray(values, float)
    total = np.r_[0.0, np.cumsum(values, dtype=float)]
    at = np.linspace(0, len(values), n + 1)
    return np.diff(np.interp(at, np.arange(len(total)), total)) / np.diff(at)


def sparks(values: list[float]) -> str:
    """A line of blocks, full at 1."""
    return "".join(SPARKS[min(len(SPARKS) - 1, int(np.ceil(min(v, 1.0) * (len(SPARKS) - 1) - 1e-9)))] for v in values)


def imbalance(run: RunFile, chosen: Selection, top: int = 5) -> list[dict[str, Any]]:
    """Switches whose links up shared their traffic worst: most over mean bytes of the links that leave one switch for the tier above.

    Equal-cost routing may use any of them, so 1 is even, and their number is the worst.
    """
    links = select(run, chosen)
    source = np.array([name.split(" -> ")[0] for name in links.name], dtype=object)
    up = ((links.tier == "spine") & _starts(source, "leaf")) | ((links.tier == "core") & _starts(source, "spine"))
    if not up.any():
        return []
    names, number = np.unique(source[up].astype(str), return_inverse=True)
    count = np.bincount(number)
    total = np.bincount(number, weights=links.nbytes[up])
    most = np.zeros(len(names))
    np.maximum.at(most, number, links.nbytes[up])
    ratio = np.where(total > 0, most * count / np.maximum(total, 1e-30), 0.0)
    order = np.argsort(-ratio, kind="stable")[:top]
    return [
        {"switch": str(names[i]), "links": int(count[i]), "bytes": float(total[i]), "imbalance": float(ratio[i])}
        for i in order
        if count[i] > 1 and total[i] > 0
    ]


def _starts(names: Array, prefix: str) -> Array:
    return np.array([str(name).startswith(prefix) for name in names], bool)


def hot_spots(run: RunFile, chosen: Selection, top: int = 5) -> list[dict[str, Any]]:
    """Longest spells in which some link of a tier was hot: tier, start, length, and how many links at the worst moment."""
    if "series/bytes" not in run:
        return []
    links, found, loaders = select(run, chosen), [], Loaders(run)
    width = run.interval_ps * 1e-12
    for tier in dict.fromkeys(links.tier.tolist()):
        mine = np.flatnonzero((links.tier == tier) & (links.row >= 0) & (links.rate > 0))
        hot, hottest = np.zeros(run.shape("series/bytes")[1], np.int64), np.full(run.shape("series/bytes")[1], -1)
        for row, i, n in zip(*np.unique(links.row[mine], return_index=True, return_counts=True), strict=True):
            full = run.slice("series/bytes", int(row)) >= HOT * links.rate[mine[i]] * width
            hot += int(n) * full
            hottest[full & (hottest < 0)] = links.number[mine[i]]
        edge = np.flatnonzero(np.diff(np.r_[0, hot > 0, 0]))
        for a, b in edge.reshape(-1, 2).tolist():
            if chosen.window is None or (a * width < chosen.window[1] and b * width > chosen.window[0]):
                spell = {"tier": tier, "start_s": a * width, "length_s": (b - a) * width, "links": int(hot[a:b].max())}
                found.append(spell | {"link": int(hottest[a])})
    longest = sorted(found, key=lambda spell: -spell["length_s"])[:top]
    for spell in longest:
        at = spell.pop("link")
        spell["operations"] = loaders.of(at, (spell["start_s"], spell["start_s"] + spell["length_s"]), 1)
    return longest
