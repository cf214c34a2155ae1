"""Bytes per row of a series and interval, and per kind of call, from a log of transfers."""

from numba import njit


@njit(cache=True)
def add_rows(log_bundle, log_t0, log_t1, log_pace, order, first, last, bundle_ptr, node_row, node_coef, interval, bin0, out):
    """Add rows `order[first:last]` of the log to out float64[rows, bins], whose first interval is number bin0.

    Row i: bundle log_bundle[i] moved at log_pace[i] bytes/s from log_t0[i] to log_t1[i] (ps); row node_row[j] of `out` shows
    node_coef[j] times that for every node j of the bundle. Parts outside the intervals of `out` are left to other calls.
    """
    n_bins = out.shape[1]
    for at in range(first, last):
        i = order[at]
        b = log_bundle[i]
        k0 = max(log_t0[i] // interval, bin0)
        k1 = min((log_t1[i] - 1) // interval, bin0 + n_bins - 1)
        for k in range(k0, k1 + 1):
            lo = max(log_t0[i], k * interval)
            hi = min(log_t1[i], (k + 1) * interval)
            moved = log_pace[i] * (hi - lo) * 1e-12
            for j in range(bundle_ptr[b], bundle_ptr[b + 1]):
                out[node_row[j], k - bin0] += node_coef[j] * moved


@njit(cache=True)
def add_loads(log_bundle, log_t0, log_t1, log_pace, rows, key, bundle_ptr, node_set, node_coef, n_keys, cell, first, last, nbytes):
    """Add the bytes of log rows `rows` to cells, and note when the first and the last of them moved.

    A row with key[at] and a node with node_set[j] belong to cell node_set * n_keys + key; or, where `cell` is not empty, the k-th pair of
    row and node, in order, to cell[k]. Other arrays as in `add_rows`.
    """
    k, dense = 0, len(cell) == 0
    for at in range(len(rows)):
        i = rows[at]
        b = log_bundle[i]
        moved = log_pace[i] * (log_t1[i] - log_t0[i]) * 1e-12
        for j in range(bundle_ptr[b], bundle_ptr[b + 1]):
            c = node_set[j] * n_keys + key[at] if dense else cell[k]
            k += 1
            nbytes[c] += node_coef[j] * moved
            if last[c] == 0 or log_t0[i] < first[c]:
                first[c] = log_t0[i]
            last[c] = max(last[c], log_t1[i])
