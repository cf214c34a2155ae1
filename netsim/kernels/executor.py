"""GPUs that run their programs: streams in order, events between streams, and collectives that wait for all members.

State is per (GPU, stream), index k = gpu * S + stream: the next row, when the stream became free, and what it is doing. Rows start at the
latest of their stream's last end and their dependencies' ends; a COMM row then joins its group, and the last member to arrive starts the
call.

Run-ahead. While no other stream of a GPU is communicating or computing, nothing can disturb a kernel of its compute stream: it is played
forward in local time, without an event, until it blocks. Otherwise the kernel is *parked*: NCCL's thread blocks hold SMs from the moment a
call is issued until it ends, so a kernel that shares the GPU with calls on `o` SMs runs at (SMs - o) / SMs of its speed, and its end is an
event that moves when `o` changes.

Exposed time is measured where it happens: on the compute stream, as the gap before a row, charged to the dependency that ended last, or as
the duration of a call on that stream. The part before all members had arrived is bubble (this GPU waits for others to compute), the rest
is exposed communication. Timers divide the same time another way: a row's own time counts for its timer, a gap for that of the row which
ended it.

One launch queue. A dependency ~r holds a row until row r has started: a kernel has its SMs, a call has joined its group, if only to wait.
"""

from typing import NamedTuple

import numpy as np

from netsim.kernels import flow, heap
from netsim.kernels.hashing import mix_word
from netsim.kernels.jit import inlined, kernel
from netsim.kernels.structs import COMM, COMPUTE, HOST, Array

READY, BLOCKED, JOINED, PARKED, ENDED = 0, 1, 2, 3, 4
OTHER = 9  # CATEGORIES.index('other')
SIZE, STACK, NOW, N_STARTS, ENDS, EVENTS, BEGUN = 0, 1, 2, 3, 4, 5, 6  # slots of `scalar`


class Exec(NamedTuple):
    """State of the GPUs; n GPUs, S streams, I program rows, G groups."""

    scalar: Array  # int64[8]: heap size, stack size, time reached, calls handed out, GPUs that have ended, events, 1 if begun
    n_streams: int
    n_sms: int
    iterations: int
    stream_ptr: Array  # int64[P * S + 1]
    kind: Array  # int8[I]
    duration: Array  # int64[I]
    dim: Array  # int16[I]
    category: Array  # int8[I]
    timer: Array  # int8[I]
    dep_ptr: Array  # int64[I + 1]
    dep_idx: Array  # int64[D] rows; ~row: it must have started
    row_start_awaited: Array  # bool[I] True for rows whose start others wait for
    row_stream: Array  # int8[I]
    row_signal: Array  # int32[I] place of a row that other streams wait for; -1 for the rest
    row_call: Array  # int32[I] COMM: place of the call within its group's calls
    group_of: Array  # int32[dims, n]
    member_ptr: Array  # int64[G + 1]
    member_idx: Array  # int32[...]
    group_call_ptr: Array  # int64[G] first of a group's calls in call_flow
    call_flow: Array  # int32[...] call of the flow engine, -1 where the group never makes it
    call_sms: Array  # int16[...] SMs held on each member
    call_external: Array  # int8[...] 1: another engine moves it
    call_launch: Array  # int64[...] ps; an external call cannot end sooner after its start
    footprint_group: Array  # int32[F]
    program: Array  # int32[n]
    slow: Array  # float64[n] factor on kernel times
    jitter: Array  # float64[1] relative standard deviation of kernel times, seed in jitter_seed
    jitter_seed: Array  # uint64[1]
    next_row: Array  # int64[n * S]
    free_at: Array  # int64[n * S] ps
    state: Array  # int8[n * S]
    blocked_on: Array  # int64[n * S] row
    since: Array  # int64[n * S] ps: arrival at a group, or start of a kernel
    work: Array  # float64[n * S] ps of a parked kernel left to do at full speed
    touched: Array  # int64[n * S] ps: when `work` was last brought up to date
    version: Array  # int32[n * S]
    signal_ptr: Array  # int64[n]
    signal_begin: Array  # int64[...] ps
    signal_end: Array  # int64[...] ps
    occupied: Array  # int32[n] SMs held by communication
    active: Array  # int32[n] streams that are JOINED or PARKED
    round: Array  # int32[n] iteration
    live: Array  # int32[n] streams that have not ended
    group_arrived: Array  # int32[G]
    group_since: Array  # int64[G] ps: last arrival
    group_begin: Array  # int64[G] ps
    group_call: Array  # int64[G] running call
    group_tag: Array  # int32[G] row in which the first member makes it, plus I for each slot of `record_slot` up to its iteration's
    stack: Array  # int32[n * S] streams to look at
    heap_t: Array  # int64[Q] ends of parked kernels
    heap_key: Array  # int64[Q]
    heap_version: Array  # int32[Q]
    busy: Array  # int64[n, C] ps of kernels by category, all streams
    exposed: Array  # int64[n, C] ps the compute stream waited for communication of a category
    timers: Array  # int64[n, T] ps of the compute stream by timer
    bubble: Array  # int64[n] ps the compute stream waited for others to reach a call, or for the end
    end: Array  # int64[n] ps of the last row
    record_ptr: Array  # int64[n] first record of a GPU, -1 where its rows are not recorded
    record_start: Array  # int64[...] arrival or start, ps
    record_begin: Array  # int64[...] all members there
    record_end: Array  # int64[...]
    record_exposed: Array  # int64[...] ps that the compute stream waited for the row, once all members of a call were there
    record_turn: Array  # int32[...] iteration
    record_slot: Array  # int32[iterations] place of an iteration among those recorded, -1: not recorded; one may take another's place
    start_t: Array  # int64[X] external calls to start: time, group, call place
    start_group: Array  # int64[X]
    start_call: Array  # int64[X]
    start_tag: Array  # int64[X] group_tag


