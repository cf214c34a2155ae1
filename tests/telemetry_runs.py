"""Small runs that several tests of telemetry and reports read."""

from pathlib import Path
from typing import Any

from netsim.config import load
from netsim.progress import Progress
from netsim.simulate import simulate

SMALL = ("workload.model.layers=4", "workload.global_batch=8", "telemetry.interval=500 us")
RING = ("nccl.NCCL_ALGO=ring", "nccl.NCCL_PROTO=simple")


TRAFFIC = """
name: incast
topology: {use: dgx_h100, nodes: 2, spines: shared}
workload: {kind: traffic, pattern: incast, hosts: 16, size: 256 KiB, fan_in: 8}
network: {engine: packet}
"""


def traffic(folder: Path) -> dict[str, Any]:
    """Simulate an incast packet by packet."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "incast.yaml").write_text(TRAFFIC)
    return simulate(load(str(folder / "incast.yaml"), ()), folder, Progress())


def simulated(folder: Path, *settings: str) -> dict[str, Any]:
    """Simulate runs/h100_16.yaml, made smaller, into a folder; returns the summary."""
    folder.mkdir(parents=True, exist_ok=True)
    return simulate(load("runs/h100_16.yaml", (*SMALL, *settings)), folder, Progress())
