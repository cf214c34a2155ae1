"""What a result file holds: one declaration per channel feeds writer, reader, reports and `check`.

A channel is an array with named axes. `path` is its place in the HDF5 file; `reduce` says how samples over a longer interval combine.
"""

from typing import NamedTuple

FILETYPE = "netsim-result"
VERSION = (1, 0)
"""Major: readers of another major refuse the file; minor: fields were added."""


class Channel(NamedTuple):
    """One array of a result file."""

    path: str
    axes: tuple[str, ...]
    unit: str
    dtype: str
    reduce: str  # 'sum', 'max', 'mean', 'none'
    meaning: str


CHANNELS = (
    Channel("links/name", ("link",), "", "str", "none", "name of a directed link, 'from -> to'"),
    Channel("links/tier", ("link",), "", "str", "none", "tier: scale_up, host, nic, spine or core"),
    Channel("links/rail", ("link",), "", "int16", "none", "rail of the link; -1 where it serves all"),
    Channel("links/rate", ("link",), "B/s", "float64", "none", "capacity"),
    Channel("links/bytes", ("link",), "B", "float64", "sum", "bytes carried over the whole run"),
    Channel("links/series", ("link",), "", "int32", "none", "row of series/bytes that shows this link over time; -1 where it carried nothing"),
    Channel("series/bytes", ("series", "interval"), "B", "float32", "sum", "bytes carried in each interval"),
    Channel("gpus/program", ("gpu",), "", "int32", "none", "program (pipeline stage) that a GPU runs"),
    Channel("gpus/busy", ("gpu", "category"), "ps", "int64", "sum", "time of kernels by category"),
    Channel("gpus/exposed", ("gpu", "category"), "ps", "int64", "sum", "time the compute stream waited for communication of a category"),
    Channel("gpus/bubble", ("gpu",), "ps", "int64", "sum", "time the compute stream waited for another pipeline stage or for the end"),
    Channel("gpus/end", ("gpu",), "ps", "int64", "max", "end of the last operation"),
    Channel("operations/gpu", ("operation",), "", "int32", "none", "GPU that executed the operation"),
    Channel("operations/stream", ("operation",), "", "int8", "none", "stream, index into the attribute 'streams'"),
    Channel("operations/category", ("operation",), "", "int8", "none", "category, index into the attribute 'categories'"),
    Channel("operations/name", ("operation",), "", "int32", "none", "name, index into operations/names"),
    Channel("operations/microbatch", ("operation",), "", "int16", "none", "microbatch, -1 outside"),
    Channel("operations/layer", ("operation",), "", "int16", "none", "layer, -1 outside"),
    Channel("operations/start", ("operation",), "ps", "int64", "none", "start of a kernel, or arrival of this GPU at a call"),
    Channel("operations/begin", ("operation",), "ps", "int64", "none", "for calls: all members had arrived"),
    Channel("operations/end", ("operation",), "ps", "int64", "none", "end"),
    Channel("operations/names", ("name",), "", "str", "none", "names of operations"),
    Channel("flows/group", ("flow",), "", "int32", "none", "group (training) or flow number (traffic)"),
    Channel("flows/call", ("flow",), "", "int32", "none", "name of the call, index into flows/calls; -1 for plain traffic"),
    Channel("flows/bytes", ("flow",), "B", "float64", "none", "bytes put on links by the call (training), or of the message"),
    Channel("flows/start", ("flow",), "ps", "int64", "none", "all members there, or message handed to the NIC"),
    Channel("flows/end", ("flow",), "ps", "int64", "none", "completion"),
    Channel("flows/calls", ("call",), "", "str", "none", "names of calls"),
)
BY_PATH = {channel.path: channel for channel in CHANNELS}