@kernel
def run(x, f, until, groups, times):
    """End external calls of `groups` at `times`, then process all events up to and including `until`.

    groups int64[n], times int64[n]: in order, none before the time reached. The first call begins the programs at time 0. Returns the time
    reached: `until`, or less when the log of transfers must be drained, or when an external call has started that may end before `until`.
    (One entry on purpose: what it calls is compiled into every entry.)
    """
    begun, given = x.program.shape[0] if x.scalar[BEGUN] == 1 else 0, 0
    x.scalar[BEGUN] = 1
    room = f.log_bundle.shape[0] - f.bundle_footprint.shape[0]
    while True:
        if begun < x.program.shape[0]:
            _begin_round(x, begun, 0)
            begun += 1
        elif given < groups.shape[0]:
            x.scalar[NOW] = max(x.scalar[NOW], times[given])
            _end_call(x, groups[given], times[given])
            given += 1
        else:
            t_flow = flow.next_time(f)
            t = min(t_flow, _next_end(x))
            for i in range(x.scalar[N_STARTS]):
                until = min(until, x.start_t[i] + x.call_launch[x.start_call[i]])
            if t > until:
                x.scalar[NOW] = max(x.scalar[NOW], min(until, flow.NEVER))
                return until
            if f.scalar[flow.LOG] >= room or x.scalar[N_STARTS] + x.group_arrived.shape[0] > x.start_t.shape[0]:
                return t - 1
            x.scalar[NOW] = t
            x.scalar[EVENTS] += 1
            if t_flow == t:
                flow.step(f, t)
                for i in range(f.scalar[flow.DONE]):
                    _end_call(x, x.footprint_group[f.done[i]], t)
            while _next_end(x) == t:
                k = x.heap_key[0]
                heap.pop(x.heap_t, x.heap_key, x.heap_version, x.scalar)
                _end_kernel(x, k, t)
        _drain(x, f)


@kernel
def _begin_round(x, gpu, t):
    x.live[gpu] = x.n_streams
    first = gpu * x.n_streams
    at = _record(x, gpu, x.stream_ptr[x.program[gpu] * x.n_streams])
    if at >= 0 and x.round[gpu] > 0:
        for i in range(x.stream_ptr[(x.program[gpu] + 1) * x.n_streams] - x.stream_ptr[x.program[gpu] * x.n_streams]):
            x.record_exposed[at + i] = 0
    for s in range(x.n_streams):
        k = first + s
        x.next_row[k] = x.stream_ptr[x.program[gpu] * x.n_streams + s]
        x.free_at[k] = t
        x.state[k] = READY
        _look(x, k)


