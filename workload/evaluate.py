"""Peak memory against published measurements: `python -m workload.evaluate --data FILE [--out docs/memory.md]`.

Reads rows in the schema of single-node steps and memory (model, gpu, tp, pp, ..., other, measured_peak_mem_gib) and predicts the largest
allocation over the stages with no parameter fitted to them. What the columns do not say comes from the row's notes: truncated layers,
cross entropy, capacity factor. Whether TransformerEngine kept dummy weight gradients follows from its version (2.3 and later); rows that
do not name one are predicted with them. A series of one campaign (model, GPU, microbatches) that would be nearer without is named on the
page; no prediction is chosen by what was measured.
"""

import argparse
import csv
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from netsim.config.workload import Experts, Kernels, Parallel, Training
from workload.cards import load_model
from workload.memory import Memory, gradient_bytes, memory_of
from workload.programs import play_all
from workload.shape import Shape
from workload.tape import Tables

CARDS = {
    "llama3-8b": "llama3_8b",
    "llama3-70b": "llama3_70b",
    "llama3-405b": "llama3_405b",
    "deepseekv2": "deepseek_v2",
    "deepseekv3": "deepseek_v3",
}
GIB = 2**30


class Row(NamedTuple):
    """One measurement and its prediction, bytes."""

    name: str
    gpu: str
    measured: float
    predicted: int
    dummies: int
    where: str
    memory: list[Memory]
    series: str

    @property
    def error(self) -> float:
        """Relative error."""
        return self.predicted / self.measured - 1


def training_of(row: dict[str, str], cached: bool = True) -> Training:
    """Return the run that a row describes; `cached`: TransformerEngine keeps dummy weight gradients."""
    notes = row["other"]
    shorter = {name: int(number) for name, number in re.findall(r"\b(layers|dense_layers)=(\d+)", notes)}
    model = load_model(CARDS[row["model"]], mtp_layers=0, **shorter)
    size = {k: int(row[k] or 1) for k in ("tp", "pp", "vpp", "cp", "ep", "etp")}
    balanced = "capacity factor 1" in notes
    return Training(
        "training",
        model,
        int(row["seq_len"]),
        int(row["gbs"]),
        int(row["mbs"]),
        Parallel(**size, cp_comm_type="a2a" if "CP=a2a" in notes else "p2p"),  # type: ignore[arg-type]
        experts=Experts(dispatcher="alltoall", capacity_factor=1.0 if balanced else None, pad_to_capacity=balanced),
        kernels=Kernels(cross_entropy="te" if "fused CE" in notes else "unfused", wgrad_cache=cached),
    )


def rows(data: Path) -> list[Row]:
    """Predict every row that has a measured peak."""
    with data.open(newline="") as file:
        given = [row for row in csv.DictReader(file) if row["measured_peak_mem_gib"] and row["model"] in CARDS]
    return [_predicted(row, _version(row) >= (2, 3)) for row in given]


def _version(row: dict[str, str]) -> tuple[int, ...]:
    """TransformerEngine's version, the newest where a row does not say."""
    found = re.search(r"\bTE (\d+)\.(\d+)", row["other"])
    return (int(found[1]), int(found[2])) if found else (99, 0)


def _predicted(row: dict[str, str], cached: bool) -> Row:
    from workload.layout import layout_of

    training = training_of(row, cached)
    s = Shape(training, layout_of(training, int(row["world_size"])))
    tables = Tables()
    stages, programs = play_all(s, tables)
    names = [name for name, _ in tables.segments]
    memory = [memory_of(s, stage, program, names) for stage, program in zip(stages, programs, strict=True)]
    at = max(range(len(memory)), key=lambda i: memory[i].peak)
    peak, dummies = memory[at], sum(gradient_bytes(s, stages[at]))
    layout = " ".join(f"{k}{row[k]}" for k in ("tp", "pp", "cp", "ep", "dp") if row[k] not in ("", "1"))
    name = f"{row['model']} {layout or 'dp1'} s{row['seq_len']} m{s.lay.microbatches}"
    gpu = row["gpu"].split(" ")[0]
    series = f"{row['model']} on {gpu}, {s.lay.microbatches} microbatches"
    return Row(name, gpu, float(row["measured_peak_mem_gib"]) * GIB, peak.peak, dummies if cached else 0, peak.peak_where, memory, series)


def table(found: list[Row]) -> str:
    """Return the Markdown page."""
    errors = [abs(r.error) for r in found]
    lines = [
        "# Peak memory against measurements",
        "",
        "Written by `python -m workload.evaluate`. Predicted is the largest allocation over the pipeline stages, from the memory timeline",
        "of the programs; nothing is fitted to these rows. Measured is PyTorch's `max_memory_allocated` (published B200 and A100 runs",
        "of SimuMax; the A100 rows are derived from published errors).",
        "",
        f"{len(found)} rows, mean absolute error {statistics.mean(errors):.2%}, largest {max(errors):.2%}.",
        "",
        *_nearer_without(found),
        "| run | GPU | measured GiB | predicted GiB | error | peak in |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for r in found:
        figures = f"{r.measured / GIB:.2f} | {r.predicted / GIB:.2f} | {r.error:+.2%}"
        lines.append(f"| {r.name} | {r.gpu} | {figures} | {r.where} |")
    return "\n".join(lines) + "\n"


def _nearer_without(found: list[Row]) -> Iterator[str]:
    """Say which series seem to have been measured without dummy weight gradients, and what each of its rows would then show."""
    for series in dict.fromkeys(r.series for r in found):
        few = [r for r in found if r.series == series]
        without = [(r.predicted - r.dummies) / r.measured - 1 for r in few]
        if sum(abs(r.error) for r in few) > sum(abs(error) for error in without):
            yield "TransformerEngine keeps one dummy weight gradient per shape from version 2.3 on, and rows that do not name a version are"
            least, most = min(without), max(without)
            yield f"predicted so. {series}: its {len(few)} rows would be nearer without (errors {least:+.2%} to {most:+.2%});"
            yield "their siblings with more microbatches hold more by about these tensors."
            yield ""


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Peak memory against published measurements.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    text = table(rows(args.data))
    if args.out:
        args.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
