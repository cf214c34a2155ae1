"""Fluid transfers: bundles that share links max-min fairly, recomputed only where something changed.

A *footprint* is what a communicator loads when it runs an algorithm: its bundles, each a weighted set of links (kernels.maxmin). A *call*
is a footprint with volumes: bundle b has `volume` bytes to move on its heaviest connection. A footprint carries one call at a time, as a
NCCL communicator does. The life of a call:

    start at t   ->  launch  ->  its bundles move, each at its fair pace  ->  the last one ends  ->  fill  ->  complete

When a bundle joins or leaves, only the connected component of bundles and links around it is solved again; a bundle alone on its links
takes what its links allow at once. A bundle whose pace did not change keeps its event, so a component's arithmetic depends on nothing
outside it.
"""

from typing import NamedTuple

import numpy as np

from netsim.kernels import heap, maxmin
from netsim.kernels.jit import inlined, kernel
from netsim.kernels.structs import Array

NEVER = np.int64(2**62)
LAUNCH, FINISH, COMPLETE, CHANGE = 0, 1, 2, 3
KIND = 2**40  # event key = kind * KIND + index
SIZE, DONE, LOG, EPOCH, SHARED, DIRTY = 0, 1, 2, 3, 4, 5  # slots of `scalar`


class Flow(NamedTuple):
    """State of the fluid network; F footprints, B bundles, N (bundle, link) nodes, H calls, L links."""

    scalar: Array  # int64[8]: heap size, completions to deliver, log rows, epoch of marks, 1 if links are shared (0: ideal network)
    capacity: Array  # float64[L] bytes/s
    head: Array  # int64[L] first node of the list of live bundles on a link
    footprint_ptr: Array  # int64[F + 1] bundles
    footprint_left: Array  # int32[F] bundles still moving
    footprint_call: Array  # int32[F] running call, -1 when idle
    footprint_tag: Array  # int32[F] what the caller calls the running call in the log
    bundle_ptr: Array  # int64[B + 1] nodes
    bundle_footprint: Array  # int32[B]
    cap: Array  # float64[B] cap of the running call
    left: Array  # float64[B] bytes to move at time `since`
    pace: Array  # float64[B] bytes/s
    since: Array  # int64[B] ps
    version: Array  # int32[B]
    moved: Array  # float64[B] bytes moved by ended calls
    node_link: Array  # int32[N]
    node_bundle: Array  # int32[N]
    node_coef: Array  # float64[N]
    node_next: Array  # int64[N]
    node_prev: Array  # int64[N]
    call_footprint: Array  # int32[H]
    call_ptr: Array  # int64[H] first row of volume and call_cap
    call_launch: Array  # int64[H] ps
    call_fill: Array  # int64[H] ps
    volume: Array  # float64[...] bytes
    volume_cap: Array  # float64[...] bytes/s
    heap_t: Array  # int64[Q]
    heap_key: Array  # int64[Q]
    heap_version: Array  # int32[Q]
    done: Array  # int32[F] footprints completed in the last step
    dirty: Array  # int32[L] links around which to solve again
    change_t: Array  # int64[C] timed changes of capacity, in time order
    change_link: Array  # int32[C]
    change_rate: Array  # float64[C]
    log_bundle: Array  # int32[G] what moved when: one row per bundle and pace
    log_t0: Array  # int64[G]
    log_t1: Array  # int64[G]
    log_pace: Array  # float64[G]
    log_tag: Array  # int32[G] footprint_tag of the call that moved
    mark_bundle: Array  # int32[B]
    mark_link: Array  # int32[L]
    local_link: Array  # int32[L]
    part_bundle: Array  # int32[B] workspaces of the solver
    part_link: Array  # int32[L]
    part_ptr: Array  # int64[B + 1]
    part_idx: Array  # int32[N]
    part_coef: Array  # float64[N]
    part_capacity: Array  # float64[L]
    part_cap: Array  # float64[B]
    part_pace: Array  # float64[B]
    part_load: Array  # float64[L]
    part_used: Array  # float64[L]


