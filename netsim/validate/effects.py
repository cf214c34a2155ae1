"""Effects of the network in `network.csv` that one simulated call gives: bus bandwidth inside a node, with and without NVLS."""

import re

from netsim.collectives import Communicator, Platform
from netsim.collectives.plan import plan
from netsim.collectives.timing import idle_us
from netsim.config.nccl import Nccl
from netsim.units import parse_size
from netsim.validate.others import Item
from netsim.validate.rows import Row

FIGURES = re.compile(r"busbw (\d+ GiB) (\w+)|(\w+) busbw (\d+ GiB)")
GPUS = re.compile(r"(H200|B200|H100)\D+(\d+) GPUs|(\d+)x (H200|B200|H100)")
NVLINK = {"H100": 450e9, "H200": 450e9, "B200": 900e9}
FACTOR = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}


def effects(rows: list[Row]) -> list[Item]:
    """Return one item per row."""
    return [_item(row) for row in rows]


def _item(row: Row) -> Item:
    name = f"{row['category']}: {row['metric']}"
    if "constant" in row["kind"] or row["kind"] == "claimed":
        return Item(name, row["source"], 0.0, 0.0, "a constant or a claim, not a measurement")
    figures, gpus, value = FIGURES.search(row["metric"]), GPUS.search(row["hardware"]), row.number("value")
    if row["category"] != "NVLS" or not figures or not gpus or not value:
        return Item(name, row["source"], 0.0, 0.0, "not the result of one call that can be simulated")
    size, op = (figures[1], figures[2]) if figures[1] else (figures[4], figures[3])
    kind, count = (gpus[1], int(gpus[2])) if gpus[1] else (gpus[4], int(gpus[3]))
    if op not in FACTOR:
        return Item(name, row["source"], 0.0, 0.0, "not the result of one call that can be simulated")
    off = "NVLS off" in row["metric"] or "ring" in row["metric"]
    platform = Platform("blackwell" if kind == "B200" else "hopper", 8, 8, 50e9, "intel", NVLINK[kind], 5)
    call = plan(op, parse_size(size), Communicator((0,) * count, tuple(range(count))), platform, Nccl(NCCL_NVLS_ENABLE=0 if off else 2))
    busbw = parse_size(size) * FACTOR[op] * (count - 1) / count / idle_us(call) / 1e3
    return Item(f"{op} inside a node, {'ring' if off else 'as NCCL chooses'}", row["source"], value, busbw)
