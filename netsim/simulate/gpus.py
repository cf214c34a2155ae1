"""A fresh state of the executor for a workload on a network."""

import numpy as np

from netsim.kernels.executor import Exec
from netsim.kernels.structs import CATEGORIES, TIMERS, Array, Groups, Programs
from netsim.simulate.calls import CallTable


def state(
    programs: Programs,
    groups: Groups,
    table: CallTable,
    program: Array,
    slow: Array,
    recorded: Array,
    n_sms: int,
    iterations: int = 1,
    jitter: float = 0.0,
    seed: int = 0,
    external: Array | None = None,
    kept: Array | None = None,
) -> Exec:
    """Return an `Exec` at time 0.

    program int32[n] and slow float64[n] of each GPU; recorded bool[n]: GPUs whose rows are kept, of each iteration in a place of its own
    or that of `kept` (int32[iterations], -1: nowhere); external int8[X]: places that another engine moves.
    """
    n, streams = len(program), programs.n_streams
    rows_of = np.diff(programs.stream_ptr[::streams])
    row_stream = _stream_of_rows(programs)
    signal, signals_of = _signals(programs, row_stream)
    n_signals = signals_of[program]
    slot = np.arange(iterations, dtype=np.int32) if kept is None else kept
    assert len(programs.kind) * (slot.max() + 2) < 2**31, (len(programs.kind), slot.max())
    sizes = np.where(recorded, rows_of[program] * (slot.max() + 1), 0)
    record_ptr = np.where(recorded, np.cumsum(sizes) - sizes, -1)
    n_groups, n_records = len(groups.group_dim), int(sizes.sum())
    queue = 4 * n * streams + 64

    def zeros(size: int, dtype: type = np.int64) -> Array:
        return np.zeros(size, dtype)

    per_gpu = {name: zeros(n, np.int32) for name in ("occupied", "active", "round", "live")}
    per_gpu |= {name: np.zeros((n, len(CATEGORIES)), np.int64) for name in ("busy", "exposed")}
    per_stream = {name: zeros(n * streams) for name in ("next_row", "free_at", "since", "touched")}
    per_group = {name: zeros(n_groups) for name in ("group_since", "group_begin", "group_call")}
    per_signal = {name: zeros(int(n_signals.sum())) for name in ("signal_begin", "signal_end")}
    per_record = {name: zeros(n_records) for name in ("record_start", "record_begin", "record_end", "record_exposed")}
    per_record["record_turn"] = zeros(n_records, np.int32)
    per_start = {name: zeros(4 * n_groups + 64) for name in ("start_t", "start_group", "start_call", "start_tag")}
    columns = ("stream_ptr", "kind", "duration", "dim", "category", "timer", "dep_ptr", "dep_idx")
    of_programs = {name: getattr(programs, name) for name in columns}
    # one layout, folded or not: kernels are compiled once
    of_groups = {name: np.ascontiguousarray(getattr(groups, name)) for name in ("group_of", "member_ptr", "member_idx")}
    places = ("row_call", "group_call_ptr", "call_flow", "call_sms", "call_launch", "footprint_group")
    of_table = {name: getattr(table, name) for name in places}
    return Exec(
        **of_programs,
        **of_groups,
        **of_table,
        **per_gpu,
        **per_stream,
        **per_group,
        **per_signal,
        **per_record,
        **per_start,
        scalar=zeros(8),
        n_streams=streams,
        n_sms=n_sms,
        iterations=iterations,
        row_stream=row_stream,
        row_signal=signal,
        row_start_awaited=_start_awaited(programs),
        timers=np.zeros((n, len(TIMERS)), np.int64),
        call_external=zeros(len(table.call_flow), np.int8) if external is None else external,
        program=program.astype(np.int32),
        slow=slow.astype(np.float64),
        jitter=np.array([jitter]),
        jitter_seed=np.array([seed], np.uint64),
        state=zeros(n * streams, np.int8),
        blocked_on=np.full(n * streams, -1, np.int64),
        work=np.zeros(n * streams),
        version=zeros(n * streams, np.int32),
        signal_ptr=(np.cumsum(n_signals) - n_signals).astype(np.int64),
        group_arrived=zeros(n_groups, np.int32),
        group_tag=zeros(n_groups, np.int32),
        record_slot=slot,
        stack=zeros(2 * n * streams + 8, np.int32),
        heap_t=zeros(queue),
        heap_key=zeros(queue),
        heap_version=zeros(queue, np.int32),
        bubble=zeros(n),
        end=zeros(n),
        record_ptr=record_ptr.astype(np.int64),
    )


def _stream_of_rows(programs: Programs) -> Array:
    sizes = np.diff(programs.stream_ptr)
    return np.repeat(np.arange(len(sizes)) % programs.n_streams, sizes).astype(np.int8)


def _signals(programs: Programs, row_stream: Array) -> tuple[Array, Array]:
    """Number, program by program, the rows that a row of another stream depends on."""
    row = np.repeat(np.arange(len(programs.kind)), np.diff(programs.dep_ptr))
    ends = programs.dep_idx >= 0
    row, dep = row[ends], programs.dep_idx[ends]
    awaited = np.unique(dep[row_stream[row] != row_stream[dep]])
    signal = np.full(len(programs.kind), -1, np.int32)
    owner = np.searchsorted(programs.stream_ptr[:: programs.n_streams], awaited, side="right") - 1
    count = np.bincount(owner, minlength=programs.n_programs)
    signal[awaited] = np.arange(len(awaited)) - np.repeat(np.cumsum(count) - count, count)
    return signal, count


def _start_awaited(programs: Programs) -> Array:
    """Rows whose start, not end, others wait for: bool[I]."""
    awaited = np.zeros(len(programs.kind), np.bool_)
    awaited[~programs.dep_idx[programs.dep_idx < 0]] = True
    return awaited