@inlined
def start(f, call, t):
    """Start a call whose members have all arrived at time t (not before the time already reached)."""
    footprint = f.call_footprint[call]
    assert f.footprint_call[footprint] == -1
    f.footprint_call[footprint] = call
    _push(f, t + f.call_launch[call], LAUNCH * KIND + footprint, 0)


@inlined
def next_time(f):
    """Time of the next event; NEVER when there is none."""
    while f.scalar[SIZE] > 0 and _stale(f, 0):
        heap.pop(f.heap_t, f.heap_key, f.heap_version, f.scalar)
    return f.heap_t[0] if f.scalar[SIZE] > 0 else NEVER


@inlined
def step(f, t):
    """Process every event at time t; footprints that completed are in `done[: scalar[DONE]]`."""
    f.scalar[DONE] = 0
    while next_time(f) == t:
        key = f.heap_key[0]
        heap.pop(f.heap_t, f.heap_key, f.heap_version, f.scalar)
        kind, index = key // KIND, key % KIND
        if kind == LAUNCH:
            _launch(f, index, t)
        elif kind == FINISH:
            _finish(f, index, t)
        elif kind == COMPLETE:
            f.footprint_call[index] = -1
            f.done[f.scalar[DONE]] = index
            f.scalar[DONE] += 1
        else:
            f.capacity[f.change_link[index]] = f.change_rate[index]
            _touch(f, f.change_link[index])
    _settle(f, t)


@kernel
def schedule_changes(f):
    """Enter the timed changes of capacity as events."""
    for c in range(f.change_t.shape[0]):
        _push(f, f.change_t[c], CHANGE * KIND + c, 0)


@inlined
def _stale(f, i):
    key = f.heap_key[i]
    return key // KIND == FINISH and f.version[key % KIND] != f.heap_version[i]


@inlined
def _push(f, t, key, version):
    if f.scalar[SIZE] == f.heap_t.shape[0]:  # drop what is stale; the live entries always fit in half of it
        n = 0
        for i in range(f.scalar[SIZE]):
            if not _stale(f, i):
                f.heap_t[n], f.heap_key[n], f.heap_version[n] = f.heap_t[i], f.heap_key[i], f.heap_version[i]
                n += 1
        heap.heapify(f.heap_t, f.heap_key, f.heap_version, n)
        f.scalar[SIZE] = n
    heap.push(f.heap_t, f.heap_key, f.heap_version, f.scalar, t, key, version)


@inlined
def _touch(f, link):
    if f.mark_link[link] != -1:
        f.mark_link[link] = -1
        f.dirty[f.scalar[DIRTY]] = link
        f.scalar[DIRTY] += 1


@inlined
def _launch(f, footprint, t):
    """The first byte of a call may move: its bundles join their links."""
    call = f.footprint_call[footprint]
    first = f.footprint_ptr[footprint]
    f.footprint_left[footprint] = f.footprint_ptr[footprint + 1] - first
    for b in range(first, f.footprint_ptr[footprint + 1]):
        row = f.call_ptr[call] + b - first
        f.left[b] = f.volume[row]
        f.cap[b] = f.volume_cap[row]
        f.since[b] = t
        f.pace[b] = 0.0
        f.version[b] += 1
        alone = True
        solo = f.cap[b]
        for k in range(f.bundle_ptr[b], f.bundle_ptr[b + 1]):
            link = f.node_link[k]
            solo = min(solo, f.capacity[link] / f.node_coef[k])
            if f.scalar[SHARED] == 1:
                top = f.head[link]
                alone = alone and top == -1
                f.node_next[k] = top
                f.node_prev[k] = -1
                if top != -1:
                    f.node_prev[top] = k
                f.head[link] = k
        if f.left[b] <= 0.0:
            _push(f, t, FINISH * KIND + b, f.version[b])
        elif alone:
            _set_pace(f, b, solo, t)
        else:
            for k in range(f.bundle_ptr[b], f.bundle_ptr[b + 1]):
                _touch(f, f.node_link[k])


@inlined
def _set_pace(f, b, pace, t):
    """Book what bundle b moved since its last change, and go on at `pace`."""
    _book(f, b, t)
    f.pace[b] = pace
    f.version[b] += 1
    if pace > 0.0:
        _push(f, t + np.int64(np.ceil(f.left[b] / pace * 1e12)), FINISH * KIND + b, f.version[b])


