"""When every message of a lone call moves on an idle machine: the recursion that the packet engine plays, without packets.

Message j of an edge starts at

    s(j) = max( h(d, j - lag) for every dependency (d, lag),  c(j - window) + back,  s(j - 1) + gap )

and is at hand at its receiver at h(j) = s(j) + copy + hop. `copy` is the time in which the message moves, `gap` the least time between two
starts (what other edges of the same thread block and port leave over), `hop` the latency that no other message has to wait for: proxy,
wire, flag. Message m is consumed at c(m): when all messages of the receiver that depend on it have been moved on, which is their s + copy,
or when it is at hand where none does; the sender hears of it `back` later. All times in ps, from the moment at which the call may begin.
"""

import numpy as np
from numba import njit

from netsim.kernels import hashing
from netsim.kernels.structs import Array

ROUNDS = 64
DEP, RDEP = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)


@njit(cache=True)
def play(
    msgs: Array, window: Array, gap: Array, copy: Array, last: Array, hop: Array, back: Array,
    dep_ptr: Array, dep_idx: Array, dep_lag: Array, rdep_ptr: Array, rdep_idx: Array, rdep_lag: Array,
) -> Array:  # fmt: skip
    """Return when the last message of each edge is at hand, float64[E]; `copy` is that of a full message, `last` of the last one.

    Every edge goes as far as what it waits for is known, in turn, until all have sent everything.
    """
    n = msgs.size
    first, sent = np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    for e in range(n):
        first[e + 1] = first[e] + msgs[e]
    start = np.zeros(first[n])
    left, moved = first[n], True
    while left > 0:
        assert moved, left
        moved = False
        for e in range(n):
            while sent[e] < msgs[e]:
                j = sent[e]
                t = start[first[e] + j - 1] + gap[e] if j > 0 else 0.0
                known, needed, m = True, False, j - window[e]
                if m >= 0:
                    for d in range(rdep_ptr[e], rdep_ptr[e + 1]):
                        f, i = rdep_idx[d], m + rdep_lag[d]
                        if i < msgs[f]:
                            needed = True
                            known = known and sent[f] > i
                            if known:
                                t = max(t, start[first[f] + i] + (copy[f] if i < msgs[f] - 1 else last[f]) + back[e])
                    if not needed:
                        t = max(t, start[first[e] + m] + copy[e] + hop[e] + back[e])
                for d in range(dep_ptr[e], dep_ptr[e + 1]):
                    f, i = dep_idx[d], j - dep_lag[d]
                    if i >= 0:
                        known = known and sent[f] > i
                        if known:
                            t = max(t, start[first[f] + i] + (copy[f] if i < msgs[f] - 1 else last[f]) + hop[f])
                if not known:
                    break
                start[first[e] + j] = t
                sent[e] = j + 1
                left -= 1
                moved = True
    out = np.zeros(n)
    for e in range(n):
        out[e] = start[first[e + 1] - 1] + last[e] + hop[e]
    return out


def alike(columns: tuple[Array, ...], dep_ptr: Array, dep_idx: Array, dep_lag: Array) -> Array:
    """Return a class for every edge, int64[E]: edges of a class have the same columns, and wait for and feed edges of the same classes
    with the same lags, so they have the same times. Where this needs more than `ROUNDS` rounds every edge is its own class.
    """
    n = len(columns[0])
    row = np.repeat(np.arange(n), np.diff(dep_ptr))
    colour = np.zeros(n, np.uint64)
    for column in columns:
        colour = hashing.mix(colour + hashing.mix(np.asarray(column, np.int64).view(np.uint64) + DEP))
    groups, lag = 0, hashing.mix(dep_lag.astype(np.uint64))
    for _ in range(ROUNDS):
        _, group = np.unique(colour, return_inverse=True)
        if group.max(initial=-1) + 1 == groups:
            return group.astype(np.int64)
        groups = int(group.max(initial=-1)) + 1
        own = hashing.mix(colour)
        np.add.at(own, row, hashing.mix(colour[dep_idx] + lag + DEP))
        np.add.at(own, dep_idx, hashing.mix(colour[row] + lag + RDEP))
        colour = own
    return np.arange(n)


def folded(group: Array, dep_ptr: Array, dep_idx: Array, dep_lag: Array) -> tuple[Array, tuple[Array, ...]]:
    """Return one edge of each class, and the dependencies of the classes both ways (CSR: ptr, idx, lag, then those that depend)."""
    _, which = np.unique(group, return_index=True)
    size = np.diff(dep_ptr)[which]
    at = np.repeat(dep_ptr[which] - np.cumsum(size) + size, size) + np.arange(int(size.sum()))
    deps = np.stack([np.repeat(np.arange(len(which)), size), group[dep_idx[at]], dep_lag[at].astype(np.int64)])
    deps = np.unique(deps, axis=1) if deps.size else deps.astype(np.int64)

    def csr(row: Array, idx: Array, lag: Array) -> tuple[Array, Array, Array]:
        order = np.argsort(row, kind="stable")
        return np.r_[0, np.cumsum(np.bincount(row, minlength=len(which)))], idx[order], lag[order]

    return which, (*csr(deps[0], deps[1], deps[2]), *csr(deps[1], deps[0], deps[2]))
