"""What is collected from each run: every number of its summary under its dotted name, and what follows from its links, flows and price."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from netsim.config import Run
from netsim.study.cost import cost
from netsim.telemetry.read import RunFile, open_run


class Column(NamedTuple):
    """How a metric is written: heading, unit, factor to that unit, format."""

    title: str
    unit: str
    factor: float = 1.0
    form: str = ",.4g"


COLUMNS = {
    "iteration_time_s": Column("iteration time", "s"),
    "tokens_per_s": Column("throughput", "tokens/s", 1, ",.0f"),
    "tflops_per_gpu": Column("per GPU", "TFLOP/s", 1, ".1f"),
    "mfu": Column("MFU", "%", 100, ".1f"),
    "compute_s": Column("compute", "s"),
    "bubble_s": Column("pipeline bubble", "s"),
    "exposed_s": Column("exposed communication", "s"),
    "exposed_share": Column("exposed communication", "%", 100, ".1f"),
    "peak_memory_gib": Column("peak memory", "GiB", 1, ".1f"),
    "network_bytes": Column("bytes over NICs", "TB", 1e-12),
    "nic_utilisation": Column("NIC utilisation, mean", "%", 100, ".2f"),
    "nic_peak": Column("NIC utilisation, busiest interval", "%", 100, ".1f"),
    "spine_utilisation": Column("leaf-spine utilisation, mean", "%", 100, ".2f"),
    "spine_busiest": Column("busiest leaf-spine link", "%", 100, ".2f"),
    "usd": Column("capital", "M$", 1e-6, ".2f"),
    "network_usd": Column("network capital", "M$", 1e-6, ".3f"),
    "kilowatts": Column("power at full load", "kW", 1, ",.0f"),
    "network_kilowatts": Column("network power", "kW", 1, ",.1f"),
    "usd_per_hour": Column("cost", "$/h", 1, ",.2f"),
    "tokens_per_usd": Column("tokens per dollar", "M", 1e-6, ".3f"),
    "flow_time_mean_us": Column("flow time, mean", "us", 1, ",.1f"),
    "flow_time_p99_us": Column("flow time, 99th percentile", "us", 1, ",.1f"),
    "flow_time_max_us": Column("flow time, slowest", "us", 1, ",.1f"),
    "end_s": Column("all done after", "us", 1e6, ",.1f"),
    "pause_ps": Column("paused, sum over links", "ms", 1e-9, ",.2f"),
    "ecn": Column("ECN marks", "", 1, ",.0f"),
    "drops": Column("packets lost", "", 1, ",.0f"),
    "reordered": Column("packets out of order", "", 1, ",.0f"),
    "goodput_gbps": Column("goodput per flow, mean", "Gb/s", 1, ",.1f"),
}
"""Metrics with a heading; others of the summary are written as they are called there."""


def column(name: str) -> Column:
    """How a metric is written."""
    if name.startswith("exposed_s."):
        return Column(f"exposed {name.removeprefix('exposed_s.')}", "s")
    return COLUMNS.get(name) or Column(name, "")


def collect(run: Run, summary: dict[str, Any], folder: Path, prices: dict[str, float]) -> dict[str, float]:
    """All metrics of a finished run, whose result file lies in `folder`."""
    values = dict(_numbers(summary))
    exposed = summary.get("exposed_s")
    if isinstance(exposed, dict):
        values["exposed_s"] = sum(exposed.values())
        values["exposed_share"] = values["exposed_s"] / max(values["iteration_time_s"], 1e-30)
    with open_run(folder) as file:
        values |= _links(file)
        values |= _flows(file)
    bill = cost(run, prices)
    values |= {"usd": bill.usd, "network_usd": bill.network_usd, "usd_per_hour": bill.usd_per_hour}
    values |= {"kilowatts": bill.watts / 1000, "network_kilowatts": bill.network_watts / 1000}
    if "tokens_per_s" in values:
        values["tokens_per_usd"] = 3600 * values["tokens_per_s"] / bill.usd_per_hour
    return values


def _numbers(data: dict[str, Any], above: str = "") -> list[tuple[str, float]]:
    """Numbers of nested mappings under dotted names; what depends on the computer is left out."""
    found: list[tuple[str, float]] = []
    for name, value in data.items():
        if isinstance(value, dict):
            found += _numbers(value, f"{above}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name not in ("wall_s", "telemetry_s", "ranks"):
            found.append((above + name, float(value)))
    return found


def _links(file: RunFile) -> dict[str, float]:
    """Utilisation of NIC and leaf-spine links; failed links count as if they were not there."""
    if "links/bytes" not in file:
        return {}
    tier, rate, moved = file["links/tier"], file["links/rate"], file["links/bytes"]
    elapsed = float(file.attributes["end_ps"]) * 1e-12
    found = {}
    for name, label in (("nic", "nic"), ("spine", "spine")):
        mine = (tier == name) & (rate > 0)
        if mine.any() and elapsed:
            found[f"{label}_utilisation"] = float(moved[mine].sum() / rate[mine].sum() / elapsed)
            found[f"{label}_busiest"] = float((moved[mine] / rate[mine]).max() / elapsed)
    if "series/bytes" in file and "interval_ps" in file.attributes and "nic_busiest" in found:
        rows = file["links/series"]
        mine = (tier == "nic") & (rate > 0) & (rows >= 0)
        most = max((float(file.slice("series/bytes", int(row)).max()) / rate[mine][i] for i, row in _first(rows[mine])), default=0.0)
        found["nic_peak"] = most / (float(file.attributes["interval_ps"]) * 1e-12)
    return found


def _first(rows: np.ndarray) -> list[tuple[int, int]]:
    """(place, row) of every distinct row, at most 256 of them evenly spread."""
    distinct, place = np.unique(rows, return_index=True)
    pairs = list(zip(place.tolist(), distinct.tolist(), strict=True))
    return pairs[:: max(1, len(pairs) // 256)]


def _flows(file: RunFile) -> dict[str, float]:
    """Completion times of plain flows."""
    if "flows/start" not in file:
        return {}
    plain = file["flows/end"] > 0
    if "flows/call" in file:
        plain &= file["flows/call"] < 0
    if not plain.any():
        return {}
    taken = (file["flows/end"] - file["flows/start"])[plain] * 1e-6
    return {
        "flow_time_mean_us": float(taken.mean()),
        "flow_time_p99_us": float(np.percentile(taken, 99)),
        "flow_time_max_us": float(taken.max()),
        "goodput_gbps": float((file["flows/bytes"][plain] * 8e-3 / taken).mean()),
    }
