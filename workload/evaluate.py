"""Peak memory against published measurements: `python -m workload.evaluate --data FILE [--out docs/memory.md]`.

Reads rows in the schema of single-node steps and memory (model, gpu, tp, pp, ..., other, measured_peak_mem_gib) and predicts the largest
allocation over the stages with no parameter fitted to them. What the columns do not say comes from the row's notes: truncated layers,
cross entropy, capacity factor.
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
from workload.memory import Memory, memory_of
from workload.programs import play_all
from workload.shape import Shape
from workload.tape import Tables

CARDS = {"llama3-70b": "llama3_70b", "llama3-8b": "llama3_8b", "deepseekv2": "deepseek_v2", "deepseekv3": "deepseek_v3"}
GIB = 2**30


class Row(NamedTuple):
    """One measurement and its prediction, bytes."""

    name: str
    gpu: str
    measured: float
    predicted: int
    where: str
    memory: list[Memory]

    @property
    def error(self) -> float:
        """Relative error."""
        return self.predicted / self.measured - 1


def training_of(row: dict[str, str]) -> Training:
    """Return the run that a row describes."""
    notes = row["other"]
    number = re.search(r"layers=(\d+)", notes)
    model = load_model(CARDS[row["model"]], mtp_layers=0, **({"layers": int(number[1])} if number else {}))
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
        kernels=Kernels(cross_entropy="te" if "fused CE" in notes else "unfused"),
    )


def rows(data: Path) -> Iterator[Row]:
    """Predict every row that has a measured peak."""
    from workload.layout import layout_of

    with data.open(newline="") as file:
        for row in csv.DictReader(file):
            if not row["measured_peak_mem_gib"] or row["model"] not in CARDS:
                continue
            training = training_of(row)
            s = Shape(training, layout_of(training, int(row["world_size"])))
            tables = Tables()
            stages, programs = play_all(s, tables)
            names = [name for name, _ in tables.segments]
            memory = [memory_of(s, stage, program, names) for stage, program in zip(stages, programs, strict=True)]
            peak = max(memory, key=lambda m: m.peak)
            layout = " ".join(f"{k}{row[k]}" for k in ("tp", "pp", "cp", "ep", "dp") if row[k] not in ("", "1"))
            name = f"{row['model']} {layout or 'dp1'} s{row['seq_len']} m{s.lay.microbatches}"
            yield Row(name, row["gpu"].split(" ")[0], float(row["measured_peak_mem_gib"]) * GIB, peak.peak, peak.peak_where, memory)


def table(found: list[Row]) -> str:
    """Return the Markdown page."""
    errors = [abs(r.error) for r in found]
    lines = [
        "# Peak memory against measurements",
        "",
        "Written by `python -m workload.evaluate`. Predicted is the largest allocation over the pipeline stages, from the memory timeline",
        "of the programs; nothing is fitted to these rows. Measured is PyTorch's `max_memory_allocated` (published B200 and A100",
        "runs of SimuMax; the A100 rows are derived from published errors, and one of them contradicts its own siblings).",
        "",
        f"{len(found)} rows, mean absolute error {statistics.mean(errors):.2%}, largest {max(errors):.2%}.",
        "",
        "| run | GPU | measured GiB | predicted GiB | error | peak in |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    lines += [f"| {r.name} | {r.gpu} | {r.measured / GIB:.2f} | {r.predicted / GIB:.2f} | {r.error:+.2%} | {r.where} |" for r in found]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Peak memory against published measurements.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    text = table(list(rows(args.data)))
    if args.out:
        args.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
