"""Section `telemetry` of a run file: what is recorded, how often, and where it is written."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from netsim.config.fields import Index, Time


@dataclass(frozen=True)
class Telemetry:
    """What is recorded.

    interval: time between two samples of the links.
    channels: names from the channel table; 'all' records every one that the engine provides.
    operations: ranks whose operations are recorded in full; representative takes one rank per pipeline stage.
    directory: folder in which the folder of a run is made where the command line names none.
    """

    interval: Time = 100_000_000
    channels: tuple[str, ...] = ("all",)
    operations: Literal["representative", "all"] | tuple[Index, ...] = "representative"
    directory: str = "results"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) for what single fields cannot say."""
        if self.interval == 0:
            yield "interval", "expected a time above 0; got 0"
        if len(set(self.channels)) < len(self.channels):
            yield "channels", f"expected every channel once; got {', '.join(self.channels)}"
