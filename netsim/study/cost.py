"""What a cluster costs: capital, power, and both together in dollars per hour.

    usd        = sum of count x price over GPUs (with their servers), NICs, switch ports and cables
    watts      = sum of count x watts likewise, at full load
    usd / hour = usd / (years x 8,760 h) + watts x load x pue x price of energy

Counts are those of the fabric as it is built, failed links included; of a switch the ports in use are paid for. Buildings, staff, storage
and the network of the hosts are left out. Prices stand in prices.yaml beside this module.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

import topologies
from netsim.config import Run
from netsim.config.topology import Fabric
from netsim.errors import InputError, did_you_mean
from netsim.kernels.structs import LINK_TIERS

HOURS = 8760.0
"""Hours of a year."""
SWITCHED = {"nic": 1, "spine": 2, "core": 2}
"""Ports of switches that a cable of a tier takes."""


class Cost(NamedTuple):
    """Dollars and watts of a cluster, and of its network alone: NICs, switches, cables."""

    usd: float
    watts: float
    network_usd: float
    network_watts: float
    usd_per_hour: float


class Price(NamedTuple):
    """A price or power, and where it is from; a source that begins with 'assumed' is none."""

    value: float
    source: str

    @property
    def assumed(self) -> bool:
        """True where there is no source."""
        return self.source.startswith("assumed") or self.source.endswith("assumed")


@cache
def listed() -> dict[str, Price]:
    """The ready prices with their sources."""
    text = Path(__file__).with_name("prices.yaml").read_text(encoding="utf-8")
    return {name: Price(float(entry["value"]), str(entry["source"])) for name, entry in yaml.safe_load(text).items()}


def _ready() -> dict[str, float]:
    return {name: price.value for name, price in listed().items()}


def prices(overrides: dict[str, float]) -> dict[str, float]:
    """The ready prices with some replaced; raises InputError for names that there are not."""
    ready = _ready()
    unknown = [name for name in overrides if name not in ready]
    if unknown:
        raise InputError([f"prices.{name}: expected the name of a price; got {name!r}{did_you_mean(name, ready)}" for name in unknown])
    if "years" in overrides and overrides["years"] <= 0:
        raise InputError(f"prices.years: expected more than 0; got {overrides['years']:g}")
    return ready | overrides


def at_rate(table: dict[str, float], item: str, rate: float) -> float:
    """Price or power of an item at `rate` bytes/s: interpolated between those listed, in proportion to the rate beyond them."""
    known = sorted((float(name.removeprefix(f"{item}_")), value) for name, value in table.items() if _is(name, item))
    gbps, x, y = rate * 8e-9, np.array([k for k, _ in known]), np.array([v for _, v in known])
    if not x[0] <= gbps <= x[-1]:
        end = 0 if gbps < x[0] else -1
        return float(y[end] * gbps / x[end])
    if y.min() <= 0:
        return float(np.interp(gbps, x, y))
    return float(np.exp(np.interp(np.log(gbps), np.log(x), np.log(y))))


def _is(name: str, item: str) -> bool:
    return name.startswith(f"{item}_") and name.removeprefix(f"{item}_").isdigit()


def cost(run: Run, overrides: dict[str, float] | None = None) -> Cost:
    """Count what the fabric of a run is made of, and add up."""
    table = prices(overrides or {})
    counts = _counts(run.topology)
    network_usd = sum(n * at_rate(table, item, rate) for item, rate, n in counts)
    network_watts = sum(n * at_rate(table, f"watts_{item}", rate) for item, rate, n in counts)
    gpus = run.topology.nodes * run.topology.gpus_per_node if run.compute else 0
    arch = run.compute.device.arch if run.compute else ""
    if gpus and f"gpu_{arch}" not in table:
        raise InputError(f"compute.device.arch: expected a generation with a price (gpu_ampere, gpu_hopper, gpu_blackwell); got {arch!r}")
    usd = network_usd + gpus * table.get(f"gpu_{arch}", 0.0)
    watts = network_watts + gpus * table.get(f"watts_gpu_{arch}", 0.0)
    energy = watts * table["load"] * table["pue"] * table["usd_per_kwh"] / 1000
    return Cost(usd, watts, network_usd, network_watts, usd / (table["years"] * HOURS) + energy)


def _counts(fabric: Fabric) -> list[tuple[str, float, int]]:
    """(item, bytes/s, number) of NICs, switch ports and cables."""
    topology = topologies.build(replace(fabric, faults=()))
    tier = np.array(LINK_TIERS)[topology.link_tier]
    found: list[tuple[str, float, int]] = []
    for name, ports in SWITCHED.items():
        rates, directed = np.unique(topology.link_rate[tier == name], return_counts=True)
        for rate, n in zip(rates.tolist(), (directed // 2).tolist(), strict=True):
            found += [("link", rate, n), ("switch_port", rate, ports * n)]
    if topology.n_nics:
        found.append(("nic", float(topology.link_rate[tier == "nic"].sum()) / (2 * topology.n_nics), topology.n_nics))
    return found
