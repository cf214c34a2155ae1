"""Section `telemetry` of a run file: what is recorded, how often, and where it is written."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from netsim.config.fields import Index, Time

Choice = Literal["all", "series", "loads", "queue", "ecn", "pause", "drops", "reordered", "operations", "flows", "memory"]
"""Groups of channels that can be left out; `netsim.telemetry.channels` says what is in each."""


@dataclass(frozen=True)
class Telemetry:
    """What is recorded.

    interval: time between two samples of the links.
    channels: groups of channels. series: bytes of every link over time. loads: which calls loaded which links. queue, ecn, pause, drops,
        reordered: what the packet engine counts at every link over time. operations: start and end of everything that recorded GPUs do.
        flows: start, end, bytes and path of their calls, or of plain flows. memory: what they allocate. all: every one that the engine
        provides. Totals of links and GPUs are always recorded.
    operations: ranks whose operations are recorded in full; representative takes one rank per pipeline stage.
    iterations: of which iterations operations and flows are recorded: the last (of a run that is stopped, the latest), all, or those
        listed, from 0.
    directory: folder in which the folder of a run is made where the command line names none.
    """

    interval: Time = 100_000_000
    channels: tuple[Choice, ...] = ("all",)
    operations: Literal["representative", "all"] | tuple[Index, ...] = "representative"
    iterations: Literal["last", "all"] | tuple[Index, ...] = "last"
    directory: str = "results"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) for what single fields cannot say."""
        if self.interval == 0:
            yield "interval", "expected a time above 0; got 0"
        if "\0" in self.directory:
            yield "directory", f"expected the path of a folder; got {self.directory!r}"
        if len(set(self.channels)) < len(self.channels):
            yield "channels", f"expected every channel once; got {', '.join(self.channels)}"
        elif "all" in self.channels and len(self.channels) > 1:
            yield "channels", f"expected 'all' alone or names without it; got {', '.join(self.channels)}"
