"""`netsim nccl-test OP`: the table of nccl-tests, simulated on a fabric of your choice."""

import argparse
import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from netsim import units
from netsim.cli.run import leave, placeable
from netsim.cli.topo import fabric_of
from netsim.config.nccl import Nccl
from netsim.config.source import Document, Place
from netsim.config.use import override
from netsim.config.validate import validate
from netsim.errors import InputError

if TYPE_CHECKING:
    from netsim.collectives import Communicator, Platform
    from netsim.kernels.structs import Array, Routes, Topology

HELP = "time a collective over a range of sizes on a fabric, as nccl-tests does on a cluster"
OPERATIONS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all",
    "broadcast": "broadcast", "reduce": "reduce", "sendrecv": "ring_shift", "gather": "gather", "scatter": "scatter",
}  # fmt: skip
PER_RANK = ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter")
COLUMNS = ("size", "count", "type", "redop", "time_us", "algbw_GBs", "busbw_GBs", "algorithm", "protocol", "channels")
TYPES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "int8": 1, "uint8": 1}
SUFFIX = {"K": 2**10, "M": 2**20, "G": 2**30}


class Shape(NamedTuple):
    """Groups that look alike: the communicator, and the GPUs of every group."""

    communicator: "Communicator"
    members: "Array"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command; -b -e -f -i -g -d are those of nccl-tests."""
    parser.add_argument("op", metavar="OP", choices=list(OPERATIONS), help=", ".join(OPERATIONS))
    parser.add_argument(
        "--cluster", metavar="FILE", default="dgx_h100", help="topology file, name of a ready one, or a run file (dgx_h100)"
    )
    parser.add_argument("--nodes", type=int, help="nodes that take part, from the first (all)")
    parser.add_argument("-g", "--ngpus", type=int, help="GPUs of each node that take part (all)")
    parser.add_argument("-b", "--minbytes", type=size, default=size("32M"), help="smallest size (32M)")
    parser.add_argument("-e", "--maxbytes", type=size, default=size("32M"), help="largest size (32M)")
    parser.add_argument("-f", "--stepfactor", type=int, help="each size is the one before times this")
    parser.add_argument("-i", "--stepbytes", type=size, default=size("1M"), help="each size is the one before plus this (1M)")
    parser.add_argument("-d", "--datatype", choices=list(TYPES), default="float", help="only sets the count column (float)")
    parser.add_argument(
        "--split", metavar="MODn|DIVn", help="ranks with equal rank %% n (MOD) or rank // n (DIV) are a group; all groups run at once"
    )
    parser.add_argument("--gpu", choices=("ampere", "hopper", "blackwell"), help="GPU generation (by the rate of the scale-up links)")
    parser.add_argument("--engine", choices=("flow", "ideal", "packet"), default="flow", help="what carries the traffic (flow)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="a.b=value", dest="settings",
        help="NCCL_NAME=value, nccl.field=value, network.field=value or a field of the topology",
    )  # fmt: skip
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write the table as CSV too")
    parser.add_argument("--json", action="store_true", help="print the table as one JSON document in the last line")


def size(text: str) -> int:
    """`'8G'` -> bytes, with the binary suffixes of nccl-tests; `'8 GiB'` is read too."""
    plain = text.strip().upper()
    if plain[-1:] in SUFFIX and plain[:-1].isdecimal():
        return int(plain[:-1]) * SUFFIX[plain[-1]]
    return int(plain) if plain.isdecimal() else units.parse_size(text)


def run(args: argparse.Namespace) -> int:
    """Simulate and print the table."""
    from netsim.collectives import platform_of
    from topologies import build, routes

    placeable(args.csv)
    nccl, network, fabric = _sections(args)
    topology = build(fabric)
    way = routes(topology, fabric)
    platform = platform_of(topology, args.gpu or "", fabric, nccl)
    shapes = groups(topology, args.nodes, args.ngpus, args.split)
    rows = list(_rows(args, shapes, platform, nccl, topology, way, network))
    print(render(rows, shapes, args))
    if args.csv:
        table = io.StringIO()
        writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        leave(args.csv, table.getvalue())
    if args.json:
        print(json.dumps({"operation": args.op, "engine": args.engine, "groups": sum(len(s.members) for s in shapes), "rows": rows}))
    return 0


def _sections(args: argparse.Namespace) -> tuple[Nccl, Any, Any]:
    """Return the `nccl` and `network` sections and the fabric, from --set and the cluster file."""
    from netsim.config.network import Network

    own = [s.removeprefix("nccl.") for s in args.settings if s.startswith(("NCCL_", "nccl."))]
    wire = [s.removeprefix("network.") for s in args.settings if s.startswith("network.")]
    rest = [s for s in args.settings if not s.startswith(("NCCL_", "nccl.", "network."))]
    return _section(Nccl, own), _section(Network, wire), fabric_of(args.cluster, rest)


def _section(cls: type, settings: list[str]) -> Any:
    document = Document({}, {(): Place("--set", 0, 0)})
    override(document, (), tuple(settings), cls)
    return validate(document, cls, (), set())


def groups(topology: "Topology", nodes: int | None, width: int | None, split: str | None) -> list[Shape]:
    """Return the groups of a test by shape."""
    from netsim.collectives import Communicator

    nodes, width = topology.n_nodes if nodes is None else nodes, topology.gpus_per_node if width is None else width
    for option, given, most in (("--nodes", nodes, topology.n_nodes), ("--ngpus", width, topology.gpus_per_node)):
        if not 1 <= given <= most:
            raise InputError(f"nccl-test: {option}: expected 1 to {most}, as the cluster has; got {given}")
    gpus = (np.arange(nodes)[:, None] * topology.gpus_per_node + np.arange(width)).ravel()
    rank = np.arange(len(gpus))
    colour = np.zeros(len(gpus), np.int64)
    if split:
        kind, number = split[:3].upper(), split[3:]
        if kind not in ("MOD", "DIV") or not number.isdecimal() or int(number) < 1:
            raise InputError(f"nccl-test: --split: expected MODn or DIVn, such as MOD8; got {split!r}")
        colour = rank % int(number) if kind == "MOD" else rank // int(number)
    found: dict[Communicator, list[np.ndarray]] = {}
    for c in np.unique(colour):
        members = gpus[colour == c]
        node = members // topology.gpus_per_node
        found.setdefault(Communicator(tuple((node - node[0]).tolist()), tuple((members % topology.gpus_per_node).tolist())), []).append(
            members
        )
    if any(len(members[0]) < 2 for members in found.values()):
        raise InputError(f"nccl-test: expected at least 2 ranks in every group; got 1 ({nodes} x {width} GPUs, --split {split})")
    return [Shape(c, np.stack(m).astype(np.int32)) for c, m in found.items()]


def sizes(args: argparse.Namespace) -> Iterator[int]:
    """Yield the sizes of the table."""
    if args.minbytes < 1 or args.minbytes > args.maxbytes or (args.stepfactor is not None and args.stepfactor < 2) or args.stepbytes < 1:
        raise InputError("nccl-test: expected 1 <= -b <= -e, -f of at least 2 and -i of at least 1")
    nbytes = args.minbytes
    while nbytes <= args.maxbytes:
        yield nbytes
        nbytes = nbytes * args.stepfactor if args.stepfactor else nbytes + args.stepbytes


def _rows(
    args: argparse.Namespace, shapes: list[Shape], platform: "Platform", nccl: Nccl, topology: "Topology", way: "Routes", network: Any
) -> Iterator[dict[str, Any]]:
    from netsim.collectives import plan
    from netsim.simulate import alone

    plans = [[plan(OPERATIONS[args.op], n, s.communicator, platform, nccl) for s in shapes] for n in sizes(args)]
    rows = [[(p, s.members) for p, s in zip(row, shapes, strict=True)] for row in plans]
    if args.engine == "packet":
        times = [alone.packet_us(row, topology, way, network) for row in rows]
    else:
        times = alone.flow_us(rows, topology, way, args.engine == "flow", network.qps)
    ranks, width = shapes[0].members.shape[1], TYPES[args.datatype]
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0, "reduce": 1.0, "sendrecv": 1.0}.get(args.op, (ranks - 1) / ranks)
    for n, built, time in zip(sizes(args), plans, times, strict=True):
        rate = n / time / 1e3
        yield {
            "size": n, "count": n // width // (ranks if args.op in PER_RANK else 1), "type": args.datatype,
            "redop": "sum" if "reduce" in args.op else "none",
            "time_us": round(time, 3), "algbw_GBs": round(rate, 3), "busbw_GBs": round(rate * factor, 3),
            "algorithm": built[0].algorithm, "protocol": built[0].protocol, "channels": built[0].channels,
        }  # fmt: skip


def render(rows: list[dict[str, Any]], shapes: list[Shape], args: argparse.Namespace) -> str:
    """Return the table as nccl-tests prints it."""
    count = sum(len(s.members) for s in shapes)
    ranks = "/".join(sorted({str(s.members.shape[1]) for s in shapes}))
    head = f"# {args.op}: {count} group{'s' if count > 1 else ''} of {ranks} ranks, {args.engine} engine"
    names = ("size", "count", "type", "redop", "time", "algbw", "busbw", "algorithm")
    unit = ("(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "protocol, channels")
    lines = [head, "#", "#" + " ".join(f"{n:>12}" for n in names)[1:], "#" + " ".join(f"{u:>12}" for u in unit)[1:]]
    for r in rows:
        how = f"{r['algorithm']}/{r['protocol']}/{r['channels']}"
        rates = f"{r['time_us']:12.2f} {r['algbw_GBs']:12.2f} {r['busbw_GBs']:12.2f}"
        lines.append(f"{r['size']:12} {r['count']:12} {r['type']:>12} {r['redop']:>12} {rates} {how:>12}")
    mean = float(np.mean([r["busbw_GBs"] for r in rows])) if rows else 0.0
    return "\n".join([*lines, f"# Avg bus bandwidth    : {mean:g}"])
