"""`netsim device show|project|measure`: what is known of a GPU, what to expect of one that nobody measured, the one at hand measured."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from netsim.errors import InputError
from netsim.progress import progress
from netsim.units import format_size, format_time

if TYPE_CHECKING:
    from compute.kernels import Kernel
    from netsim.config.workload import Training

HELP = "show a GPU's figures and measurements, project one onto another, or measure the GPU at hand"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their arguments."""
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON document in the last line")
    commands = parser.add_subparsers(dest="action", required=True, metavar="show|project|measure")
    show = commands.add_parser("show", help="figures of a GPU and how well its kernel table predicts itself")
    show.add_argument("device", nargs="?", help="name of a ready card or a YAML file; without it the ready ones are listed")
    project = commands.add_parser("project", help="write card and kernel table of a GPU that nobody measured, from one that was")
    project.add_argument(
        "--from", required=True, metavar="DEVICE", dest="base", help="the measured GPU: name of a ready card or a YAML file"
    )
    project.add_argument(
        "--to", required=True, metavar="FILE", help="card of the new GPU: its peaks, bandwidth and memory are used, its tables are not"
    )
    project.add_argument(
        "--out", metavar="FILE", help="where the projected card goes, its table beside it (default: FILE with .projected.yaml)"
    )
    measure = commands.add_parser(
        "measure",
        help="time the kernels of a run file on this machine's GPU with PyTorch",
        description="Time the kernels of a run file on the first CUDA device with PyTorch (pip install 'netsim-llm[measure]') and write\n"
        "them as a kernel table. An interrupted measurement is kept beside the table; the same command goes on from there.",
    )
    measure.add_argument("file", metavar="RUN", help="run file whose kernels are timed")
    measure.add_argument(
        "--set", action="append", default=[], metavar="a.b.c=value", dest="settings", help="override one field of the run file"
    )
    measure.add_argument("--out", metavar="FILE", default="measured.csv", help="kernel table to write (default: measured.csv)")
    measure.add_argument("--only", metavar="KIND,...", default="", help="kinds of kernels to time, such as gemm,attention (default: all)")
    measure.add_argument("--repeats", type=int, default=20, help="timed runs per kernel, the median counts (default: 20)")
    measure.add_argument(
        "--on", choices=("cuda", "cpu"), default="cuda", help="cpu: try the command without a GPU; the table says so (default: cuda)"
    )
    measure.add_argument("--quiet", action="store_true", help="no progress")
    for sub in (show, project, measure):
        sub.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print the figures as one JSON document in the last line"
        )


def run(args: argparse.Namespace) -> int:
    """Carry out the sub-command."""
    facts = {"show": _show, "project": _project, "measure": _measure}[args.action](args)
    if args.json:
        print(json.dumps(facts))
    return 0


def _show(args: argparse.Namespace) -> dict[str, object]:
    from compute import cards, tables
    from compute.device import build

    if args.device is None:
        print("\n".join(f"{name:14} {cards.card(name).name}" for name in cards.names()))
        return {"devices": cards.names()}
    card = cards.card(args.device)
    device = build(card, [tables.read(name) for name in card.tables])
    facts = {
        "name": card.name,
        "arch": card.arch,
        "sms": card.sms,
        "memory_bytes": card.memory,
        "hbm_bytes_per_s": card.hbm,
        "peak_flops": card.peak,
        "sustained_flops": card.sustained,
        "launch_ps": card.launch,
        "nvlink_bytes_per_s": card.nvlink,
        "tables": list(card.tables),
    }
    print(f"{card.name}: {card.arch}, {card.sms} SMs, memory {format_size(card.memory)} at {card.hbm / 1e12:g} TB/s", end="")
    print(f", NVLink {card.nvlink / 1e9:g} GB/s" if card.nvlink else "")
    print("peak " + ", ".join(f"{dtype} {rate / 1e12:,.0f}" for dtype, rate in card.peak.items()) + " TFLOP/s, dense")
    print(
        "sustained "
        + (", ".join(f"{dtype} {rate / 1e12:,.0f}" for dtype, rate in card.sustained.items()) or "as the tables say")
        + f"; empty kernel {format_time(card.launch)}"
    )
    families = _families(device)
    print(f"\n{'kernels':34} {'rows':>5} {'median error':>13} {'p90':>8}   leave-one-out")
    for family in families:
        print(f"{family['family']:34} {family['rows']:5} {family['median']:13.1%} {family['p90']:8.1%}")
    return {**facts, "families": families}


