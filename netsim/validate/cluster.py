"""Fabric and GPU of a row: NVLink domain and NICs from the columns, everything else from ready files."""

import re
from typing import Any

from netsim.validate.rows import Row

DEVICES = {
    "A100": "a100_sxm", "H100": "h100", "H200": "h200", "H800": "h800", "B200": "b200", "B300": "b300", "GB200": "gb200", "GB300": "gb300",
}  # fmt: skip
FABRICS = {"A100": "dgx_a100", "B200": "dgx_b200", "B300": "dgx_b200", "GB200": "dgx_b200", "GB300": "dgx_b200"}
GBPS = {"A100": 200, "H100": 400, "H200": 400, "H800": 400, "B200": 400, "B300": 800, "GB200": 400, "GB300": 800}
"""NIC of each GPU as the vendor ships it: ConnectX-6, 7, 8."""
RACK = 64
"""GPUs of an NVL72 rack that jobs of powers of two use: 16 of its 18 trays."""


def fabric(row: Row, gpus: int, size: dict[str, int], assumed: list[str]) -> dict[str, Any]:
    """Section `topology`: nodes of the row's size under one leaf switch per rail, so that the network never blocks.

    Spines join the rails of racks: a group of two, the first and the last stage with an embedding matrix each, may lie on two rails.
    """
    family = row["gpu_family"]
    domain = _domain(row, gpus, assumed)
    found = re.search(r"(\d+)\s*x[^0-9]{0,24}(?:CX-?\d+ |ConnectX-\d+ )?(?:NDR |HDR |IB |XDR )*(\d+) ?G", row["network"])
    nics, gbps = domain, GBPS[family]
    if "1600 Gb/s" in row["network"]:
        gbps = 200
    elif "Omni-Path" in row["network"]:
        nics, gbps = 4, 100
    elif found and row.count("gpus_per_node") in (8, None):
        nics, gbps = int(found[1]), int(found[2])
    else:
        assumed.append(f"one NIC of {gbps} Gbps per GPU")
    nodes = gpus // domain
    if nodes > 1:
        assumed.append("no congestion between nodes: one leaf switch per rail")
    racks = nodes > 1 and domain > 8
    ports = max(2 * nodes, min(nics, domain) if racks else 0)
    return {
        "use": FABRICS.get(family, "dgx_h100"), "nodes": nodes, "gpus_per_node": domain, "nics_per_node": min(nics, domain),
        "link": {"rate": f"{gbps} Gbps"}, "host": {"rate": f"{max(gbps / 8 * 1.1, 26):g} GB/s"}, "segment": nodes,
        "leaf": {"radix": 2 * nodes, "down": nodes, "up": nodes}, "spine": {"radix": ports},
        "spines": "shared" if racks else "per_rail",
    }  # fmt: skip


def _domain(row: Row, gpus: int, assumed: list[str]) -> int:
    """GPUs of one NVLink domain."""
    if row["gpu_family"] not in ("GB200", "GB300"):
        return min(gpus, row.count("gpus_per_node") or 8)
    domain = next((d for d in (72, RACK, 48, 36, 32, 16, 8, 4) if gpus % d == 0 and (d < 72 or gpus == 72)), gpus)
    if gpus > domain:
        assumed.append(f"{domain} GPUs of each NVL72 rack are used")
    return min(gpus, domain)


def compute(row: Row, assumed: list[str]) -> dict[str, Any]:
    """Section `compute`: the device, with what the row says of the board."""
    device: dict[str, Any] = {"use": DEVICES[row["gpu_family"]]}
    board = f"{row['gpu']} {row['notes']} {row['network']}"
    if re.search(r"a100.{0,3}40gb", board, re.IGNORECASE):
        device |= {"memory": "40960 MiB", "hbm": "1.555 TB/s"}  # A100 40GB data sheet
    elif "96GB" in board:
        device |= {"memory": "96 GiB", "hbm": "2.4 TB/s"}  # Grand Teton: HBM2e
    return {"device": device}
