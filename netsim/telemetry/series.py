"""What every link carried over time, from a log of transfers; links that carried the same at all times share a row.

Two links are alike when the multisets of (transfer, weight) that loaded them are equal, and a transfer is its start, end, pace and call.
Multisets are compared by 64-bit hashes, as in `netsim.simulate.fold`.
A symmetric run over thousands of links needs under a hundred rows, folded or not.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from netsim.kernels import bins
from netsim.kernels.hashing import mix
from netsim.kernels.structs import Array

BLOCK = 4096
"""Intervals that are laid out at a time, and of a chunk in the file."""
PIECE = 1 << 14
"""Transfers that are looked at together."""


class Log(NamedTuple):
    """Transfers: bundle moved at `pace` bytes/s from t0 to t1 (ps)."""

    bundle: Array  # int32[N]
    t0: Array  # int64[N]
    t1: Array  # int64[N]
    pace: Array  # float64[N]
    tag: Array  # int32[N] what call it belonged to


def no_log() -> Log:
    """A log without transfers."""
    return Log(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int32))


class Loads(NamedTuple):
    """Which links a bundle loads, and how often its bytes cross them: the CSR of the fluid network over simulated links."""

    bundle_ptr: Array  # int64[B + 1]
    node_link: Array  # int32[N]
    node_coef: Array  # float64[N]


def pieces(log: Log) -> Iterator[Log]:
    """A log piece by piece: what NumPy makes of each stays in the cache."""
    for at in range(0, len(log.t0), PIECE):
        yield Log(*(column[at : at + PIECE] for column in log))


def alike(log: Log, loads: Loads, n_links: int) -> tuple[Array, int]:
    """Return (row int32[n_links], rows): links with the same row carried the same at all times; -1: nothing."""
    n_bundles = len(loads.bundle_ptr) - 1
    print_ = np.zeros(n_bundles, np.uint64)
    for part in pieces(log):
        transfer = mix(mix(mix(part.t0.view(np.uint64)) + part.t1.view(np.uint64)) + part.pace.view(np.uint64) + part.tag.astype(np.uint64))
        np.add.at(print_, part.bundle, transfer)
    moved = np.bincount(log.bundle, minlength=n_bundles) > 0
    node_bundle = np.repeat(np.arange(n_bundles), np.diff(loads.bundle_ptr))
    on = moved[node_bundle]
    link = np.zeros(n_links, np.uint64)
    np.add.at(link, loads.node_link[on], mix(print_[node_bundle[on]] + mix(loads.node_coef[on].view(np.uint64))))
    used = np.zeros(n_links, bool)
    used[loads.node_link[on]] = True
    row = np.full(n_links, -1, np.int32)
    _, first, inverse = np.unique(link[used], return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first))
    row[used] = rank[inverse.ravel()]
    return row, len(first)


def blocks(log: Log, loads: Loads, row: Array, rows: int, interval: int, end_ps: int) -> Iterator[tuple[int, Array]]:
    """Yield (first interval, bytes float64[rows, intervals]) over a run, one link standing for all of its row."""
    shown = np.zeros(len(row), bool)
    shown[np.unique(row, return_index=True)[1]] = True
    shown &= row >= 0
    keep = shown[loads.node_link]
    ptr = np.r_[0, np.cumsum(keep)][loads.bundle_ptr].astype(np.int64)
    node_row, coef = row[loads.node_link[keep]], loads.node_coef[keep]
    use = np.flatnonzero((np.diff(ptr) > 0)[log.bundle])
    order = use[np.argsort(log.t0[use], kind="stable")]
    starts = log.t0[order]
    longest = int((log.t1[order] - starts).max()) if len(order) else 0
    n_bins = -(-end_ps // interval)
    for bin0 in range(0, n_bins, BLOCK):
        block = np.zeros((rows, min(BLOCK, n_bins - bin0)))
        first = np.searchsorted(starts, bin0 * interval - longest)
        last = np.searchsorted(starts, (bin0 + block.shape[1]) * interval)
        bins.add_rows(log.bundle, log.t0, log.t1, log.pace, order, first, last, ptr, node_row, coef, interval, bin0, block)
        yield bin0, block


def bundle_bytes(log: Log, n_bundles: int) -> Array:
    """Bytes that every bundle moved, float64[n_bundles], as far as the log goes."""
    return np.bincount(log.bundle, weights=log.pace * (log.t1 - log.t0) * 1e-12, minlength=n_bundles)


def link_bytes(moved: Array, loads: Loads, n_links: int) -> Array:
    """Bytes that every simulated link carried, float64[n_links], from those that every bundle moved."""
    node_bundle = np.repeat(np.arange(len(moved)), np.diff(loads.bundle_ptr))
    return np.bincount(loads.node_link, weights=loads.node_coef * moved[node_bundle], minlength=n_links)
