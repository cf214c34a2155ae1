"""From what is known before a run and what has happened so far to the channels of a result file.

A `Frame` is all that does not change while a run goes on; `Happened` is what does. The file of a run that ended, of one that was told to
stop and of one that was killed (netsim.telemetry.spool) come from the same two and the same code.

Bundles of the log: the first `n_bundles` moved fluidly and loaded every link of `loads`. In a training run on the packet engine there are
as many again for calls that it carried: of those, links in the network were counted packet by packet, and `loads` has the host bus only.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from netsim.kernels.structs import Array
from netsim.telemetry import loads as loading
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
    n_bundles: int
    link_of: Array  # int64[L] simulated link of each link
    gpu_of: Array  # int64[n] simulated GPU of each GPU; empty for plain traffic
    n_links: int  # simulated
    key_of_tag: Array  # int32[...] kind of call of every tag of the log, -1: none; empty for plain traffic
    keys: dict[str, Array]  # name, category, stage, microbatch, part, iteration of each kind of call
    call_group: Array  # int32[operations] communicator of a call, -1 for kernels
    call_bytes: Array  # float64[operations]
    call_alike: Array  # int32[operations]
    call_path: Array  # int32[operations] path, -1 for kernels


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
    moved: Array  # float64[bundles of the log] bytes that bundles moved
    busy: Array  # int64[n, C]
    exposed: Array  # int64[n, C]
    timers: Array  # int64[n, T]
    bubble: Array  # int64[n]
    end: Array  # int64[n]
    start: Array  # int64[operations]
    begin: Array  # int64[operations]
    ended: Array  # int64[operations], or of plain flows
    waited: Array  # int64[operations] time that the compute stream waited for each
    turn: Array  # int32[operations] iteration of each
    counters: dict[str, Array]  # int64[L] totals of the packet engine, empty without one
    samples: dict[str, Samples]  # the same over time
    resent: Array  # int64[K, 3] (communicator, end, packets sent again) of calls that lost any; (flow, 0, packets) of plain flows


def channels(frame: Frame, happened: Happened, alike: tuple[Array, int]) -> dict[str, Any]:
    """Every channel but the series, as arrays; `alike` is what `series.alike` says of the log."""
    out = dict(frame.channels)
    out |= _totals(frame, happened)
    if len(frame.gpu_of):
        out |= _gpus(frame, happened) | _loads(frame, happened, alike, out["links/bytes"])
        for path, values in (("start", "start"), ("begin", "begin"), ("end", "ended"), ("exposed", "waited"), ("iteration", "turn")):
            out[f"operations/{path}"] = getattr(happened, values)
    if "flows" in frame.choices:
        out |= _flows(frame, happened) if len(frame.gpu_of) else _plain_flows(frame, happened)
    if not {"operations", "flows"} <= set(frame.choices):
        out.pop("operations/flow", None)
    return {path: values for path, values in out.items() if BY_PATH[path].choice in ("", *frame.choices)}


def _totals(frame: Frame, happened: Happened) -> dict[str, Array]:
    nbytes = series.link_bytes(happened.moved, frame.loads, frame.n_links)[frame.link_of]
    if "bytes" in happened.counters:
        nbytes = nbytes + happened.counters["bytes"]
    known = {f"links/{name}": happened.counters[name] for name in COUNTERS if name in happened.counters}
    return {"links/bytes": nbytes} | known


def _gpus(frame: Frame, happened: Happened) -> dict[str, Array]:
    return {f"gpus/{name}": getattr(happened, name)[frame.gpu_of] for name in ("busy", "exposed", "timers", "bubble", "end")}


def _loads(frame: Frame, happened: Happened, alike: tuple[Array, int], nbytes: Array) -> dict[str, Array]:
    """Which calls loaded which links, and from it the bytes of every link by category, scaled to those that it carried."""
    log, whole, row, sets = happened.log, frame.loads, *alike
    if len(frame.loads.bundle_ptr) > frame.n_bundles + 1:  # calls on the packet engine: their bytes, not their times, make links alike
        carried = log.bundle >= frame.n_bundles
        ptr = frame.loads.bundle_ptr[: frame.n_bundles + 1]
        whole = Loads(ptr, frame.loads.node_link[: ptr[-1]], frame.loads.node_coef[: ptr[-1]])
        log = log._replace(bundle=(log.bundle % frame.n_bundles).astype(np.int32))
        volume = np.rint(log.pace * (log.t1 - log.t0) * 1e-12)
        untimed = log._replace(t0=np.where(carried, 0, log.t0), t1=np.where(carried, 0, log.t1), pace=np.where(carried, volume, log.pace))
        row, sets = series.alike(untimed, whole, frame.n_links)
    found = loading.table(log, whole, row, sets, frame.key_of_tag, len(frame.keys["name"]))
    category = frame.keys["category"][found.key]
    n = len(frame.attributes["categories"])
    of_set = np.bincount(found.set * n + category, weights=found.nbytes, minlength=sets * n).reshape(-1, n)[:, :n]
    load = np.append(of_set, np.zeros((1, n)), axis=0)[row[frame.link_of]]
    load = _chosen_by_switches(frame, load, nbytes)
    total = load.sum(axis=1)
    load *= np.divide(nbytes, total, out=np.zeros_like(total), where=total > 0)[:, None]
    out = {"links/load": load, "links/loads": row[frame.link_of], "loads/set": found.set}
    out |= {f"loads/{name}": values[found.key] for name, values in frame.keys.items()}
    return out | {"loads/first": found.first, "loads/last": found.last, "loads/bytes": found.nbytes}


def _chosen_by_switches(frame: Frame, load: Array, nbytes: Array) -> Array:
    """Where switches spread packets, a link may carry what its path does not tell: give it the mix of its tier and rail."""
    lost = (nbytes > 0) & (load.sum(axis=1) == 0)
    if lost.any():
        tier = np.unique(frame.channels["links/tier"], return_inverse=True)[1].ravel()
        group = np.unique(np.stack([tier, frame.channels["links/rail"]]), axis=1, return_inverse=True)[1].ravel()
        mix = np.zeros((group.max() + 1, load.shape[1]))
        np.add.at(mix, group, load)
        load[lost] = mix[group[lost]]
    return load


def _flows(frame: Frame, happened: Happened) -> dict[str, Array]:
    """One flow per call that ended; the rows of several members that made it name the same one."""
    rows = np.flatnonzero((frame.call_group >= 0) & (happened.ended > 0))
    rows = rows[np.lexsort((frame.call_group[rows], happened.begin[rows]))]
    begin, group = happened.begin[rows], frame.call_group[rows]
    new = np.r_[True, (begin[1:] != begin[:-1]) | (group[1:] != group[:-1])][: len(rows)]
    of_row = np.full(len(frame.call_group), -1, np.int32)
    of_row[rows] = np.cumsum(new) - 1
    rows = rows[new]
    out = {
        "operations/flow": of_row,
        "flows/group": frame.call_group[rows],
        "flows/call": np.asarray(frame.channels["operations/name"])[rows],
        "flows/bytes": frame.call_bytes[rows],
        "flows/alike": frame.call_alike[rows],
        "flows/start": happened.begin[rows],
        "flows/end": happened.ended[rows],
        "flows/path": frame.call_path[rows],
    }
    if happened.counters:
        lost: dict[tuple[int, int], int] = {}
        for g, t, n in happened.resent.tolist():  # of a killed run: what each of the ranks that share a call has counted
            lost[g, t] = lost.get((g, t), 0) + n
        keys = zip(out["flows/group"].tolist(), out["flows/end"].tolist(), strict=True)
        out["flows/resent"] = np.array([lost.get(key, 0) for key in keys] if lost else np.zeros(len(rows)), np.int64)
    return out


def _plain_flows(frame: Frame, happened: Happened) -> dict[str, Array]:
    """Flows of plain traffic, whose other channels the frame has."""
    out = {"flows/end": happened.ended}
    if happened.counters:
        out["flows/resent"] = np.zeros(len(happened.ended), np.int64)
        np.add.at(out["flows/resent"], happened.resent[:, 0], happened.resent[:, 2])
    return out


class Series(NamedTuple):
    """Layout of the series: how long intervals are, and which row shows which link."""

    interval: int
    bins: int
    rows: int
    of_simulated: Array  # int32[simulated links]
    of_link: Array  # int32[L]


def layout(frame: Frame, happened: Happened, alike: tuple[Array, int]) -> Series:
    """Give links that are alike in the log a row together, and links that the packet engine sampled one each."""
    row, rows = alike[0].copy(), alike[1]
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
    at = shape.of_simulated[samples.link[mine]].astype(np.int64) * width + (samples.interval[mine] // factor - bin0)
    add = np.maximum if how == "max" else np.add
    add.at(block.reshape(-1), at, samples.value[mine])
    return block / factor if how == "mean" else block
