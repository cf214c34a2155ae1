"""What a result file holds: one declaration per channel feeds writer, reader, reports and `check`.

A channel is an array with named axes. `path` is its place in the HDF5 file; `reduce` says how samples over a longer interval combine;
`choice` is the name by which `telemetry.channels` of a run file asks for it, empty for what every file has.
Links that carried the same at all times share a row of the series: `links/series` says which row shows a link.
"""

from collections.abc import Iterable
from typing import NamedTuple

FILETYPE = "netsim-result"
VERSION = (1, 1)
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
    "queue_max": ("queue", "B", "max", "highest fill of the queue"),
    "ecn": ("ecn", "", "sum", "packets marked for congestion"),
    "pause_ps": ("pause", "ps", "sum", "time the link was paused by flow control"),
    "drops": ("drops", "", "sum", "packets dropped"),
    "reordered": ("reordered", "", "sum", "packets that arrived out of order"),
}
"""Counters of the packet engine: choice, unit, reduction, meaning."""

COUNTED = tuple(COUNTERS.items())

CHANNELS = (
    Channel("links/name", ("link",), "", "str", "none", "name of a directed link, 'from -> to'"),
    Channel("links/tier", ("link",), "", "str", "none", "tier: scale_up, host, nic, spine or core"),
    Channel("links/rail", ("link",), "", "int16", "none", "rail of the link; -1 where it serves all"),
    Channel("links/bundle", ("link",), "", "int32", "none", "number of its set of parallel links: same ends, same direction"),
    Channel("links/rate", ("link",), "B/s", "float64", "none", "capacity"),
    Channel("links/bytes", ("link",), "B", "float64", "sum", "bytes carried over the whole run"),
    Channel("links/load", ("link", "category"), "B", "float32", "sum", "bytes carried for communication of each category"),
    *(Channel(f"links/{name}", ("link",), unit, "int64", how, f"{text}, over the whole run") for name, (_, unit, how, text) in COUNTED),
    Channel("links/series", ("link",), "", "int32", "none", "row of series/* that shows this link; -1: nothing carried", "series"),
    Channel("series/bytes", ("series", "interval"), "B", "float32", "sum", "bytes carried in each interval", "series"),
    *(
        Channel(f"series/{name}", ("series", "interval"), unit, "int64", how, f"{text}, in each interval", choice)
        for name, (choice, unit, how, text) in COUNTED
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
    Channel("operations/start", ("operation",), "ps", "int64", "none", "start of a kernel, or arrival of this GPU at a call", "operations"),
    Channel("operations/begin", ("operation",), "ps", "int64", "none", "for calls: all members had arrived", "operations"),
    Channel("operations/end", ("operation",), "ps", "int64", "none", "end; 0 where the run stopped before", "operations"),
    Channel("operations/flow", ("operation",), "", "int32", "none", "row of flows/* of a call, -1 for kernels", "flows"),
    Channel("operations/memory", ("operation",), "B", "int64", "max", "memory allocated meanwhile; -1 off the compute stream", "memory"),
    Channel("operations/names", ("name",), "", "str", "none", "names of operations and calls"),
    Channel("flows/group", ("flow",), "", "int32", "none", "communicator (training) or flow number (traffic)", "flows"),
    Channel("flows/call", ("flow",), "", "int32", "none", "name of the call, index into operations/names; -1 for plain traffic", "flows"),
    Channel("flows/bytes", ("flow",), "B", "float64", "none", "bytes that all members send together, or of the message", "flows"),
    Channel("flows/alike", ("flow",), "", "int32", "none", "communicators that do the same at the same time, with this one", "flows"),
    Channel("flows/start", ("flow",), "ps", "int64", "none", "all members there, or message handed to the NIC", "flows"),
    Channel("flows/end", ("flow",), "ps", "int64", "none", "completion", "flows"),
)  # fmt: skip
BY_PATH = {channel.path: channel for channel in CHANNELS}
CHOICES = tuple(dict.fromkeys(channel.choice for channel in CHANNELS if channel.choice))


def chosen(names: Iterable[str]) -> frozenset[str]:
    """The choices that `telemetry.channels` of a run file stands for."""
    wanted = set(names)
    return frozenset(CHOICES if "all" in wanted else wanted)
