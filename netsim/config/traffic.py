"""Section `workload` of a run file with `kind: traffic`: plain flows between NICs, without a training job."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from netsim.config.fields import Count, Index, Size, Time


@dataclass(frozen=True)
class Row:
    """One flow of pattern `matrix`: NICs (node-major numbers), bytes and start."""

    src: Index
    dst: Index
    bytes: Size
    start: Time = 0


@dataclass(frozen=True)
class Traffic:
    """Flows between the first `hosts` NICs of the fabric, numbered node by node.

    pattern: permutation (each host to one other, at random), incast (`fan_in` hosts to one), all_to_all (every ordered pair), shift (host i
    to i + `shift`), matrix (`flows`, one by one).
    size: bytes of each flow. hosts: how many take part (left out: all NICs). seed: of the random choice (left out: that of the run).
    target: the receiving host of an incast; its senders are spread evenly over the others.
    start: of the flows; spacing: time between the starts of two flows in order.
    flows: of pattern matrix.
    """

    kind: Literal["traffic"]
    pattern: Literal["permutation", "incast", "all_to_all", "shift", "matrix"]
    size: Size = 2 * 1024**2
    hosts: Count | None = None
    fan_in: Count = 64
    target: Index = 0
    shift: Count | None = None
    seed: Index | None = None
    start: Time = 0
    spacing: Time = 0
    flows: tuple[Row, ...] = ()

    def problems(self) -> Iterator[tuple[str, str]]:
        if (self.pattern == "matrix") != bool(self.flows):
            yield "flows", f"expected flows with pattern matrix and only there; got {len(self.flows)} flows with pattern {self.pattern}"
        for i, row in enumerate(self.flows):
            if row.src == row.dst:
                yield f"flows.{i}.dst", f"expected another host than the source; got {row.dst} for both"
            if row.bytes == 0:
                yield f"flows.{i}.bytes", "expected at least 1 byte; got 0"
        if self.size == 0:
            yield "size", "expected at least 1 byte; got 0"
