"""Single-node training steps: peak memory, and step time over the number of microbatches, its slope and its fixed part apart.

At few microbatches errors of the two cancel: a step of m microbatches takes fixed + m x slope, and a least-squares line through the
measured steps of one layout, and one through the predicted ones, tell them apart.
"""

import dataclasses
import re
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from netsim.validate.others import Item
from netsim.validate.report import percent, table
from netsim.validate.rows import Row
from netsim.validate.run import LIMIT_S, execute

DEVICES = {"B200": "b200_simumax", "A100-PCIe": "a100_pcie"}
NODES = {"b200_simumax": "dgx_b200", "a100_pcie": "a100_pcie"}
SLOPE_AIM = 0.05


class Step(NamedTuple):
    """One measured step and its prediction, milliseconds; the series is everything but the number of microbatches."""

    series: str
    source: str
    microbatches: int
    measured_ms: float
    predicted_ms: float
    measured_gib: float
    predicted_gib: float


def memory(rows: list[Row]) -> tuple[list[Item], str]:
    """Items of steps and of peaks, and the table of slopes."""
    from workload.evaluate import CARDS

    items, steps = [], []
    for row in rows:
        device = next((d for name, d in DEVICES.items() if row["gpu"].startswith(name)), None)
        if row["model"] not in CARDS or device is None:
            items.append(Item(row["model"], row["source"], 0.0, 0.0, "no card for the model or the GPU"))
            continue
        step = _step(row, device)
        if step is None:
            items.append(Item(row["model"], row["source"], 0.0, 0.0, f"not done within {LIMIT_S:g} s"))
        else:
            steps.append(step)
    gpus = dict.fromkeys(s.series.split(":")[0] for s in steps)
    for gpu in gpus:
        mine = [s for s in steps if s.series.startswith(gpu + ":")]
        items += [Item(f"{gpu}: peak memory", s.source, s.measured_gib, s.predicted_gib) for s in mine if s.measured_gib]
        items += [Item(f"{gpu}: step time", s.source, s.measured_ms, s.predicted_ms) for s in mine if s.measured_ms]
    lines, slopes = _series(steps)
    for gpu in gpus:
        items += [
            Item(f"{gpu}: slope over microbatches", name, measured, predicted)
            for name, measured, predicted in slopes
            if name.startswith(gpu + ":")
        ]
    head = ("series", "measured slope ms", "between two steps", "predicted", "error", "measured fixed ms", "predicted", "difference")
    return (
        items,
        f"\nTime per microbatch (slope) and fixed part of single-node steps; aim for every slope: {percent(SLOPE_AIM)}.\n"
        "Slopes between neighbouring steps of a series show how straight the measured lines are.\n\n"
        + table(head, lines)
        + "\n",
    )


def _step(row: Row, device: str) -> Step | None:
    """The row simulated; None where it took too long, as it can on a busy machine that has to compile the kernels first."""
    from workload.evaluate import training_of

    run = _run(row, device, training_of(row.field))
    from netsim.simulate.model import build

    model = build(run)
    summary = execute(run, model)
    if not summary["complete"]:
        return None
    layers = re.search(r"layers=(\d+)", row["other"])
    sizes = " ".join(f"{k}{row[k]}" for k in ("tp", "pp", "vpp", "cp", "ep", "dp") if row[k] not in ("", "1"))
    series = f"{row['gpu'].split(' ')[0]}: {row['model']} {layers[1] if layers else ''} layers {sizes}, {row['seq_len']} tokens"
    size = run.workload
    micro = size.global_batch // size.micro_batch // (int(row["world_size"]) // (size.parallel.tp * size.parallel.pp * size.parallel.cp))
    return Step(
        series, row["source"], micro, row.number("measured_step_ms") or 0.0, summary["iteration_time_s"] * 1e3,
        row.number("measured_peak_mem_gib") or 0.0, summary["peak_memory_gib"],
    )  # fmt: skip


def _run(row: Row, device: str, training: Any) -> Any:
    """The run of a row: one node."""
    from netsim.config.load import from_data

    topology = {"use": NODES[device], "nodes": 1, "segment": 1}
    plain = {"kind": "training", "model": {"use": "llama3_8b"}, "sequence": 1024, "global_batch": 8}
    run = from_data({"name": "row", "topology": topology, "workload": plain, "compute": {"device": {"use": device}}})
    return dataclasses.replace(run, workload=training)


def _series(steps: list[Step]) -> tuple[list[list[str]], list[tuple[str, float, float]]]:
    """Lines of the table, and (series, measured slope, predicted slope) of each series of three or more steps."""
    found: dict[str, list[Step]] = defaultdict(list)
    for step in steps:
        if step.measured_ms:
            found[step.series].append(step)
    lines, slopes = [], []
    for name, unordered in found.items():
        mine = sorted(unordered, key=lambda step: step.microbatches)
        if len(mine) < 3:
            continue
        m = [s.microbatches for s in mine]
        pieces = np.diff([s.measured_ms for s in mine]) / np.diff(m)
        (slope, fixed), (own_slope, own_fixed) = (
            np.polyfit(m, [getattr(s, which) for s in mine], 1) for which in ("measured_ms", "predicted_ms")
        )
        slopes.append((name, float(slope), float(own_slope)))
        lines.append(
            [
                name,
                f"{slope:.1f}",
                f"{pieces.min():.1f} to {pieces.max():.1f}",
                f"{own_slope:.1f}",
                percent(own_slope / slope - 1, True),
                f"{fixed:.0f}",
                f"{own_fixed:.0f}",
                f"{own_fixed - fixed:+.0f}",
            ]
        )
    return lines, slopes