@inlined
def _book(f, b, t):
    if t > f.since[b]:
        if f.pace[b] > 0.0:
            row = f.scalar[LOG]
            f.log_bundle[row], f.log_t0[row], f.log_t1[row], f.log_pace[row] = b, f.since[b], t, f.pace[b]
            f.log_tag[row] = f.footprint_tag[f.bundle_footprint[b]]
            f.scalar[LOG] = row + 1
            f.left[b] = max(0.0, f.left[b] - f.pace[b] * (t - f.since[b]) * 1e-12)
        f.since[b] = t


@inlined
def _finish(f, b, t):
    """Bundle b has moved its volume: it leaves its links; with the last one of its call the fill begins."""
    footprint = f.bundle_footprint[b]
    call = f.footprint_call[footprint]
    _book(f, b, t)
    f.moved[b] += f.volume[f.call_ptr[call] + b - f.footprint_ptr[footprint]]
    f.pace[b] = 0.0
    f.version[b] += 1
    if f.scalar[SHARED] == 1:
        for k in range(f.bundle_ptr[b], f.bundle_ptr[b + 1]):
            link, before, after = f.node_link[k], f.node_prev[k], f.node_next[k]
            if before == -1:
                f.head[link] = after
            else:
                f.node_next[before] = after
            if after != -1:
                f.node_prev[after] = before
            if f.head[link] != -1:
                _touch(f, link)
    f.footprint_left[footprint] -= 1
    if f.footprint_left[footprint] == 0:
        _push(f, t + f.call_fill[call], COMPLETE * KIND + footprint, 0)


@inlined
def _settle(f, t):
    """Solve again every component around a dirty link."""
    n_dirty = f.scalar[DIRTY]
    f.scalar[EPOCH] += 1
    epoch = f.scalar[EPOCH]
    for i in range(n_dirty):
        link = f.dirty[i]
        if f.mark_link[link] != epoch and f.head[link] != -1:
            _solve_component(f, link, epoch, t)
        elif f.head[link] == -1:
            f.mark_link[link] = epoch
    f.scalar[DIRTY] = 0


@kernel
def _solve_component(f, seed, epoch, t):
    n_links, n_bundles = 1, 0
    f.part_link[0] = seed
    f.mark_link[seed] = epoch
    f.local_link[seed] = 0
    at = 0
    while at < n_links:  # breadth first over links; bundles are taken when first seen
        k = f.head[f.part_link[at]]
        at += 1
        while k != -1:
            b = f.node_bundle[k]
            if f.mark_bundle[b] != epoch:
                f.mark_bundle[b] = epoch
                f.part_bundle[n_bundles] = b
                n_bundles += 1
                for j in range(f.bundle_ptr[b], f.bundle_ptr[b + 1]):
                    link = f.node_link[j]
                    if f.mark_link[link] != epoch:
                        f.mark_link[link] = epoch
                        f.local_link[link] = n_links
                        f.part_link[n_links] = link
                        n_links += 1
            k = f.node_next[k]
    # bundles by number, so that rounding does not depend on who joined first
    heap.sort(f.part_bundle, n_bundles)
    n = 0
    for i in range(n_bundles):
        b = f.part_bundle[i]
        f.part_ptr[i] = n
        f.part_cap[i] = f.cap[b]
        for j in range(f.bundle_ptr[b], f.bundle_ptr[b + 1]):
            f.part_idx[n] = f.local_link[f.node_link[j]]
            f.part_coef[n] = f.node_coef[j]
            n += 1
    f.part_ptr[n_bundles] = n
    for i in range(n_links):
        f.part_capacity[i] = f.capacity[f.part_link[i]]
    maxmin.solve(
        f.part_ptr[: n_bundles + 1], f.part_idx, f.part_coef, f.part_capacity[:n_links], f.part_cap, f.part_pace, f.part_load, f.part_used
    )
    for i in range(n_bundles):
        b = f.part_bundle[i]
        if f.part_pace[i] != f.pace[b] and f.left[b] > 0.0:
            _set_pace(f, b, f.part_pace[i], t)
