"""Rings of (time, meta) records in one arena, kept in order of (time, meta).

Positions count up for ever; position i of a ring lies at `arena[base + 2 * (i & mask)]`. A full ring moves to twice the room at
the top of the arena; what it leaves behind is lost until the arena is compacted, at most as much as is in use.
"""

import numpy as np
from numba import njit

from netsim.kernels.packet import layout as K
from netsim.kernels.structs import Array


@njit(cache=True)
def grow(arena: Array, ring: Array, scal: Array, r: int) -> None:
    """Move ring `r` to twice its room (16 records at first)."""
    o = r << K.RING
    base, mask = ring[o + K.BASE], ring[o + K.MASK]
    room = max(16, 2 * (mask + 1))
    top = scal[K.ARENA_TOP]
    assert top + 2 * room <= scal[K.ARENA_SIZE]
    for i in range(ring[o + K.HEAD], ring[o + K.TAIL]):
        old, new = base + ((i & mask) << 1), top + ((i & (room - 1)) << 1)
        arena[new], arena[new + 1] = arena[old], arena[old + 1]
    ring[o + K.BASE], ring[o + K.MASK] = top, room - 1
    scal[K.ARENA_TOP] = top + 2 * room


@njit(cache=True, forceinline=True)
def insert(arena: Array, ring: Array, scal: Array, r: int, first: int, t: int, meta: int) -> None:
    """File a record behind all with smaller (time, meta), but not before the position in column `first`."""
    o = r << K.RING
    tail = ring[o + K.TAIL]
    if tail - ring[o + K.HEAD] > ring[o + K.MASK]:
        grow(arena, ring, scal, r)
    base, mask = ring[o + K.BASE], ring[o + K.MASK]
    low, j = ring[o + first], tail
    k = base + ((j & mask) << 1)
    while j > low:
        p = base + (((j - 1) & mask) << 1)
        if arena[p] < t or (arena[p] == t and arena[p + 1] <= meta):
            break
        arena[k], arena[k + 1] = arena[p], arena[p + 1]
        j -= 1
        k = p
    arena[k], arena[k + 1] = t, meta
    ring[o + K.TAIL] = tail + 1


@njit(cache=True, forceinline=True)
def head_time(arena: Array, ring: Array, r: int) -> int:
    """Return the time of the first record, NEVER where there is none."""
    o = r << K.RING
    h = ring[o + K.HEAD]
    if h == ring[o + K.TAIL]:
        return K.NEVER
    return arena[ring[o + K.BASE] + ((h & ring[o + K.MASK]) << 1)]


@njit(cache=True, forceinline=True)
def wake(next_time: Array, block: Array, v: int, t: int) -> None:
    """Let vertex `v` have something to do at `t`."""
    if t < next_time[v]:
        next_time[v] = t
        b = v >> 5
        if t < block[b]:
            block[b] = t


@njit(cache=True, forceinline=True)
def random(seed: int, place: int, counter: int) -> int:
    """Return 53 random bits that are a function of seed, place and counter (splitmix64)."""
    h = np.uint64(seed) + np.uint64(place) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(counter) * np.uint64(0xD1B54A32D192ED03)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((h ^ (h >> np.uint64(31))) >> np.uint64(11))  # type: ignore[return-value]
