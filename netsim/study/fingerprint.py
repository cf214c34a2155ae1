"""A fingerprint of what results are made from beside the configuration: the program's model and its data.

A point of a study that is done is kept under a key; the key holds this fingerprint, so that a point is simulated again once a kernel, a
schedule, a table of kernel times or a price has changed. Commands, reports, figures and pages are no part of it: they change no result.
"""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import compute
import netsim
import topologies
import workload
from netsim.config import Run, config_hash

PACKAGES = (compute, topologies, workload)
PARTS = (
    "collectives", "config", "kernels", "network", "simulate", "telemetry", "units.py",
    "study/metrics.py", "study/cost.py", "study/prices.yaml",
)  # fmt: skip
"""Of the package netsim, what results depend on."""
SUFFIXES = (".py", ".yaml", ".csv", ".json", ".npz")


@cache
def fingerprint() -> str:
    """Hex digest of code and data, the same wherever they are installed."""
    digest = hashlib.sha256()
    for name, path in sorted(_files()):
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _files() -> Iterator[tuple[str, Path]]:
    roots = [Path(str(package.__file__)).parent for package in PACKAGES]
    roots += [Path(str(netsim.__file__)).parent / part for part in PARTS]
    for root in roots:
        for path in [root] if root.is_file() else root.rglob("*"):
            if path.suffix in SUFFIXES and path.is_file():
                yield path.relative_to(root.parent).as_posix(), path


def key_of(run: Run, prices: str = "") -> str:
    """The name under which the result of a run is kept: its configuration, the prices that its metrics use, and the fingerprint."""
    return hashlib.sha256(f"{fingerprint()} {config_hash(run)} {prices}".encode()).hexdigest()[:16]
