"""Collects the edges of a plan row by row, as arrays, and closes them into a `Plan`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from netsim.kernels import messages
from netsim.kernels.structs import Plan

Column = np.ndarray | int | Sequence[int]
COLUMNS = ("src", "dst", "nic_src", "nic_dst", "qp", "weight", "nbytes", "msgs", "msg_bytes", "window", "bundle")


class Stream(NamedTuple):
    """What a connection carries: bytes on the wire, how many messages, the bytes of a full one, and how many may be in flight."""

    nbytes: int
    msgs: int
    msg_bytes: int
    window: int


def stream(nbytes: int, msgs: int, window: int, msg_bytes: int = 0) -> Stream:
    """Cut `nbytes` into about `msgs` messages, of `msg_bytes` where given, so that none is empty."""
    nbytes = max(1, nbytes)
    size = msg_bytes if msg_bytes else -(-nbytes // max(1, msgs))
    return Stream(nbytes, max(1, -(-nbytes // size)), size, window)


@dataclass
class Edges:
    """Rows under construction; `add` returns the numbers of the new rows, to name them in `depend`."""

    count: int = 0
    columns: dict[str, list[np.ndarray]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    rows: list[np.ndarray] = field(default_factory=list)
    on: list[np.ndarray] = field(default_factory=list)
    lag: list[np.ndarray] = field(default_factory=list)

    def add(
        self,
        src: Column,
        dst: Column,
        what: Stream,
        bundle: Column,
        weight: Column = 1,
        nic_src: Column = -1,
        nic_dst: Column = -1,
        qp: Column = 0,
    ) -> np.ndarray:
        """Append one edge per entry of `src`; scalars stand for all of them."""
        src = np.atleast_1d(np.asarray(src, np.int64))
        values = (src, dst, nic_src, nic_dst, qp, weight, what.nbytes, what.msgs, what.msg_bytes, what.window, bundle)
        for name, value in zip(COLUMNS, values, strict=True):
            self.columns[name].append(np.broadcast_to(np.asarray(value, np.int64), src.shape))
        self.count += len(src)
        return np.arange(self.count - len(src), self.count)

    def depend(self, rows: np.ndarray, on: np.ndarray, lag: int) -> None:
        """Let message j of `rows[i]` wait for message j - lag of `on[i]`."""
        self.rows.append(rows)
        self.on.append(on)
        self.lag.append(np.full(len(rows), lag))

    def table(self) -> dict[str, np.ndarray]:
        """All columns, concatenated."""
        return {name: np.concatenate(parts) if parts else np.zeros(0, np.int64) for name, parts in self.columns.items()}

    def pack_bundles(self) -> None:
        """Number the bundles that have edges 0, 1, ..."""
        if self.count:
            bundle = np.concatenate(self.columns["bundle"])
            number = np.cumsum(np.bincount(bundle) > 0) - 1
            self.columns["bundle"] = [number[bundle]]

    def dependencies(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """CSR of what each edge waits for: int64 ptr, edge, lag."""
        rows, on, lag = (np.concatenate(part) if part else np.zeros(0, np.int64) for part in (self.rows, self.on, self.lag))
        order = np.argsort(rows, kind="stable")
        return np.r_[0, np.cumsum(np.bincount(rows, minlength=self.count))], on[order], lag[order]

    def alike(self, delay_ps: np.ndarray) -> np.ndarray:
        """Number edges so that those that do the same at the same moments have the same number."""
        t = self.table()
        return messages.alike((t["msgs"], t["nbytes"], t["window"], delay_ps), *self.dependencies())

    def close(
        self, algorithm: str, protocol: str, channels: int, launch_ps: int, pace: np.ndarray, burst: np.ndarray, delay_ps: np.ndarray,
        rest_ps: np.ndarray,
    ) -> Plan:  # fmt: skip
        """Build the plan but for its caps and fill; `pace` and `burst` in bytes/s."""
        t = self.table()
        ptr, on, lag = self.dependencies()
        i32 = {name: t[name].astype(np.int32) for name in ("src", "dst", "nic_src", "nic_dst", "qp", "weight", "msgs", "window", "bundle")}
        return Plan(
            algorithm=algorithm, protocol=protocol, channels=channels, launch_ps=launch_ps, fill_ps=0,
            edge_src=i32["src"], edge_dst=i32["dst"], edge_nic_src=i32["nic_src"], edge_nic_dst=i32["nic_dst"], edge_qp=i32["qp"],
            edge_weight=i32["weight"], edge_bytes=t["nbytes"], edge_msgs=i32["msgs"], edge_msg_bytes=t["msg_bytes"],
            edge_window=i32["window"], edge_bundle=i32["bundle"], dep_ptr=ptr.astype(np.int32),
            dep_idx=on.astype(np.int32), dep_lag=lag.astype(np.int32),
            bundle_cap=np.zeros(0), edge_delay_ps=np.asarray(delay_ps, np.int64),
            edge_pace=np.asarray(pace, np.float64), edge_burst=np.asarray(burst, np.float64), edge_rest_ps=rest_ps,
        )  # fmt: skip
