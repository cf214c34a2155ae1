"""A run as a Perfetto trace: native TrackEvent packets, for ui.perfetto.dev or the trace processor.

Plain traffic has a thread per sending NIC, more where its flows overlap. Of a training run:

A process per recorded GPU (its pipeline stage in the name) with a thread per stream; on the compute stream kernels are nested in what
Megatron's timers cover. Rows that belong to one call (both ends of a transfer, members of a collective) are joined by a flow. Counters:
memory of each GPU, and the mean and the highest utilisation of links by tier. Timestamps are nanoseconds, as Perfetto has them.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from netsim.errors import InputError
from netsim.kernels.structs import CATEGORIES
from netsim.report.heat import tier_utilisation
from netsim.report.spans import Operations, operations, recorded, spans
from netsim.telemetry.read import RunFile
from netsim.telemetry.write import whole

NETWORK = 1 << 20
"""Process id of the counters of links."""
COUNTER_POINTS = 20_000
"""Values of a counter of links at most; longer series are averaged."""


class Subset(NamedTuple):
    """What of a run is shown; empty means all."""

    ranks: tuple[int, ...] = ()
    window: tuple[float, float] = (0.0, float("inf"))  # seconds
    categories: tuple[str, ...] = ()


def write_trace(run: RunFile, subset: Subset, out: Path) -> int:
    """Write the trace and return the number of slices; InputError where the run does not hold what is asked for."""
    plain = "flows/src" in run
    if plain and (subset.ranks or subset.categories):
        raise InputError("--rank, --category: expected a training run; plain traffic has flows between NICs")
    gpus = [] if plain else _gpus(run, subset.ranks)
    with whole(out) as part, open(part, "wb") as file:
        trace = _Trace(file)
        for ops in operations(run, gpus, subset.window):
            _process(run, trace, ops, subset)
        if plain:
            _plain(run, trace, subset)
        if "series/bytes" in run and run.shape("series/bytes")[1]:
            _links(run, trace, subset)
    return trace.slices


def _gpus(run: RunFile, ranks: tuple[int, ...]) -> list[int]:
    there = recorded(run)
    if not there:
        raise InputError(f"{run.path}: expected operations to draw; this run recorded none (telemetry.channels, telemetry.operations)")
    if missing := [r for r in ranks if r not in there]:
        shown = ", ".join(map(str, there[:12])) + (", ..." if len(there) > 12 else "")
        raise InputError(f"--rank: expected recorded GPUs ({shown}); got {', '.join(map(str, missing))}; telemetry.operations records more")
    return list(ranks) or there


class _Trace:
    """Writes packets one by one; names are interned."""

    def __init__(self, file: Any) -> None:
        try:
            from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto
            from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder
        except ImportError:
            raise InputError("trace: expected the packages perfetto and protobuf; pip install 'netsim-llm[trace]'") from None
        self._proto, self._builder = proto, StreamingTraceProtoBuilder(file)
        self._names: dict[str, int] = {}
        self._fields: dict[str, int] = {}
        self._tracks = 0
        self.slices = 0
        first = self._packet()
        first.sequence_flags = proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self._builder.write_packet(first)

    def _packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = 1
        packet.sequence_flags = self._proto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        return packet

    def _descriptor(self) -> tuple[Any, Any]:
        self._tracks += 1
        packet = self._packet()
        packet.track_descriptor.uuid = self._tracks
        return packet, packet.track_descriptor

    def process(self, pid: int, name: str) -> int:
        """Declare a process; returns its track."""
        packet, track = self._descriptor()
        track.process.pid, track.process.process_name = pid, name
        self._builder.write_packet(packet)
        return self._tracks

    def thread(self, pid: int, number: int, name: str) -> int:
        """Declare a thread of a process; returns its track."""
        packet, track = self._descriptor()
        track.thread.pid, track.thread.tid, track.thread.thread_name = pid, pid * 100 + number + 1, name
        self._builder.write_packet(packet)
        return self._tracks

    def counter(self, parent: int, name: str, unit: str) -> int:
        """Declare a counter of a process; returns its track."""
        packet, track = self._descriptor()
        track.parent_uuid, track.name, track.counter.unit_name = parent, name, unit
        self._builder.write_packet(packet)
        return self._tracks

    def begin(self, track: int, t_ps: int, name: str, flow: int = -1, **facts: int | str) -> None:
        """Start a slice."""
        packet = self._packet()
        packet.timestamp = t_ps // 1000
        event = packet.track_event
        event.type, event.track_uuid = self._proto.TrackEvent.TYPE_SLICE_BEGIN, track
        event.name_iid = self._intern(packet, self._names, name, "event_names")
        if flow >= 0:
            event.flow_ids.append(flow + 1)
        for key, value in facts.items():
            note = event.debug_annotations.add()
            note.name_iid = self._intern(packet, self._fields, key, "debug_annotation_names")
            if isinstance(value, str):
                note.string_value = value
            else:
                note.int_value = value
        self._builder.write_packet(packet)
        self.slices += 1

    def end(self, track: int, t_ps: int) -> None:
        """End the innermost slice of a track."""
        packet = self._packet()
        packet.timestamp = t_ps // 1000
        packet.track_event.type, packet.track_event.track_uuid = self._proto.TrackEvent.TYPE_SLICE_END, track
        self._builder.write_packet(packet)

    def value(self, track: int, t_ps: int, value: float) -> None:
        """Set a counter."""
        packet = self._packet()
        packet.timestamp = t_ps // 1000
        event = packet.track_event
        event.type, event.track_uuid, event.double_counter_value = self._proto.TrackEvent.TYPE_COUNTER, track, value
        self._builder.write_packet(packet)

    def _intern(self, packet: Any, known: dict[str, int], name: str, table: str) -> int:
        if name not in known:
            known[name] = len(known) + 1
            entry = getattr(packet.interned_data, table).add()
            entry.iid, entry.name = known[name], name
        return known[name]


def _process(run: RunFile, trace: _Trace, ops: Operations, subset: Subset) -> None:
    """One GPU: its streams and its memory."""
    process = trace.process(ops.gpu + 1, f"stage {ops.program}, GPU {ops.gpu}")
    wanted = np.isin(ops.category, [CATEGORIES.index(c) for c in subset.categories]) if subset.categories else np.ones(len(ops.name), bool)
    for number, stream in enumerate(run.names("streams")):
        rows = np.flatnonzero((ops.stream == number) & wanted)
        if len(rows):
            _thread(trace, ops, rows, trace.thread(ops.gpu + 1, number, stream), number == 0)
    held = np.flatnonzero(ops.memory >= 0)
    held = held[np.r_[True, np.diff(ops.memory[held]) != 0][: len(held)]]
    if len(held):
        track = trace.counter(process, "memory allocated", "B")
        for t_ps, value in zip(ops.start[held].tolist(), ops.memory[held].tolist(), strict=True):
            trace.value(track, t_ps, value)


def _thread(trace: _Trace, ops: Operations, rows: Any, track: int, nested: bool) -> None:
    """The slices of one stream in order."""
    opens: dict[int, tuple[str, int]] = {}
    closes: dict[int, int] = {}
    if nested:
        found, shown = spans(ops), set(rows.tolist())
        for name, batch, a, b in zip(found.name, found.microbatch.tolist(), found.first.tolist(), found.last.tolist(), strict=True):
            inside = [r for r in range(a, b + 1) if r in shown]
            if inside:
                opens[inside[0]], closes[inside[-1]] = (name, batch), b
    columns = (ops.name, ops.category, ops.microbatch, ops.layer, ops.start, ops.begin, ops.end, ops.flow)
    for row, name, category, batch, layer, start, begin, end, flow in zip(rows.tolist(), *(c[rows].tolist() for c in columns), strict=True):
        if row in opens:
            trace.begin(track, start, opens[row][0], **({"microbatch": opens[row][1]} if opens[row][1] >= 0 else {}))
        facts: dict[str, int | str] = {"category": CATEGORIES[category]}
        facts |= {key: value for key, value in (("microbatch", batch), ("layer", layer)) if value >= 0}
        trace.begin(track, start, name, flow, **facts)
        if begin > start:
            trace.begin(track, start, "waiting for peers")
            trace.end(track, begin)
        trace.end(track, end)
        if row in closes:
            trace.end(track, end)


def _plain(run: RunFile, trace: _Trace, subset: Subset) -> None:
    """Flows of plain traffic by the NIC that sends them."""
    columns = {name: run[f"flows/{name}"] for name in ("src", "dst", "start", "end", "bytes")}
    resent = run["flows/resent"] if "flows/resent" in run else np.zeros(len(columns["src"]), np.int64)
    end = np.where(columns["end"] > 0, columns["end"], run.end_ps)
    shown = (end * 1e-12 >= subset.window[0]) & (columns["start"] * 1e-12 < subset.window[1]) & (columns["start"] < run.end_ps)
    trace.process(1, "plain traffic, by sending NIC")
    lanes: dict[int, list[tuple[int, int]]] = {}  # per NIC: (track, end of its last flow)
    rows = np.flatnonzero(shown)
    for i in rows[np.lexsort((rows, columns["start"][rows]))].tolist():
        src, start = int(columns["src"][i]), int(columns["start"][i])
        mine = lanes.setdefault(src, [])
        lane = next((k for k, (_, until) in enumerate(mine) if until <= start), len(mine))
        if lane == len(mine):
            mine.append((trace.thread(1, len(mine) * run.shape("links/name")[0] + src, f"nic {src}"), 0))
        mine[lane] = (mine[lane][0], int(end[i]))
        facts: dict[str, int | str] = {"bytes": int(columns["bytes"][i])}
        facts |= {"packets sent again": int(resent[i])} if resent[i] else {}
        facts |= {} if columns["end"][i] else {"ended": "no"}
        trace.begin(mine[lane][0], start, f"flow {i} to nic {int(columns['dst'][i])}", -1, **facts)
        trace.end(mine[lane][0], int(end[i]))


def _links(run: RunFile, trace: _Trace, subset: Subset) -> None:
    """Counters of links: mean and highest utilisation of every tier that carried anything."""
    process = trace.process(NETWORK, "links")
    t_s, tiers = tier_utilisation(run, COUNTER_POINTS, subset.window)
    for tier, (mean, highest) in tiers.items():
        for what, values in (("mean", mean), ("highest", highest)):
            track = trace.counter(process, f"{tier}: {what} utilisation", "%")
            changed = np.r_[True, np.diff(values) != 0]
            for t, value in zip(t_s[changed].tolist(), values[changed].tolist(), strict=True):
                trace.value(track, round(t * 1e12), 100 * value)
