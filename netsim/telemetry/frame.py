"""From what is known before a run and what has happened so far to the channels of a result file.

A `Frame` is all that does not change while a run goes on; `Happened` is what does. The file of a run that ended, of one that was told to
stop and of one that was killed (netsim.telemetry.spool) come from the same two and the same code.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from netsim.kernels.structs import Array
from netsim.telemetry import series
from netsim.telemetry.channels import BY_PATH, COUNTERS
from netsim.telemetry.series import Loads, Log
from netsim.telemetry.size import LARGEST


class Frame(NamedTuple):
    """What is known before the first event. `channels` are written as they are; simulated links and GPUs stand for real ones."""

    attributes: dict[str, Any]
    channels: dict[str, Any]  # path -> array or list of strings
    interval: int  # ps between two samples
    choices: tuple[str, ...]  # channels.chosen
    loads: Loads
    bundle_category: Array  # int8[B]
    link_of: Array  # int64[L] simulated link of each link
    gpu_of: Array  # int64[n] simulated GPU of each GPU
    n_links: int  # simulated
    call_group: Array  # int32[operations] communicator of a call, -1 for kernels
    call_bytes: Array  # float64[operations]
    call_alike: Array  # int32[operations]


class Samples(NamedTuple):
    """Counts of one counter, only where there were any: K entries in order of interval."""

    interval: Array  # int32[K]
    link: Array  # int32[K]
    value: Array  # float64[K]


def joined(parts: Sequence[Samples]) -> Samples:
    """Samples of several ranks, or files, in order of interval, then link."""
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    return Samples(*(column[order] for column in columns))


class Happened(NamedTuple):
    """What has happened so far; GPUs and links are simulated ones."""

    complete: bool
    end_ps: int
    log: Log
    moved: Array  # float64[B] bytes that bundles moved
    busy: Array  # int64[n, C]
    exposed: Array  # int64[n, C]
    timers: Array  # int64[n, T]
    bubble: Array  # int64[n]
    end: Array  # int64[n]
    start: Array  # int64[operations]
    begin: Array  # int64[operations]
    ended: Array  # int64[operations]
    counters: dict[str, Array]  # int64[L] totals of the packet engine, empty without one
    samples: dict[str, Samples]  # the same over time


def channels(frame: Frame, happened: Happened) -> dict[str, Any]:
    """Every channel but the series, as arrays."""
    out = dict(frame.channels)
    out |= _totals(frame, happened) | _gpus(frame, happened)
    if "operations" in frame.choices:
        out |= {"operations/start": happened.start, "operations/begin": happened.begin, "operations/end": happened.ended}
    if "flows" in frame.choices:
        out |= _flows(frame, happened)
    if not {"operations", "flows"} <= set(frame.choices):
        out.pop("operations/flow", None)
    return {path: values for path, values in out.items() if BY_PATH[path].choice in ("", *frame.choices)}


def _totals(frame: Frame, happened: Happened) -> dict[str, Array]:
    load = series.category_bytes(happened.moved, frame.loads, frame.bundle_category, frame.n_links, len(frame.attributes["categories"]))
    nbytes = series.link_bytes(happened.moved, frame.loads, frame.n_links)[frame.link_of]
    if "bytes" in happened.counters:
        nbytes = nbytes + happened.counters["bytes"]
    known = {f"links/{name}": happened.counters[name] for name in COUNTERS if name in happened.counters}
    return {"links/bytes": nbytes, "links/load": load[frame.link_of]} | known


def _gpus(frame: Frame, happened: Happened) -> dict[str, Array]:
    return {f"gpus/{name}": getattr(happened, name)[frame.gpu_of] for name in ("busy", "exposed", "timers", "bubble", "end")}


def _flows(frame: Frame, happened: Happened) -> dict[str, Array]:
    """One flow per call that ended; the rows of several members that made it name the same one."""
    rows = np.flatnonzero((frame.call_group >= 0) & (happened.ended > 0))
    rows = rows[np.lexsort((frame.call_group[rows], happened.begin[rows]))]
    begin, group = happened.begin[rows], frame.call_group[rows]
    new = np.r_[True, (begin[1:] != begin[:-1]) | (group[1:] != group[:-1])][: len(rows)]
    of_row = np.full(len(frame.call_group), -1, np.int32)
    of_row[rows] = np.cumsum(new) - 1
    rows = rows[new]
    return {
        "operations/flow": of_row,
        "flows/group": frame.call_group[rows],
        "flows/call": np.asarray(frame.channels["operations/name"])[rows],
        "flows/bytes": frame.call_bytes[rows],
        "flows/alike": frame.call_alike[rows],
        "flows/start": happened.begin[rows],
        "flows/end": happened.ended[rows],
    }


class Series(NamedTuple):
    """Layout of the series: how long intervals are, and which row shows which link."""

    interval: int
    bins: int
    rows: int
    of_simulated: Array  # int32[simulated links]
    of_link: Array  # int32[L]


def layout(frame: Frame, happened: Happened) -> Series:
    """Give links that are alike in the log a row together, and links that the packet engine sampled one each."""
    row, rows = series.alike(happened.log, frame.loads, frame.n_links)
    sampled = np.unique(np.concatenate([np.zeros(0, np.int32), *(s.link for s in happened.samples.values())])).astype(np.int64)
    row[sampled] = np.arange(rows, rows + len(sampled))
    rows += len(sampled)
    interval = frame.interval
    while rows * -(-happened.end_ps // interval) > LARGEST:
        interval *= 2
    return Series(interval, -(-happened.end_ps // interval), rows, row, row[frame.link_of])


def sampled_block(samples: Samples, shape: Series, factor: int, bin0: int, width: int, how: str) -> Array:
    """Counts of one counter, float64[rows, width], from interval `bin0` on; an interval holds `factor` samples."""
    block = np.zeros((shape.rows, width))
    mine = slice(*np.searchsorted(samples.interval, [bin0 * factor, (bin0 + width) * factor]))
    at = (shape.of_simulated[samples.link[mine]], samples.interval[mine] // factor - bin0)
    if how == "max":
        np.maximum.at(block, at, samples.value[mine])
    else:
        np.add.at(block, at, samples.value[mine])
    return block
