"""`netsim topo FILE`: what a fabric amounts to."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from netsim.config import load, load_section
from netsim.config.source import read
from netsim.config.topology import Fabric
from netsim.units import format_rate, format_time

if TYPE_CHECKING:
    from topologies.measure import Report

HELP = "print switches and ports per tier, bisection bandwidth, oversubscription and planes of a fabric"
ACROSS = {"leaf": "same leaf", "spine": "across a spine", "core": "across a core"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("file", metavar="FILE", help="topology file (YAML), the name of a ready one such as dgx_h100, or a run file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="a.b=value", dest="settings", help="override one field of the topology"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON document in the last line")


def run(args: argparse.Namespace) -> int:
    """Build the fabric and print its figures."""
    from topologies import build, routes
    from topologies.measure import measure

    fabric = fabric_of(args.file, args.settings)
    topology = build(fabric)
    report = measure(topology, fabric, routes(topology, fabric))
    print(render(report))
    if args.json:
        print(json.dumps(report.as_dict()))
    return 0


def fabric_of(file: str, settings: list[str]) -> Fabric:
    """Return the fabric of a topology file, or of the `topology` section of a run file; settings name fields of the topology in both."""
    data = read(file).data if Path(file).is_file() else None
    if isinstance(data, dict) and {"topology", "workload"} & data.keys():
        return load(file, [f"topology.{s.removeprefix('topology.')}" for s in settings]).topology
    return load_section(file, Fabric, [s.removeprefix("topology.") for s in settings])


def render(report: "Report") -> str:
    """Return the figures as text."""
    rows = [("tier", "switches", "radix", "ports used", "free", "down", "up", "oversubscription")]
    for t in report.tiers:
        ratio = "-" if t.oversubscription is None else f"{t.oversubscription:g} : 1"
        rows.append(
            (t.tier, f"{t.switches:,}", f"{t.radix}", f"{t.ports_used:,}", f"{t.ports_free:,}",
             format_rate(t.down_bytes_per_s), format_rate(t.up_bytes_per_s) if t.up_bytes_per_s else "-", ratio)
        )  # fmt: skip
    share = report.bisection_bytes_per_s / report.full_bisection_bytes_per_s if report.full_bisection_bytes_per_s else 0.0
    planes = f"{report.planes}" + (
        f" ({report.switch_planes} of switches, joined by NICs)" if report.switch_planes != report.planes else ""
    )
    facts = [
        ("builder", report.builder),
        ("hosts", f"{report.nodes:,} nodes, {report.gpus:,} GPUs, {report.nics:,} NICs with {report.nic_ports // report.nics} port(s)"),
        ("cables", ", ".join(f"{count:,} {name}" for name, count in report.cables.items())),
        ("planes", planes),
        ("injection", f"{format_rate(report.injection_bytes_per_s)} from all NICs"),
        (
            "bisection",
            f"{format_rate(report.bisection_bytes_per_s)} from one half of the nodes to the other, {share:.1%} of what the half can send",
        ),
        ("diameter", f"{report.diameter_links} links"),
        *((ACROSS[p.across], f"{p.links} links, {format_time(p.latency_ps)} without transmission") for p in report.paths),
    ]
    if report.between_bytes_per_s:
        each = report.gpus // report.nodes // report.islands
        joined = f"{format_rate(report.between_bytes_per_s)} from one to another"
        facts.insert(2, ("islands", f"{report.islands} of {each} GPUs in a node, {joined}"))
    if report.failed_links or report.slow_links:
        facts.append(("faults", f"{report.failed_links} links dead, {report.slow_links} slow (each direction counts)"))
    if report.unreachable_nic_pairs:
        where = " (planes meet in the nodes only)" if report.planes > 1 else ""
        facts.append(
            ("no way", f"between {report.unreachable_nic_pairs:,} of {report.nics * (report.nics - 1):,} ordered pairs of NICs{where}")
        )
    width = max(len(name) for name, _ in facts)
    return "\n".join([_table(rows), "", *(f"{name:{width}}  {text}" for name, text in facts)])


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))) for row in rows
    )
