"""Units: what people write in YAML, and what the simulator computes with.

Inside, time is int64 picoseconds, sizes int64 bytes, rates float64 bytes per second. People write `2 us`, `16 MiB`, `400 Gbps`.
Each parser raises `ValueError` with the rule that was broken.
"""

import re

PS_PER_S = 1_000_000_000_000
PS = {"ps": 1, "ns": 10**3, "us": 10**6, "µs": 10**6, "ms": 10**9, "s": 10**12, "min": 60 * 10**12, "h": 3600 * 10**12}
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
BYTES = {p + "B": f for p, f in (_DECIMAL | _BINARY).items()}
RATES = (
    {p + s: f / 8 for p, f in _DECIMAL.items() for s in ("bps", "b/s", "bit/s")}
    | {p + s: float(f) for p, f in (_DECIMAL | _BINARY).items() for s in ("B/s", "Bps")}
)
FLOPS = {p + s: float(f) for p, f in _DECIMAL.items() for s in ("FLOPS", "FLOP/s", "flops", "flop/s")}
_NUMBER = re.compile(r"\s*([-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S.*?)?\s*$")


def _parse(text: object, units: dict[str, float] | dict[str, int], what: str, example: str) -> float:
    match = _NUMBER.match(text) if isinstance(text, str) else None
    if match is None or match.group(2) not in units:
        raise ValueError(f"expected a {what} such as '{example}'")
    value = float(match.group(1)) * units[match.group(2)]
    if value < 0:
        raise ValueError(f"expected a {what} of at least 0")
    return value


def parse_time(text: object) -> int:
    """`'2 us'` -> picoseconds; a bare 0 is allowed."""
    return 0 if text == 0 else round(_parse(text, PS, "time", "2 us"))


def parse_size(text: object) -> int:
    """`'16 MiB'` -> bytes; a whole number is taken as bytes."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    return round(_parse(text, BYTES, "size", "16 MiB"))


def parse_rate(text: object) -> float:
    """`'400 Gbps'` or `'450 GB/s'` -> bytes per second."""
    return _parse(text, RATES, "rate", "400 Gbps")


def parse_flops(text: object) -> float:
    """`'989 TFLOPS'` -> FLOP per second."""
    return _parse(text, FLOPS, "compute rate", "989 TFLOPS")


def format_time(t_ps: float) -> str:
    """`1234567` -> `'1.235 us'`: three to four digits in the unit that fits."""
    for unit, factor in (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if abs(t_ps) >= factor:
            return f"{t_ps / factor:.4g} {unit}"
    return f"{t_ps:.4g} ps"


def format_size(nbytes: float) -> str:
    """`65011712` -> `'62 MiB'`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if abs(nbytes) >= BYTES[unit]:
            return f"{nbytes / BYTES[unit]:.4g} {unit}"
    return f"{nbytes:.4g} B"


def format_rate(rate: float) -> str:
    """`5e10` -> `'400 Gbps'`."""
    bits = rate * 8
    for unit, factor in (("Tbps", 10**12), ("Gbps", 10**9), ("Mbps", 10**6)):
        if abs(bits) >= factor:
            return f"{bits / factor:.4g} {unit}"
    return f"{bits:.4g} bps"
