"""Field types of run files: numbers with units and with bounds, checked by pydantic while a file is loaded.

A section of the configuration is a frozen dataclass whose fields carry these types; type checkers see plain numbers. A type with a unit
also carries a `Unit`: the words for it in an error, and the writer that turns a value back into text which parses to the same value.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field

from netsim import units

LARGEST = 2**62
"""Times (ps) and sizes (bytes) stay below this, so that sums of two of them fit int64."""


@dataclass(frozen=True)
class Unit:
    """What a quantity is called, and how it is written down: `write(value)` parses to `value` again."""

    phrase: str
    write: Callable[[float], object]


def _below_limit(parse: Callable[[object], float], phrase: str) -> Callable[[object], float]:
    """Wrap a parser of `netsim.units` so that what overflows inside is refused as well."""

    def checked(text: object) -> float:
        try:
            value = parse(text)
        except OverflowError:
            value = math.inf
        if not value < (LARGEST if isinstance(value, int) else 1e30):
            raise ValueError(f"expected {phrase} that fits 63 bits inside")
        return value

    return checked


def _exact(value: float, scales: Mapping[str, float], parse: Callable[[object], float], last: object) -> object:
    """Return the first text `N unit` of at most 12 digits that parses to `value`, or `last`."""
    for unit, factor in scales.items():
        text = f"{value / factor:.12g} {unit}"
        if abs(value) >= factor and "e" not in text and parse(text) == value:
            return text
    return last


def write_time(t_ps: float) -> object:
    """`2_000_000` -> `'2 us'`."""
    return _exact(t_ps, {u: units.PS[u] for u in ("s", "ms", "us", "ns")}, units.parse_time, f"{t_ps} ps")


def write_size(nbytes: float) -> object:
    """`16_777_216` -> `'16 MiB'`."""
    whole = {u: units.BYTES[u] for u in ("TiB", "GiB", "MiB", "KiB", "TB", "GB", "MB", "kB") if nbytes % units.BYTES[u] == 0}
    return _exact(nbytes, whole, units.parse_size, nbytes)


def write_rate(rate: float) -> object:
    """`5e10` -> `'400 Gbps'`."""
    scales = {u: units.RATES[u] for u in ("Tbps", "Gbps", "Mbps", "GB/s")}
    return _exact(rate, scales, units.parse_rate, f"{rate!r} B/s" if rate else "0 bps")


def write_flops(rate: float) -> object:
    """`9.89e14` -> `'989 TFLOPS'`."""
    return _exact(rate, {u: units.FLOPS[u] for u in ("TFLOPS", "GFLOPS")}, units.parse_flops, f"{rate!r} FLOPS")


_TIME, _SIZE = "a time such as '2 us'", "a size such as '16 MiB'"
_RATE, _FLOPS = "a rate such as '400 Gbps'", "a compute rate such as '989 TFLOPS'"

Time = Annotated[int, BeforeValidator(_below_limit(units.parse_time, "a time")), Unit(_TIME, write_time)]
"""Picoseconds; written `2 us`."""
Size = Annotated[int, BeforeValidator(_below_limit(units.parse_size, "a size")), Unit(_SIZE, write_size)]
"""Bytes; written `16 MiB`."""
Rate = Annotated[float, BeforeValidator(_below_limit(units.parse_rate, "a rate")), Unit(_RATE, write_rate)]
"""Bytes per second; written `400 Gbps` or `450 GB/s`."""
Flops = Annotated[float, BeforeValidator(_below_limit(units.parse_flops, "a compute rate")), Unit(_FLOPS, write_flops)]
"""FLOP per second; written `989 TFLOPS`."""
Count = Annotated[int, Field(ge=1, le=LARGEST, strict=True)]
"""A whole number of at least 1."""
Index = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
"""A whole number of at least 0."""
Share = Annotated[float, Field(ge=0, le=1)]
"""A number between 0 and 1."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A number above 0."""
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""A number of at least 0."""
Sigma = Annotated[float, Field(ge=0, le=10)]
"""A relative standard deviation, or the one of a logarithm: beyond 10 nothing is left to compute with."""


def can_name_a_folder(name: str) -> bool:
    """Whether results can lie in a folder of that name; 200 bytes leave room for what is appended to it."""
    return name.isprintable() and "/" not in name and not name.startswith(".") and 0 < len(name.encode(errors="replace")) <= 200