@inlined
def _look(x, k):
    x.stack[x.scalar[STACK]] = k
    x.scalar[STACK] += 1


@inlined
def _drain(x, f):
    while x.scalar[STACK] > 0:
        x.scalar[STACK] -= 1
        _play(x, f, x.stack[x.scalar[STACK]])


@inlined
def _play(x, f, k):
    """Play a stream forward from its next row until it blocks, joins, parks or ends."""
    gpu, s = k // x.n_streams, k % x.n_streams
    row_end = x.stream_ptr[x.program[gpu] * x.n_streams + s + 1]
    while True:
        row = x.next_row[k]
        if row == row_end:
            _end_stream(x, gpu, k)
            return
        # when the row may start, and what held it last
        t = x.free_at[k]
        last = -1
        for j in range(x.dep_ptr[row], x.dep_ptr[row + 1]):
            dep = x.dep_idx[j]
            if dep < 0:
                other = gpu * x.n_streams + x.row_stream[~dep]
                if x.next_row[other] > ~dep:
                    continue
                if x.next_row[other] < ~dep or (x.state[other] != JOINED and x.state[other] != PARKED):
                    x.state[k] = BLOCKED
                    x.blocked_on[k] = dep
                    return
                if x.since[other] > t:
                    t = x.since[other]
                    last = dep
                continue
            other = gpu * x.n_streams + x.row_stream[dep]
            if x.next_row[other] <= dep:
                x.state[k] = BLOCKED
                x.blocked_on[k] = dep
                return
            signal = x.row_signal[dep]
            if signal >= 0 and x.signal_end[x.signal_ptr[gpu] + signal] > t:
                t = x.signal_end[x.signal_ptr[gpu] + signal]
                last = dep
        if s == 0 and last != -1:
            _charge(x, gpu, x.free_at[k], t, last)
        if x.kind[row] == COMM:
            _join(x, f, gpu, k, row, t)
            return
        if x.kind[row] == HOST:
            _end_row(x, gpu, k, row, t, t, t + x.duration[row])
            continue
        work = _kernel_time(x, gpu, row)
        if x.row_start_awaited[row] or not _alone(x, gpu, k):
            x.state[k] = PARKED
            x.active[gpu] += 1
            x.since[k] = t
            x.touched[k] = t
            x.work[k] = work
            _reschedule(x, gpu, k)
            if x.row_start_awaited[row]:
                _wake(x, gpu, ~row)
            return
        if x.row_signal[row] >= 0:  # streams that wait for this row issue first: a call takes its SMs before the next kernel starts
            _look(x, k)
            _end_row(x, gpu, k, row, t, t, t + np.int64(np.rint(work)))
            return
        _end_row(x, gpu, k, row, t, t, t + np.int64(np.rint(work)))


@inlined
def _alone(x, gpu, k):
    """True if no other stream of the GPU is busy or about to be."""
    ready = 0
    for other in range(gpu * x.n_streams, (gpu + 1) * x.n_streams):
        if x.state[other] == READY:
            ready += 1
    return x.active[gpu] == 0 and ready == (x.state[k] == READY)


@inlined
def _charge(x, gpu, t0, t1, dep):
    """Charge the wait [t0, t1) of the compute stream to the dependency that ended last."""
    row = dep if dep >= 0 else ~dep
    category = x.category[row]
    x.timers[gpu, x.timer[row]] += t1 - t0
    if x.kind[row] != COMM:
        _book_exposed(x, gpu, row, OTHER, t1 - t0)
        return
    if dep < 0:
        _book_exposed(x, gpu, row, category, t1 - t0)
        return
    ready = min(max(x.signal_begin[x.signal_ptr[gpu] + x.row_signal[dep]], t0), t1)
    x.bubble[gpu] += ready - t0
    _book_exposed(x, gpu, dep, category, t1 - ready)


