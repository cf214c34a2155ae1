"""Which calls loaded which links: bytes by set of links and kind of call, from a log of transfers.

A log names calls by tags; `keys` says which tags are told as one (a call of the same name, stage and microbatch in all layers). Links that
the same calls loaded with the same bytes form a set and are told once.
"""

from typing import NamedTuple

import numpy as np

from netsim.kernels import bins
from netsim.kernels.structs import Array
from netsim.telemetry.series import Loads, Log

DENSE = 1 << 22
"""Pairs of set and key up to which sums are kept in an array; beyond, transfers are sorted."""


class Table(NamedTuple):
    """What loaded links: `of_link` is the set of every link, -1 where nothing did; the rest has an entry per set and key that met."""

    of_link: Array  # int32[links]
    set: Array  # int32[K]
    key: Array  # int32[K]
    first: Array  # int64[K] ps
    last: Array  # int64[K] ps
    nbytes: Array  # float64[K] on one link of the set


def table(log: Log, loads: Loads, of_link: Array, sets: int, key_of_tag: Array, n_keys: int) -> Table:
    """Sum up a log; `of_link` int32[links] says which links are alike, one link stands for all of its set."""
    shown = np.zeros(len(of_link), bool)
    shown[np.unique(of_link, return_index=True)[1]] = True
    shown &= of_link >= 0
    keep = shown[loads.node_link]
    ptr = np.r_[0, np.cumsum(keep)][loads.bundle_ptr].astype(np.int64)
    node_set, coef = of_link[loads.node_link[keep]].astype(np.int64), loads.node_coef[keep]
    rows = np.flatnonzero((np.diff(ptr) > 0)[log.bundle])
    key = key_of_tag[log.tag[rows]]
    rows, key = rows[key >= 0], key[key >= 0]
    dense = sets * n_keys <= DENSE
    cell, numbers = (np.zeros(0, np.int64), np.arange(sets * n_keys)) if dense else _cells(log.bundle[rows], key, ptr, node_set, n_keys)
    first, last, nbytes = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64), np.zeros(len(numbers))
    bins.add_loads(log.bundle, log.t0, log.t1, log.pace, rows, key, ptr, node_set, coef, n_keys, cell, first, last, nbytes)
    there = np.flatnonzero(last)
    met = numbers[there]
    return Table(of_link, (met // n_keys).astype(np.int32), (met % n_keys).astype(np.int32), first[there], last[there], nbytes[there])


def _cells(bundle: Array, key: Array, ptr: Array, node_set: Array, n_keys: int) -> tuple[Array, Array]:
    """(cell of every row and node, set * n_keys + key of every cell): only cells that something falls into."""
    count = np.diff(ptr)[bundle]
    ends = np.cumsum(count)
    node = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - count, count) + np.repeat(ptr[bundle], count)
    number = node_set[node] * n_keys + np.repeat(key, count)
    numbers, cell = np.unique(number, return_inverse=True)
    return cell.ravel(), numbers
