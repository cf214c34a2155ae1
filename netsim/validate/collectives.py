"""Simulated against measured: `python -m netsim.validate.collectives` writes docs/collectives.md from published tables of nccl-tests.

Every row of the data that names GPU, ranks, size and a time or a bus bandwidth is simulated on the flow engine, calls of up to 32 ranks and
64 MiB on the packet engine too; tables that do not measure an idle RDMA fabric, or not NCCL, are left out by name and reason (`LEFT_OUT`).
Nothing here, and nothing in the model, depends on a table.
"""

import argparse
import csv
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import topologies
from netsim.collectives.figures import FIGURES, Figures
from netsim.collectives.plan import plan
from netsim.collectives.platform import Communicator, Platform
from netsim.config.nccl import Nccl
from netsim.config.network import Network
from netsim.config.topology import Fabric, Host, Link, ScaleUp, Switch
from netsim.kernels.structs import Routes, Topology
from netsim.simulate import alone
from netsim.validate import contention

OPS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all", "sendrecv": "ring_shift", "send_recv": "sendrecv",
}  # fmt: skip
LEFT_OUT = {
    "symphony-2n-misconf": "a fault case: nodes before their NICs were configured",
    "gcp-a3mega-2n": "GPUDirect-TCPXO, a transport over TCP",
    "gcp-a4-ag": "a network plugin of its own, with 280 us for the smallest sizes",
    "collnet_sharp": "CollNet without a working switch offload, by its author",
    "nccl1229": "approximate values from a forum",
    "deepep": "DeepEP kernels, not NCCL",
    "6kd-ar": "PCIe GPUs without NVLink",
    "isambard": "Slingshot, ranges instead of values",
    "aws-efa-ep16": "approximate values, GPU not named",
    "vidur": "kernel times of three repeats, fabric between nodes not stated",
    "tog-0428-hca": "message size not stated",
    "tog-0426-groups": "an average over sizes",
    "oci-gb300-all_reduce-128": "two racks of NVL72: several NICs per domain shared by 72 GPUs",
    "aws-p5": "EFA, whose transport is not RDMA over queue pairs",
    "stas-b200-4n": "EFA, whose transport is not RDMA over queue pairs",
    "oci-gb200-128": "two racks of NVL72: several NICs per domain shared by 72 GPUs",
    "coreweave-gb200-144": "several racks of NVL72", "coreweave-gb200-1440": "several racks of NVL72",
}  # fmt: skip
DOMAIN = {"GB200": 72, "gb200": 72, "GB300": 72, "gb300": 72}


class Row(NamedTuple):
    """One measurement in the model's terms."""

    table: str
    op: str
    nbytes: int
    measured_us: float
    comm: Communicator
    platform: Platform
    nccl: Nccl
    simulated_us: float = 0.0
    packet_us: float = 0.0  # 0 where the packet engine was not asked

    @property
    def error(self) -> float:
        """Relative error of the simulated time."""
        return self.simulated_us / self.measured_us - 1


def platform_of(row: dict[str, str]) -> Platform:
    """Return the machine that a row describes."""
    gpu, network = row["gpu"], row["network"]
    width = DOMAIN.get(gpu, 8)
    nics, gbps = 8, 400.0
    found = re.search(r"(\d+)x(\d+)G", network)
    if found:
        nics, gbps = int(found.group(1)), float(found.group(2))
    if nics == 2 * width:  # two ports of one NIC, which NCCL merges
        nics, gbps = width, 2 * gbps
    if gpu.lower().startswith("a100"):
        return Platform("ampere", width, nics, (gbps if found else 200.0) / 8 * 1e9, "amd", 300e9, 4)
    if gpu.lower().startswith(("h100", "h200")):
        return Platform("hopper", width, nics, gbps / 8 * 1e9, "intel", 450e9, 5)
    return Platform("blackwell", width, width if width > 8 else nics, gbps / 8 * 1e9, "intel", 900e9, 5)


def nccl_of(row: dict[str, str]) -> Nccl:
    """Return the variables that the algorithm column states."""
    text = row["algo_proto"]
    named = {"ring": "Ring", "tree": "Tree", "nvls_tree": "NVLSTree"}
    algorithm = named.get(text) or ("Ring" if "NCCL_ALGO=Ring" in text else None)
    ctas, pairs = re.search(r"MIN_CTAS=(\d+)", text), re.search(r"QPS_PER_CONNECTION=(\d+)", text)
    return Nccl(
        NCCL_ALGO=algorithm,
        NCCL_MIN_CTAS=int(ctas.group(1)) if ctas else None,
        NCCL_IB_QPS_PER_CONNECTION=int(pairs.group(1)) if pairs else 1,
        NCCL_NVLS_ENABLE=0 if "NVLS disabled" in text else 2,
    )