@inlined
def _book_exposed(x, gpu, row, category, t):
    x.exposed[gpu, category] += t
    at = _record(x, gpu, row)
    if at >= 0:
        x.record_exposed[at] += t


@inlined
def _record(x, gpu, row):
    """Where a row of the GPU's iteration is recorded: iteration by iteration in program order; -1 where it is not."""
    slot = x.record_slot[x.round[gpu]]
    if x.record_ptr[gpu] < 0 or slot < 0:
        return np.int64(-1)
    first = x.stream_ptr[x.program[gpu] * x.n_streams]
    rows = x.stream_ptr[(x.program[gpu] + 1) * x.n_streams] - first
    return x.record_ptr[gpu] + slot * rows + row - first


@inlined
def _join(x, f, gpu, k, row, t):
    """A member reaches its group's next call; the last one starts it."""
    group = x.group_of[x.dim[row], gpu]
    place = x.group_call_ptr[group] + x.row_call[row]
    x.state[k] = JOINED
    x.since[k] = t
    x.active[gpu] += 1
    if x.call_sms[place] > 0:
        _occupy(x, gpu, x.call_sms[place], t)
    if x.row_start_awaited[row]:
        _wake(x, gpu, ~row)
    x.group_arrived[group] += 1
    if t > x.group_since[group]:
        x.group_since[group] = t
    assert x.group_arrived[group] == 1 or x.group_call[group] == place, "members of a group disagree on their next call"
    x.group_call[group] = place
    if gpu == x.member_idx[x.member_ptr[group]]:
        x.group_tag[group] = row + (x.record_slot[x.round[gpu]] + 1) * x.kind.shape[0]
    if x.group_arrived[group] == x.member_ptr[group + 1] - x.member_ptr[group]:
        x.group_begin[group] = x.group_since[group]
        if x.call_external[place] == 1:
            n = x.scalar[N_STARTS]
            x.start_t[n], x.start_group[n], x.start_call[n], x.start_tag[n] = x.group_since[group], group, place, x.group_tag[group]
            x.scalar[N_STARTS] = n + 1
        else:
            f.footprint_tag[f.call_footprint[x.call_flow[place]]] = x.group_tag[group]
            flow.start(f, x.call_flow[place], x.group_since[group])


@inlined
def _end_call(x, group, t):
    """A call has ended: all members go on."""
    place = x.group_call[group]
    begun = x.group_begin[group]
    x.group_arrived[group] = 0
    x.group_since[group] = 0
    for j in range(x.member_ptr[group], x.member_ptr[group + 1]):
        gpu = x.member_idx[j]
        for s in range(x.n_streams):
            k = gpu * x.n_streams + s
            if x.state[k] == JOINED and x.group_of[x.dim[x.next_row[k]], gpu] == group:
                row = x.next_row[k]
                x.active[gpu] -= 1
                if x.call_sms[place] > 0:
                    _occupy(x, gpu, -x.call_sms[place], t)
                if s == 0:
                    category = x.category[row]
                    x.bubble[gpu] += begun - x.since[k]
                    _book_exposed(x, gpu, row, category, t - begun)
                _end_row(x, gpu, k, row, x.since[k], begun, t)
                _look(x, k)
                break


@inlined
def _end_kernel(x, k, t):
    gpu = k // x.n_streams
    x.active[gpu] -= 1
    x.version[k] += 1
    _end_row(x, gpu, k, x.next_row[k], x.since[k], x.since[k], t)
    _look(x, k)


@inlined
def _end_row(x, gpu, k, row, start, begun, end):
    """Book a row that ran from `start` to `end`, and look again at streams that waited for it."""
    x.next_row[k] = row + 1
    x.free_at[k] = end
    x.state[k] = READY
    x.blocked_on[k] = -1
    if k == gpu * x.n_streams:
        x.timers[gpu, x.timer[row]] += end - start
    if x.kind[row] == COMPUTE:
        x.busy[gpu, x.category[row]] += end - start
    at = _record(x, gpu, row)
    if at >= 0:
        x.record_start[at], x.record_begin[at], x.record_end[at], x.record_turn[at] = start, begun, end, x.round[gpu]
    signal = x.row_signal[row]
    if signal >= 0:
        x.signal_begin[x.signal_ptr[gpu] + signal] = begun
        x.signal_end[x.signal_ptr[gpu] + signal] = end
        _wake(x, gpu, row)


