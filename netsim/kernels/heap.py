"""A binary heap of events in three parallel arrays: time, key (breaks ties), version (tells a stale entry from a live one).

The number of entries is kept by the caller in `size[0]`. Order is (time, key), so the outcome does not depend on the order of pushes.
"""

from netsim.kernels.jit import kernel


@kernel
def push(times, keys, versions, size, t, key, version):
    """Add an event; the arrays must have room for it."""
    i = size[0]
    size[0] = i + 1
    while i > 0:
        up = (i - 1) >> 1
        if times[up] < t or (times[up] == t and keys[up] <= key):
            break
        times[i], keys[i], versions[i] = times[up], keys[up], versions[up]
        i = up
    times[i], keys[i], versions[i] = t, key, version


@kernel
def pop(times, keys, versions, size):
    """Remove the first event; read it at index 0 before."""
    n = size[0] - 1
    size[0] = n
    if n == 0:
        return
    sift(times, keys, versions, n, 0, times[n], keys[n], versions[n])


@kernel
def sift(times, keys, versions, n, i, t, key, version):
    """Put an event at index i of a heap of n, or deeper where a child comes first.

    What is put there usually belongs near the bottom: the gap goes all the way down, then the event up from there. Which child comes first
    is as good as random, so it is computed, not branched on.
    """
    top = i
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n:
            left, right = times[child], times[child + 1]
            child += (right < left) | ((right == left) & (keys[child + 1] < keys[child]))
        times[i], keys[i], versions[i] = times[child], keys[child], versions[child]
        i = child
    while i > top:
        up = (i - 1) >> 1
        if times[up] < t or (times[up] == t and keys[up] <= key):
            break
        times[i], keys[i], versions[i] = times[up], keys[up], versions[up]
        i = up
    times[i], keys[i], versions[i] = t, key, version


@kernel
def heapify(times, keys, versions, n):
    """Make a heap of the first n entries."""
    for i in range(n // 2 - 1, -1, -1):
        sift(times, keys, versions, n, i, times[i], keys[i], versions[i])


@kernel
def sort(values, n):
    """Sort the first n values in place (heapsort: kernels may not call NumPy's, see kernels.jit)."""
    for start in range(n // 2 - 1, -1, -1):
        _sink(values, start, n)
    for end in range(n - 1, 0, -1):
        values[0], values[end] = values[end], values[0]
        _sink(values, 0, end)


@kernel
def _sink(values, i, n):
    value = values[i]
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and values[child + 1] > values[child]:
            child += 1
        if values[child] <= value:
            break
        values[i] = values[child]
        i = child
    values[i] = value