def measured_us(row: dict[str, str], ranks: int, nbytes: int) -> float:
    """Return the time of a row, from its bus bandwidth where it has none."""
    if row["time_us"]:
        return float(row["time_us"])
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "sendrecv": 1.0, "send_recv": 1.0}.get(row["op"], (ranks - 1) / ranks)
    return nbytes * factor / float(row["busbw_GBs"]) / 1e3 if row["busbw_GBs"] and float(row["busbw_GBs"]) > 0.05 else 0.0


def reason_left_out(row: dict[str, str]) -> str:
    """Return why a row is not simulated, or an empty string."""
    if not (row["size_bytes"] and row["ranks"] and (row["time_us"] or row["busbw_GBs"]) and row["op"] in OPS):
        return "no size, ranks or time"
    if row["op"] == "sendrecv" and row["table_id"].startswith("tog") and int(row["ranks"]) > 32:
        return "more than 4 nodes: the cross-rail hop of every node meets in the spine, which is not idle then"
    name = row["table_id"] + " " + row["algo_proto"]
    return next((why for key, why in LEFT_OUT.items() if key in name), "")


def read(path: Path) -> tuple[list[Row], dict[str, str]]:
    """Read the rows that can be simulated, and the tables left out with the reason."""
    rows: list[Row] = []
    left: dict[str, str] = {}
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        why = reason_left_out(line)
        if why:
            left.setdefault(line["table_id"], why)
            continue
        ranks, nbytes, platform = int(line["ranks"]), int(line["size_bytes"]), platform_of(line)
        time = measured_us(line, ranks, nbytes)
        if time <= 0:
            continue
        width = platform.gpus_per_node if platform.gpus_per_node > 8 else int(line["ranks_per_node"] or min(ranks, 8))
        comm = Communicator(tuple(r // width for r in range(ranks)), tuple(r % width for r in range(ranks)))
        table = f"{line['table_id']} {line['op']} {ranks} {line['algo_proto'] if line['table_id'].startswith('tog') else ''}".strip()
        rows.append(Row(table, OPS[line["op"]], nbytes, time, comm, platform, nccl_of(line)))
    return rows, left


@lru_cache(maxsize=64)
def fabric(platform: Platform, nodes: int) -> tuple[Topology, Routes]:
    """An idle fabric of such nodes, every rail in one segment: cables of 30 m, switches of 300 ns (see topologies/dgx_h100.yaml)."""
    bus = {3: 15.75e9, 4: 31.5e9, 5: 63e9, 6: 126e9}[platform.pcie]
    place = Fabric(
        nodes=max(2, nodes), gpus_per_node=platform.gpus_per_node, nics_per_node=platform.nics_per_node, scale_up=ScaleUp(platform.nvlink),
        host=Host(bus), link=Link(platform.nic_rate, 150_000), switch=Switch(radix=1024, latency=300_000), spines="shared", routing="dmodk",
    )  # fmt: skip
    topology = topologies.build(place)
    return topology, topologies.routes(topology, place)


def simulate(rows: Iterable[Row], packets: bool = False) -> list[Row]:
    """Fill in the simulated time of every row: on the flow engine, and of small calls on the packet engine too."""
    times: dict[Row, tuple[float, float]] = {}
    out = []
    for row in rows:
        key = row._replace(table="", measured_us=0.0)
        if key not in times:
            nodes = max(row.comm.node) + 1
            topology, routes = fabric(row.platform, nodes)
            gpus = np.array(row.comm.node) * row.platform.gpus_per_node + np.array(row.comm.local)
            calls: alone.Calls = [(plan(row.op, row.nbytes, row.comm, row.platform, row.nccl), gpus[None].astype(np.int32))]
            small = packets and row.comm.size <= 32 and row.nbytes <= 1 << 26
            played = alone.packet_us(calls, topology, routes, Network(engine="packet")) if small else 0.0
            times[key] = alone.flow_us([calls], topology, routes)[0], played
        out.append(row._replace(simulated_us=times[key][0], packet_us=times[key][1]))
    return out


def _summary(rows: list[Row]) -> str:
    if not rows:
        return "- | - | -"
    errors = np.abs([row.error for row in rows])
    return f"{len(rows)} | {np.median(errors):.1%} | {np.quantile(errors, 0.9):.1%}"


def _gap(rows: list[Row]) -> str:
    """Calls played on the packet engine, and how far that is from the flow engine at most."""
    gaps = [abs(row.packet_us / row.simulated_us - 1) for row in rows if row.packet_us > 0]
    return f"{len(gaps)} | {max(gaps):.1%}" if gaps else "- | -"


def _plain(value: float | tuple[float, ...]) -> str:
    return ", ".join(f"{v:g}" for v in value) if isinstance(value, tuple) else f"{value:g}"


HEAD = """# Collectives: how long they take, and how long they took

Written by `python -m netsim.validate.collectives`.

## What decides the time of a call

A plan says which messages each connection carries and what each waits for, as NCCL cuts a call: chunks, slices, eight slots. Every
connection has a pace (the share of its thread block and ports that the call leaves it), a burst (the same for one message) and a delay
(flag, proxy, NIC). The packet engine plays that message by message and packet by packet. For the flow engine the same recursion is played
once per plan, without packets, for one connection of each kind (`netsim/kernels/messages.py`), and becomes a cap and a fill that are exact
for a call alone and for one that gets half of its network. What this captures:

* A step of a ring lasts as long as its slices take to be sent, or as a slice takes to come over, whichever is longer: latency overlaps
  transfer.
* Between nodes a slice has the slots of the sender's buffer and those of the receiver's (NCCL src/transport/net.cc), so 18 us of proxies
  and flags do not hold up a channel.
* LL and LL128 forward lines as they come; inside a node only what a thread block moves at once is stored before it goes on.
* Up and down the trees a message meets those that move at the same moment; more of them the longer the pipeline is.
* Where PCIe joins the GPUs of a node (`topology.scale_up.kind: pcie`), NCCL finds two or four thread blocks, goes without LL128, and leaves
  a socket through host memory, where a thread block is slower than the link. All that goes from one socket to the other shares that link.

"""


def report(rows: list[Row], left: dict[str, str]) -> str:
    """Return the page: a table of errors per measured table, calls that meet, and the figures behind the times."""
    large = [r for r in rows if r.nbytes >= 1 << 20]
    small = [r for r in rows if r.nbytes < 1 << 20]
    near = [r for r in large if max(r.comm.node) in (1, 2, 3)]
    out = [
        HEAD + "## Simulated against measured", "",
        "Error: |simulated / measured - 1| of the time of a call alone on its machine, on the flow engine. Calls of up to",
        "32 ranks and 64 MiB are played on the packet engine too: the last column is how far apart the engines are at most.",
        "Tables of more than two nodes come from clusters in use, whose fabric adds what an idle one does not:",
        "on the 64-node B200 cluster rings lose 12 % of the NICs' rate at 4 nodes and 24 % at 64.",
        "That is left as error here rather than put into a figure.", "",
        "| | rows | median | 90th percentile | on packets | apart |", "|---|---|---|---|---|---|",
        f"| from 1 MiB up | {_summary(large)} | {_gap(large)} |", f"| of these on 2 to 4 nodes | {_summary(near)} | {_gap(near)} |",
        f"| below 1 MiB | {_summary(small)} | {_gap(small)} |", "",
        "| table | below 1 MiB: rows | median | p90 | from 1 MiB: rows | median | p90 | on packets | apart |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for table in dict.fromkeys(r.table for r in rows):
        mine = [r for r in rows if r.table == table]
        sizes = [_summary([r for r in mine if (r.nbytes >= 1 << 20) == big]) for big in (False, True)]
        out.append(f"| {table} | {sizes[0]} | {sizes[1]} | {_gap(mine)} |")
    out += ["", "## Calls that meet", "", str(contention.__doc__).split("\n\n", 1)[1].strip(), "", contention.table(contention.scenarios())]
    out += [
        "",
        "Alone, the two engines agree where no queue builds; ECMP puts connections of one call on the same uplink even then.",
        "With queues, max-min fair rates are what lossless packets without congestion control do within some percent; DCQCN",
        "takes up to twice as long, because a connection that is cut stays below its share while the ring waits for it.",
        "",
        "## Physical figures",
        "",
        "One set per GPU generation, in `netsim/collectives/figures.py`; triples are LL, LL128, Simple.",
        "",
    ]
    out += ["| figure | " + " | ".join(FIGURES) + " |", "|---|" + "---|" * len(FIGURES)]
    for name in Figures._fields:
        out.append(f"| {name} | " + " | ".join(_plain(getattr(f, name)) for f in FIGURES.values()) + " |")
    out += ["", "## Left out", ""] + [f"* {table}: {why}" for table, why in left.items()]
    return "\n".join(out) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or with --rows print every row."""
    parser = argparse.ArgumentParser(prog="python -m netsim.validate.collectives", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("docs/data/collectives.csv"))
    parser.add_argument("--out", type=Path, default=Path("docs/collectives.md"))
    parser.add_argument("--rows", metavar="TABLE", help="print the rows of tables whose name contains this, and write nothing")
    options = parser.parse_args(arguments)
    rows, left = read(options.data)
    if options.rows is not None:
        for row in simulate([r for r in rows if options.rows in r.table]):
            built = plan(row.op, row.nbytes, row.comm, row.platform, row.nccl)
            how = f"{built.algorithm} {built.protocol} {built.channels}"
            sys.stdout.write(f"{row.table:50} {row.nbytes:12} {row.measured_us:10.1f} {row.simulated_us:10.1f} {row.error:+7.1%} {how}\n")
        return 0
    options.out.write_text(report(simulate(rows, packets=True), left))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
