"""What a result file holds: one declaration per channel feeds writer, reader, reports and `check`.

A channel is an array with named axes. `path` is its place in the HDF5 file; `reduce` says how samples over a longer interval combine;
`choice` is the name by which `telemetry.channels` of a run file asks for it, empty for what every file has.
Links that carried the same at all times share a row of the series: `links/series` says which row shows a link.
"""

from collections.abc import Iterable
from typing import NamedTuple

FILETYPE = "netsim-result"
VERSION = (1, 3)
"""Major: readers of another major refuse the file; minor: fields were added."""


class Channel(NamedTuple):
    """One array of a result file."""

    path: str
    axes: tuple[str, ...]
    unit: str
    dtype: str
    reduce: str  # 'sum', 'max', 'mean', 'none'
    meaning: str
    choice: str = ""


COUNTERS = {
    "queue_max": ("queue", "B", "max", "highest fill of the queue", "int64"),
    "queue_mean": ("queue", "B", "mean", "mean fill of the queue", "float32"),
    "ecn": ("ecn", "", "sum", "packets marked for congestion", "int64"),
    "pause_ps": ("pause", "ps", "sum", "time the link was paused by flow control", "int64"),
    "drops": ("drops", "", "sum", "packets dropped", "int64"),
    "reordered": ("reordered", "", "sum", "packets that arrived out of order", "int64"),
}
"""Counters of the packet engine: choice, unit, reduction, meaning, type."""

COUNTED = tuple(COUNTERS.items())

