"""Utilisation of groups of links over time: what heat maps, counters and CDFs are made of.

Rows of the series are weighted by how many links they show; the mean of a group is over its links and the span, the highest is that of
any of its links in any interval of the span, so that short bursts are seen.
"""

from typing import NamedTuple

import numpy as np

from netsim.kernels.structs import LINK_TIERS, Array
from netsim.telemetry.read import RunFile


class Heat(NamedTuple):
    """Utilisation (0 to 1) of groups of links in equal spans of time."""

    t_s: Array  # float64[spans + 1] edges
    tier: list[str]
    rail: list[int]  # -1: all rails
    links: list[int]  # links of the group
    mean: Array  # float64[groups, spans]
    highest: Array  # float64[groups, spans] of any link in any interval


def heat(run: RunFile, spans: int, by_rail: bool = True, window: tuple[float, float] = (0.0, np.inf)) -> Heat:
    """Reduce the series to groups (tier, and rail where links have one) and at most `spans` spans of time."""
    tier, rail, rate, row = run["links/tier"], run["links/rail"], run["links/rate"], run["links/series"]
    a, b = _columns(run, window)
    edge = np.unique(np.linspace(a, b, min(spans, b - a) + 1).round().astype(np.int64))
    groups = sorted({(LINK_TIERS.index(t), int(r) if by_rail else -1) for t, r in zip(tier.tolist(), rail.tolist(), strict=True)})
    mean, highest, sizes = np.zeros((len(groups), len(edge) - 1)), np.zeros((len(groups), len(edge) - 1)), []
    cache: dict[int, tuple[Array, Array]] = {}
    for g, (t, r) in enumerate(groups):
        mine = np.flatnonzero((tier == LINK_TIERS[t]) & ((rail == r) | (not by_rail)) & (rate > 0))
        sizes.append(len(mine))
        rows, counts = np.unique(np.stack([row[mine], rate[mine]]), axis=1, return_counts=True)
        for (line, capacity), n in zip(rows.T.tolist(), counts.tolist(), strict=True):
            if line < 0:
                continue
            if int(line) not in cache:
                cache[int(line)] = _spread(run, int(line), edge)
            full = capacity * run.interval_ps * 1e-12
            mean[g] += n / len(mine) * cache[int(line)][0] / full
            np.maximum(highest[g], cache[int(line)][1] / full, out=highest[g])
    return Heat(edge * (run.interval_ps * 1e-12), [LINK_TIERS[t] for t, _ in groups], [r for _, r in groups], sizes, mean, highest)


def _columns(run: RunFile, window: tuple[float, float]) -> tuple[int, int]:
    n, width = run.shape("series/bytes")[1], run.interval_ps * 1e-12
    a = min(n - 1, int(window[0] / width))
    return a, max(a + 1, int(min(n, np.ceil(window[1] / width))))


def _spread(run: RunFile, row: int, edge: Array) -> tuple[Array, Array]:
    """Mean and most bytes per interval of a row, between edges."""
    values = run.slice("series/bytes", row, slice(int(edge[0]), int(edge[-1]))).astype(float)
    at = edge[:-1] - edge[0]
    return np.add.reduceat(values, at) / np.diff(edge), np.maximum.reduceat(values, at)


def merged(h: Heat) -> tuple[Heat, list[str]]:
    """Rails of a tier that did the same in one row; and the names of the rows."""
    rows: list[list[int]] = []
    for g in range(len(h.tier)):
        first = rows[-1][0] if rows else g
        same = h.tier[first] == h.tier[g] and np.allclose(h.mean[first], h.mean[g]) and np.allclose(h.highest[first], h.highest[g])
        if rows and same:
            rows[-1].append(g)
        else:
            rows.append([g])
    pick = [row[0] for row in rows]
    names = [_group_name(h.tier[row[0]], [h.rail[g] for g in row], sum(h.links[g] for g in row)) for row in rows]
    tiers, rails = [h.tier[g] for g in pick], [h.rail[g] for g in pick]
    return Heat(h.t_s, tiers, rails, [h.links[g] for g in pick], h.mean[pick], h.highest[pick]), names


def _group_name(tier: str, rails: list[int], links: int) -> str:
    if rails[0] < 0:
        return f"{tier} ({links:,})"
    return f"{tier} rail {rails[0]} ({links:,})" if len(rails) == 1 else f"{tier} rails {rails[0]}-{rails[-1]} ({links:,})"


def tier_utilisation(run: RunFile, spans: int, window: tuple[float, float] = (0.0, np.inf)) -> tuple[Array, dict[str, tuple[Array, Array]]]:
    """(start of each span in seconds, {tier: (mean, highest) utilisation}) of tiers that carried anything."""
    h = heat(run, spans, by_rail=False, window=window)
    return h.t_s[:-1], {t: (h.mean[g], h.highest[g]) for g, t in enumerate(h.tier) if h.highest[g].any()}


def utilisation_cdf(run: RunFile, points: int = 200) -> dict[str, tuple[Array, Array]]:
    """{tier: (utilisation, share of links used at most so much)} of means over the whole run."""
    tier, rate, nbytes = run["links/tier"], run["links/rate"], run["links/bytes"]
    used = np.where(rate > 0, nbytes / np.maximum(rate, 1) / max(run.end_ps * 1e-12, 1e-30), 0.0)
    out = {}
    for name in LINK_TIERS:
        mine = np.sort(used[tier == name])
        if len(mine) and mine[-1] > 0:
            out[name] = thinned(mine, np.arange(1, len(mine) + 1) / len(mine), points)
    return out


def thinned(x: Array, y: Array, points: int) -> tuple[Array, Array]:
    """At most `points` points of a curve, evenly over its length, both ends among them."""
    pick = np.unique(np.linspace(0, len(x) - 1, min(points, len(x))).round().astype(int))
    return x[pick], y[pick]


def weighted_cdf(values: Array, weights: Array, points: int = 400) -> tuple[Array, Array]:
    """(values in order, share of the weight at or below each)."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order], dtype=float)
    return thinned(values[order], share / share[-1], points) if len(values) else (np.zeros(0), np.zeros(0))
