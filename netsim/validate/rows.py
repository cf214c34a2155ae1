"""Rows of published measurements: read from CSV, filtered by a condition such as `gpu_family=H100 and num_gpus>=512`."""

import csv
import io
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netsim.errors import InputError, did_you_mean

KINDS = {
    "training": ("model", "num_gpus", "step_time_s"),
    "memory": ("model", "world_size", "measured_peak_mem_gib"),
    "collectives": ("table_id", "op", "busbw_GBs"),
    "kernels": ("kernel", "time_us"),
    "network": ("kind", "value"),
}
"""Kind of table -> columns by which it is known."""

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "!=": operator.ne, ">=": operator.ge, "<=": operator.le, "=": operator.eq, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_CLAUSE = re.compile(r"\s*(\w+)\s*(!=|>=|<=|==|=|>|<|~)\s*(.+?)\s*$")


@dataclass(frozen=True)
class Row:
    """One line of a table: its file, its line number, and its fields as written."""

    file: str
    line: int
    field: dict[str, str]

    def __getitem__(self, name: str) -> str:
        """The field, empty where the table has no such column."""
        return (self.field.get(name) or "").strip()

    def count(self, name: str) -> int | None:
        """The field as a whole number, None where it is empty or not one."""
        text = self[name]
        return int(float(text)) if re.fullmatch(r"\d+(\.0*)?", text) else None

    def number(self, name: str) -> float | None:
        """The field as a number, None where it is empty or not one."""
        try:
            return float(self[name])
        except ValueError:
            return None


def files(path: Path, kind: str) -> list[Path]:
    """The CSV files at `path` whose columns are those of `kind`."""
    if not path.exists():
        raise InputError(f"{path}: expected a CSV file or a folder of them; got nothing there")
    found = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    fitting = [file for file in found if kind_of(file) == kind]
    if not fitting:
        wanted = ", ".join(KINDS[kind])
        raise InputError(f"{path}: expected a table of kind {kind} (with columns {wanted}); got none among {len(found)} CSV files")
    return fitting


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{file}: expected text in UTF-8; got other bytes") from None


def kind_of(file: Path) -> str:
    """The kind of table that a file holds, or an empty text."""
    columns = set(next(csv.reader(io.StringIO(_text(file), newline="")), ()))
    return next((kind for kind, wanted in KINDS.items() if columns.issuperset(wanted)), "")


def read(path: Path, kind: str) -> list[Row]:
    """All rows of one kind at `path`, a file or a folder."""
    rows = []
    for file in files(path, kind):
        with io.StringIO(_text(file), newline="") as stream:
            rows += [Row(file.name, number, dict(line)) for number, line in enumerate(csv.DictReader(stream), 2)]
    return rows


def choose(rows: Iterable[Row], condition: str | None) -> list[Row]:
    """The rows that meet a condition: clauses `column OP value` joined by `and` and `or` (`and` binds more); ~ means contains."""
    rows = list(rows)
    if not condition:
        return rows
    columns = list(rows[0].field) if rows else []
    tests = [[_clause(text, columns) for text in re.split(r"\s+and\s+", part)] for part in re.split(r"\s+or\s+", condition.strip())]
    return [row for row in rows if any(all(test(row) for test in part) for part in tests)]


def _clause(text: str, columns: list[str]) -> Callable[[Row], bool]:
    match = _CLAUSE.match(text)
    if not match:
        raise InputError(f"--filter: expected clauses such as 'gpu_family=H100 and num_gpus>=512'; got {text!r}")
    name, sign, wanted = match[1], match[2].replace("==", "="), match[3].strip("'\"")
    if columns and name not in columns:
        raise InputError(f"--filter: expected a column of the table; got '{name}'{did_you_mean(name, columns)}")
    if sign == "~":
        return lambda row: wanted.lower() in row[name].lower()
    compare = OPERATORS[sign]
    try:
        limit = float(wanted)
    except ValueError:
        return lambda row: compare(row[name].lower(), wanted.lower())
    return lambda row: (value := row.number(name)) is not None and compare(value, limit)
