"""What loaded a link: calls by name, stage, and microbatch or bucket; of plain traffic, flows."""

from typing import Any, NamedTuple

import numpy as np

from netsim.kernels.structs import Array
from netsim.telemetry.read import RunFile

ALL = (0.0, float("inf"))
LEAST = 0.001
"""Share of a link's bytes from which a call is told."""


class Loaders:
    """Finds what loaded links of a run; reads its tables once."""

    def __init__(self, run: RunFile) -> None:
        self._calls = _calls(run) if "loads/bytes" in run else None
        self._flows = _flows(run) if self._calls is None and "paths/link" in run and "flows/call" not in run else None
        self._set = run["links/loads"] if self._calls is not None else None

    def __bool__(self) -> bool:
        return self._calls is not None or self._flows is not None

    def of(self, link: int, window: tuple[float, float] = ALL, top: int = 3) -> list[dict[str, Any]]:
        """What loaded a link most within a window (seconds): call, category, stage, microbatches or bucket, from, to, share of the bytes.

        Bytes count as spread evenly between the first and the last of a kind of call.
        """
        if self._calls is not None and self._set is not None:
            rows = np.flatnonzero(self._calls.set == self._set[link])
            return _told(self._calls, rows, _within(self._calls.first[rows], self._calls.last[rows], window), top)
        return [] if self._flows is None else _told_flows(self._flows, link, window, top)


    def categories(self, link: int, window: tuple[float, float]) -> dict[str, float]:
        """Shares of a link's bytes in a window by category, the largest first."""
        if self._calls is None or self._set is None:
            return {}
        rows = np.flatnonzero(self._calls.set == self._set[link])
        nbytes = self._calls.nbytes[rows] * _within(self._calls.first[rows], self._calls.last[rows], window)
        names, of = np.unique(self._calls.category[rows], return_inverse=True)
        total = np.bincount(of.ravel(), weights=nbytes, minlength=len(names))
        if total.sum() <= 0:
            return {}
        return {str(names[k]): round(float(total[k] / total.sum()), 4) for k in np.argsort(-total) if total[k] > 0.0005 * total.sum()}


class _Calls(NamedTuple):
    set: Array
    first: Array
    last: Array
    nbytes: Array
    stage: Array
    name: Array
    microbatch: Array
    part: Array
    category: Array  # text
    names: Array  # text


def _calls(run: RunFile) -> _Calls:
    columns = {name: run[f"loads/{name}"] for name in _Calls._fields if name not in ("nbytes", "category", "names")}
    category = np.array(run.names("categories"))[run["loads/category"]]
    return _Calls(**columns, nbytes=run["loads/bytes"], category=category, names=run["operations/names"])


def _within(first: Array, last: Array, window: tuple[float, float]) -> Array:
    """Share of each span that lies in a window."""
    a, b = first * 1e-12, np.maximum(last, first + 1) * 1e-12
    return np.clip((np.minimum(b, window[1]) - np.maximum(a, window[0])) / (b - a), 0.0, 1.0)


def _told(calls: _Calls, rows: Array, share: Array, top: int) -> list[dict[str, Any]]:
    """Kinds of call that differ in the microbatch only are one, and so are all buckets, unless they are one alone."""
    nbytes = calls.nbytes[rows] * share
    rows, nbytes = rows[nbytes > 0], nbytes[nbytes > 0]
    kind, of = np.unique(np.stack([calls.name[rows], calls.stage[rows]]), axis=1, return_inverse=True)
    total = np.bincount(of.ravel(), weights=nbytes, minlength=kind.shape[1])
    told = []
    for k in np.argsort(-total, kind="stable")[:top]:
        mine = rows[of.ravel() == k]
        said: dict[str, Any] = {"call": str(calls.names[kind[0, k]]), "category": str(calls.category[mine[0]]), "stage": int(kind[1, k])}
        batches, parts = np.unique(calls.microbatch[mine]), np.unique(calls.part[mine])
        if batches[0] >= 0:
            said["microbatch"] = _range(batches)
        elif len(np.unique(calls.part[(calls.name == kind[0, k]) & (calls.stage == kind[1, k])])) > 1:
            said["bucket"] = _range(parts)
        said |= {"from_s": float(calls.first[mine].min() * 1e-12), "to_s": float(calls.last[mine].max() * 1e-12)}
        told.append(said | {"share": float(total[k] / nbytes.sum())})
    return [one for one in told if one["share"] >= LEAST]


def _range(numbers: Array) -> str:
    """`3`, `0-95`, or `0-6, ...` where some are left out."""
    first, last = int(numbers[0]), int(numbers[-1])
    return str(first) if first == last else f"{first}-{last}" + ("" if len(numbers) == last - first + 1 else f" ({len(numbers)})")


class _Flows(NamedTuple):
    link: Array  # sorted
    flow: Array
    start: Array
    end: Array
    nbytes: Array
    src: Array
    dst: Array


def _flows(run: RunFile) -> _Flows:
    link, path = run["paths/link"], run["paths/path"]
    order = np.argsort(link, kind="stable")
    end = np.where(run["flows/end"] > 0, run["flows/end"], run.end_ps)
    return _Flows(link[order], path[order], run["flows/start"], end, run["flows/bytes"], run["flows/src"], run["flows/dst"])


def _told_flows(flows: _Flows, link: int, window: tuple[float, float], top: int) -> list[dict[str, Any]]:
    mine = np.unique(flows.flow[slice(*np.searchsorted(flows.link, [link, link + 1]))])
    nbytes = flows.nbytes[mine] * _within(flows.start[mine], flows.end[mine], window)
    if nbytes.sum() <= 0:
        return []
    order = np.argsort(-nbytes, kind="stable")[:top]
    return [
        {
            "call": f"flow {int(mine[i])} (nic {int(flows.src[mine[i]])} to {int(flows.dst[mine[i]])})",
            "of": int((nbytes > 0).sum()),
            "from_s": float(flows.start[mine[i]] * 1e-12),
            "to_s": float(flows.end[mine[i]] * 1e-12),
            "share": float(nbytes[i] / nbytes.sum()),
        }
        for i in order
    ]


def worded(one: dict[str, Any]) -> str:
    """`dp.reduce_scatter.dense_grads, stage 3, bucket 2`; `flow 17 (nic 3 to 0) of 8`."""
    said = [str(one["call"]) + (f" of {one['of']}" if one.get("of", 1) > 1 else "")]
    said += [f"{name} {one[name]}" for name in ("stage", "microbatch", "bucket") if name in one]
    return ", ".join(said)