@inlined
def _wake(x, gpu, dep):
    """Look again at streams that are blocked on a dependency."""
    for other in range(gpu * x.n_streams, (gpu + 1) * x.n_streams):
        if x.state[other] == BLOCKED and x.blocked_on[other] == dep:
            x.state[other] = READY
            _look(x, other)


@inlined
def _end_stream(x, gpu, k):
    x.state[k] = ENDED
    x.live[gpu] -= 1
    if x.live[gpu] > 0:
        return
    t = 0
    for other in range(gpu * x.n_streams, (gpu + 1) * x.n_streams):
        t = max(t, x.free_at[other])
    x.round[gpu] += 1
    x.bubble[gpu] += t - x.free_at[gpu * x.n_streams]
    x.end[gpu] = t
    if x.round[gpu] < x.iterations:
        _begin_round(x, gpu, t)
    else:
        x.scalar[ENDS] += 1


@inlined
def _occupy(x, gpu, sms, t):
    """Communication takes (or, negative, frees) SMs at time t: kernels that share the GPU change their speed from then on.

    One that begins later, as when the host has not launched it yet, has done nothing by then; one that is over by then stays as it is.
    """
    before = _speed(x, gpu)
    x.occupied[gpu] += sms
    for k in range(gpu * x.n_streams, (gpu + 1) * x.n_streams):
        if x.state[k] != PARKED or x.touched[k] + x.work[k] / before <= t:
            continue
        if t > x.touched[k]:
            x.work[k] -= (t - x.touched[k]) * before
            x.touched[k] = t
        _reschedule(x, gpu, k)


@inlined
def _speed(x, gpu):
    return max(x.n_sms - x.occupied[gpu], 1) / x.n_sms


@inlined
def _reschedule(x, gpu, k):
    x.version[k] += 1
    if x.scalar[SIZE] == x.heap_t.shape[0]:
        n = 0
        for i in range(x.scalar[SIZE]):
            if x.version[x.heap_key[i]] == x.heap_version[i]:
                x.heap_t[n], x.heap_key[n], x.heap_version[n] = x.heap_t[i], x.heap_key[i], x.heap_version[i]
                n += 1
        heap.heapify(x.heap_t, x.heap_key, x.heap_version, n)
        x.scalar[SIZE] = n
    t = x.touched[k] + np.int64(np.rint(x.work[k] / _speed(x, gpu)))
    heap.push(x.heap_t, x.heap_key, x.heap_version, x.scalar, t, k, x.version[k])


@inlined
def _next_end(x):
    while x.scalar[SIZE] > 0 and x.version[x.heap_key[0]] != x.heap_version[0]:
        heap.pop(x.heap_t, x.heap_key, x.heap_version, x.scalar)
    return x.heap_t[0] if x.scalar[SIZE] > 0 else flow.NEVER


@inlined
def _kernel_time(x, gpu, row):
    """Duration on this GPU in this iteration: the program's, times the GPU's factor, times a seeded log-normal deviation."""
    work = x.duration[row] * x.slow[gpu]
    sigma = x.jitter[0]
    if sigma > 0.0:
        z = _normal(x.jitter_seed[0], gpu, row, x.round[gpu])
        work *= np.exp(sigma * z - 0.5 * sigma * sigma)
    return work


@inlined
def _normal(seed, gpu, row, turn):
    """A standard normal number that is a function of its arguments (splitmix64, Box-Muller)."""
    h = mix_word(mix_word(mix_word(seed ^ np.uint64(gpu + 1)) ^ np.uint64(row + 1)) ^ np.uint64(turn + 1))
    u = (np.float64(h >> np.uint64(11)) + 0.5) / 9007199254740992.0
    v = np.float64(mix_word(h) >> np.uint64(11)) / 9007199254740992.0
    return np.sqrt(-2.0 * np.log(u)) * np.cos(2.0 * np.pi * v)
