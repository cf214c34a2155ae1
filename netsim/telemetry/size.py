"""How large a result file can become, before the run: what `check` says."""

from collections.abc import Iterable
from typing import NamedTuple

from netsim.telemetry.channels import CHANNELS, chosen

LARGEST = 1 << 26
"""Values of the series of bytes at most: beyond, intervals are doubled."""
WIDTH = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "float32": 4, "float64": 8, "str": 24}


class Size(NamedTuple):
    """Bytes before compression, which takes them to a fifth or less; runs that are symmetric share rows of the series and need far less."""

    links: int
    series: int
    operations: int
    interval: int  # ps, after doubling

    @property
    def total(self) -> int:
        """All of it."""
        return self.links + self.series + self.operations


def at_most(choices: Iterable[str], links: int, operations: int, end_ps: int, interval: int, packets: bool) -> Size:
    """Upper bound for a run of `end_ps` with so many links and recorded operations."""
    wanted = chosen(choices)
    width = {axis: _width(axis, wanted) for axis in ("link", "operation", "flow")}
    while links * -(-end_ps // interval) > LARGEST:
        interval *= 2
    counted = [c for c in CHANNELS if c.axes == ("series", "interval") and c.choice in wanted and (packets or c.path == "series/bytes")]
    values = links * -(-end_ps // interval)
    rows = operations * (width["operation"] + width["flow"])
    return Size(links * width["link"], values * sum(WIDTH[c.dtype] for c in counted), rows, interval)


def _width(axis: str, wanted: frozenset[str]) -> int:
    return sum(WIDTH[c.dtype] * (10 if len(c.axes) > 1 else 1) for c in CHANNELS if c.axes[0] == axis and c.choice in ("", *wanted))