CHANNELS = (
    Channel("links/name", ("link",), "", "str", "none", "name of a directed link, 'from -> to'"),
    Channel("links/tier", ("link",), "", "str", "none", "tier: scale_up, between (islands of a node), host, nic, spine or core"),
    Channel("links/rail", ("link",), "", "int16", "none", "rail of the link; -1 where it serves all"),
    Channel("links/bundle", ("link",), "", "int32", "none", "number of its set of parallel links: same ends, same direction"),
    Channel("links/rate", ("link",), "B/s", "float64", "none", "capacity"),
    Channel("links/bytes", ("link",), "B", "float64", "sum", "bytes carried over the whole run"),
    Channel("links/load", ("link", "category"), "B", "float32", "sum", "bytes carried for communication of each category"),
    *(Channel(f"links/{name}", ("link",), unit, kind, how, f"{text}, over the whole run") for name, (_, unit, how, text, kind) in COUNTED),
    Channel("links/series", ("link",), "", "int32", "none", "row of series/* that shows this link; -1: nothing carried", "series"),
    Channel("links/loads", ("link",), "", "int32", "none", "set of loads/* that tells which calls loaded this link; -1: none", "loads"),
    Channel("loads/set", ("load",), "", "int32", "none", "set of links (links/loads) that were loaded", "loads"),
    Channel("loads/name", ("load",), "", "int32", "none", "name of the call, index into operations/names", "loads"),
    Channel("loads/category", ("load",), "", "int8", "none", "category of the call, index into the attribute 'categories'", "loads"),
    Channel("loads/stage", ("load",), "", "int16", "none", "pipeline stage of the first member of its communicator", "loads"),
    Channel("loads/microbatch", ("load",), "", "int16", "none", "microbatch of the call, -1 outside", "loads"),
    Channel("loads/iteration", ("load",), "", "int32", "none", "iteration, from 0; -1: those not kept apart", "loads"),
    Channel("loads/part", ("load",), "", "int16", "none", "number (bucket) among calls of this name; -1: not told apart", "loads"),
    Channel("loads/first", ("load",), "ps", "int64", "none", "when the first byte of such a call moved", "loads"),
    Channel("loads/last", ("load",), "ps", "int64", "none", "when the last byte of such a call moved", "loads"),
    Channel("loads/bytes", ("load",), "B", "float64", "sum", "bytes over one link of the set, headers of packets not counted", "loads"),
    Channel("series/bytes", ("series", "interval"), "B", "float32", "sum", "bytes carried in each interval", "series"),
    *(
        Channel(f"series/{name}", ("series", "interval"), unit, kind, how, f"{text}, in each interval", choice)
        for name, (choice, unit, how, text, kind) in COUNTED
    ),
    Channel("gpus/program", ("gpu",), "", "int32", "none", "program (pipeline stage) that a GPU runs"),
    Channel("gpus/busy", ("gpu", "category"), "ps", "int64", "sum", "time of kernels by category"),
    Channel("gpus/exposed", ("gpu", "category"), "ps", "int64", "sum", "time the compute stream waited for communication of a category"),
    Channel("gpus/timers", ("gpu", "timer"), "ps", "int64", "sum", "time of the compute stream by Megatron's timers, attribute 'timers'"),
    Channel("gpus/bubble", ("gpu",), "ps", "int64", "sum", "time the compute stream waited for other GPUs to reach a call, or for the end"),
    Channel("gpus/end", ("gpu",), "ps", "int64", "max", "end of the last operation"),
    Channel("operations/gpu", ("operation",), "", "int32", "none", "GPU that executed the operation", "operations"),
    Channel("operations/stream", ("operation",), "", "int8", "none", "stream, index into the attribute 'streams'", "operations"),
    Channel("operations/category", ("operation",), "", "int8", "none", "category, index into the attribute 'categories'", "operations"),
    Channel("operations/name", ("operation",), "", "int32", "none", "name, index into operations/names", "operations"),
    Channel("operations/microbatch", ("operation",), "", "int16", "none", "microbatch, -1 outside", "operations"),
    Channel("operations/layer", ("operation",), "", "int16", "none", "layer, -1 outside", "operations"),
    Channel("operations/iteration", ("operation",), "", "int32", "none", "iteration, from 0", "operations"),
    Channel("operations/start", ("operation",), "ps", "int64", "none", "start of a kernel, or arrival of this GPU at a call", "operations"),
    Channel("operations/begin", ("operation",), "ps", "int64", "none", "for calls: all members had arrived", "operations"),
    Channel("operations/end", ("operation",), "ps", "int64", "none", "end; 0 where the run stopped before", "operations"),
    Channel("operations/exposed", ("operation",), "ps", "int64", "sum", "time the compute stream waited for it", "operations"),
    Channel("operations/flow", ("operation",), "", "int32", "none", "row of flows/* of a call, -1 for kernels", "flows"),
    Channel("operations/memory", ("operation",), "B", "int64", "max", "memory allocated meanwhile; -1 off the compute stream", "memory"),
    Channel("operations/names", ("name",), "", "str", "none", "names of operations and calls"),
    Channel("flows/group", ("flow",), "", "int32", "none", "communicator (training) or flow number (traffic)", "flows"),
    Channel("flows/call", ("flow",), "", "int32", "none", "name of the call, index into operations/names; -1 for plain traffic", "flows"),
    Channel("flows/src", ("flow",), "", "int32", "none", "NIC that sends, of plain traffic", "flows"),
    Channel("flows/dst", ("flow",), "", "int32", "none", "NIC that receives, of plain traffic", "flows"),
    Channel("flows/bytes", ("flow",), "B", "float64", "none", "bytes that all members send together, or of the message", "flows"),
    Channel("flows/alike", ("flow",), "", "int32", "none", "communicators that do the same at the same time, with this one", "flows"),
    Channel("flows/start", ("flow",), "ps", "int64", "none", "all members there, or message handed to the NIC", "flows"),
    Channel("flows/end", ("flow",), "ps", "int64", "none", "completion; 0 where the run stopped before", "flows"),
    Channel("flows/resent", ("flow",), "", "int64", "none", "packets that were sent again", "flows"),
    Channel("flows/path", ("flow",), "", "int32", "none", "path in paths/*; -1: none", "flows"),
    Channel("paths/path", ("step",), "", "int32", "none", "number of a path", "flows"),
    Channel("paths/link", ("step",), "", "int32", "none", "a link of it, from sender to receiver; of a collective all links", "flows"),
)  # fmt: skip
BY_PATH = {channel.path: channel for channel in CHANNELS}
CHOICES = tuple(dict.fromkeys(channel.choice for channel in CHANNELS if channel.choice))


def counted(choices: Iterable[str]) -> list[str]:
    """Counters of the packet engine that are kept over time where these channels are recorded."""
    return ["bytes", *(name for name, (choice, *_) in COUNTERS.items() if choice in choices)]


def chosen(names: Iterable[str]) -> frozenset[str]:
    """The choices that `telemetry.channels` of a run file stands for."""
    wanted = set(names)
    return frozenset(CHOICES if "all" in wanted else wanted)