def _families(device) -> list[dict[str, object]]:  # type: ignore[no-untyped-def]
    import numpy as np

    from compute.lookup import leave_one_out

    error, _, _ = leave_one_out(device)
    found: list[dict[str, object]] = []
    for name, f in {name: f for families in reversed(device.family) for name, f in families.items()}.items():
        part = np.abs(np.expm1(error[device.ptr[f] : device.ptr[f + 1]]))
        found.append({"family": name, "rows": len(part), "median": float(np.median(part)), "p90": float(np.percentile(part, 90))})
    return found


def _project(args: argparse.Namespace) -> dict[str, object]:
    from compute import cards
    from compute.project import project, save

    base, target = cards.card(args.base), cards.card(args.to)
    if not base.tables:
        raise InputError(f"device project: --from: expected a GPU with a kernel table; got '{args.base}', which has none")
    card, rows = project(base, target)
    path = Path(args.out) if args.out else Path(args.to).with_suffix(".projected.yaml")
    try:
        written = save(card, rows, path)
    except OSError as error:
        raise InputError(f"device project: --out: expected a file that can be written; got '{path}' ({error.strerror})") from None
    print(f"{card.name}: {len(rows)} kernels projected from {base.name}, each +-{card.projection_sigma:.0%}")
    print(f"written: {written[0]}, {written[1]}; in a run file: compute: {{device: {{use: {written[0]}}}}}")
    return {"card": str(written[0]), "table": str(written[1]), "rows": len(rows), "sigma": card.projection_sigma}


def _measure(args: argparse.Namespace) -> dict[str, object]:
    from compute.machine import Torch
    from compute.measure import Kept, chosen, measure, reasons

    path = Path(args.out)
    if not path.parent.is_dir() or path.is_dir():
        raise InputError(f"device measure: --out: expected a file in a folder that exists; got '{args.out}'")
    if args.repeats < 1:
        raise InputError(f"device measure: --repeats: expected at least 1; got {args.repeats}")
    training, expected_us = _kernels(args)
    kernels = chosen(expected_us, args.only.split(",") if args.only else [])
    timer = Torch(args.on, training.kernels.cross_entropy)
    kept = Kept(path, timer)
    known = kept.rows()
    if known:
        print(f"{len(known)} kernels were measured before: {kept.part}")
    expected_s = [timer.expected_s(kernel, expected_us[kernel], args.repeats) for kernel in kernels]
    try:
        with progress(args.quiet) as shown:
            result = measure(kernels, timer, args.repeats, known, kept.keep, shown, expected_s)
    except (KeyboardInterrupt, SystemExit):
        if kept.part.is_file():
            print(f"interrupted; measured so far: {kept.part}; the same command goes on from there", file=sys.stderr)
        raise
    if result.left_out:
        print("\n".join(reasons(result.left_out)))
    if not result.rows:
        raise InputError("device measure: expected a kernel that can be timed here; got none, for the reasons above")
    kept.finish(result.rows)
    print(f"written: {path} ({len(result.rows)} kernels on {timer.name}); in a run file: compute: {{device: {{tables: [..., {path}]}}}}")
    return {"table": str(path), "rows": len(result.rows), "left_out": len(result.left_out)}


def _kernels(args: argparse.Namespace) -> "tuple[Training, dict[Kernel, float]]":
    """The training of a run file, and its kernels with the microseconds that each is expected to take."""
    from compute.api import load_device, times
    from netsim.config import load, places
    from netsim.config.workload import Training
    from workload.api import kernels, problems

    run = load(args.file, args.settings)
    if not isinstance(run.workload, Training):
        raise InputError(f"{args.file}: workload.kind: expected training, which has kernels to time; got {run.workload.kind}")
    assert run.compute is not None
    nodes, per_node = run.topology.nodes, run.topology.gpus_per_node
    with places(run):
        if lines := [f"workload.{path}: {sentence}" for path, sentence in problems(run.workload, nodes * per_node, per_node)]:
            raise InputError(lines)
        device = load_device(run.compute)
        found = kernels(run.workload, nodes * per_node, per_node, device)
        return run.workload, dict(zip(found, (times(device, found).t_ps / 1e6).tolist(), strict=True))
