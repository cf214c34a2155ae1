"""Kernel tables: measured times in CSV, one row per kernel, and the ratios that stand in for what nobody measured.

A table has the fields of `Kernel` (empty where they do not apply), then `time_us`, `fused` ('quantise' where the time holds the
quantisation of the activations too), `library` (the implementation, where it matters) and `source`, a key of sources.csv or free text.
"""

import csv
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from compute.kernels import DTYPE_BYTES, GEMM_KINDS, Kernel
from netsim.errors import InputError, did_you_mean
from netsim.files import placed

FOLDER = Path(__file__).parent / "tables"
COLUMNS = (*Kernel._fields, "time_us", "fused", "library", "source")
TEXT = ("kind", "direction", "dtype")


class Row(NamedTuple):
    """One measurement."""

    kernel: Kernel
    time_us: float
    fused: str = ""
    library: str = ""
    source: str = ""


class Ratio(NamedTuple):
    """A named stand-in: `value` multiplies the time, `sigma` is its relative spread over `rows` comparisons."""

    value: float
    sigma: float
    rows: int
    source: str


def find(name: str) -> Path:
    """Path of a table: as given, else the shipped one of that name."""
    for path in (Path(name), FOLDER / name):
        if path.is_file():
            return path
    known = [p.name for p in FOLDER.glob("*.csv")]
    raise InputError(f"compute.device.tables: expected a file that exists; got '{name}'{did_you_mean(name, known)}")


def read(name: str) -> list[Row]:
    """Rows of a table; `InputError` names file and line of every row that cannot be read."""
    path, rows, wrong = find(name), [], []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        lines = csv.DictReader(file)
        missing = [c for c in COLUMNS[:-3] if c not in (lines.fieldnames or ())]
        if missing:
            raise InputError(f"{path}:1: expected a kernel table with columns {', '.join(COLUMNS)}; got none named {', '.join(missing)}")
        for entry in lines:
            try:
                rows.append(_row(entry))
            except (ValueError, TypeError) as error:
                wrong.append(f"{path}:{lines.line_num}: expected a kernel and a time above 0; got {error}")
    if wrong:
        raise InputError(wrong)
    return rows


def _row(entry: dict[str, str]) -> Row:
    fields: dict[str, Any] = {name: _value(name, entry[name]) for name in Kernel._fields if entry[name] != ""}
    kernel = Kernel(**fields)
    directions = ("fwd", "dgrad", "wgrad") if kernel.kind in GEMM_KINDS else ("fwd", "bwd")
    for name, known in (("direction", directions), ("dtype", tuple(DTYPE_BYTES))):
        if entry[name] not in ("", *known):
            raise ValueError(f"{name} '{entry[name]}', not one of {', '.join(known)}")
    try:
        time_us = float(entry["time_us"])
    except ValueError:
        time_us = 0.0
    if not 0 < time_us < float("inf"):
        raise ValueError(f"time_us '{entry['time_us']}'")
    return Row(kernel, time_us, entry.get("fused") or "", entry.get("library") or "", entry.get("source") or "")


def _value(name: str, text: str) -> str | int | bool:
    if name in TEXT:
        return text
    if not text.isdigit():
        raise ValueError(f"{name} '{text}'")
    return text == "1" if name in ("causal", "accumulate") else int(text)


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as a table, in their order; defaults of `Kernel` are left empty. The file is there whole or not at all."""
    with placed(path, f".{os.getpid()}") as part, part.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for row in rows:
            defaults = Kernel(row.kernel.kind)
            cells = [
                "" if v == d and n not in TEXT else int(v) if isinstance(v, bool) else v
                for n, v, d in zip(Kernel._fields, row.kernel, defaults, strict=True)
            ]
            out.writerow([*cells, f"{row.time_us:.6g}", row.fused, row.library, row.source])


def sources() -> dict[str, str]:
    """Where rows come from, by key."""
    with (FOLDER / "sources.csv").open(newline="") as file:
        return {entry["key"]: entry["source"] for entry in csv.DictReader(file)}


def read_ratios(name: str = "ratios.csv") -> dict[tuple[str, str], Ratio]:
    """Ratios by (name, scope); the scope is an architecture, a device or '*'."""
    with (FOLDER / name).open(newline="") as file:
        return {
            (r["name"], r["scope"]): Ratio(float(r["value"]), float(r["sigma"]), int(r["rows"]), r["source"]) for r in csv.DictReader(file)
        }
