"""From a `Fabric` to a `Topology`: find the builder by its name, let it lay the cables, apply the faults that are always there."""

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable

import numpy as np

import topologies
from netsim.config.topology import TIER_NAMES, Fabric
from netsim.errors import InputError, did_you_mean
from netsim.kernels.structs import SWITCH, Topology
from topologies.faults import apply_permanent
from topologies.names import vertex_name

Builder = Callable[[Fabric], Topology]


def build(fabric: Fabric) -> Topology:
    """Return the fabric as arrays. Raises `InputError` where hosts outnumber ports, with the arithmetic."""
    topology = builder(fabric.builder)(fabric)
    check_ports(topology, fabric)
    return apply_permanent(topology, fabric)


def check_ports(topology: Topology, fabric: Fabric) -> None:
    """Raise `InputError` if a switch has more cables than ports."""
    used = np.bincount(topology.link_src, minlength=topology.vertex_kind.size)
    lines = []
    for t, name in enumerate(TIER_NAMES, 1):
        switches = np.flatnonzero((topology.vertex_kind == SWITCH) & (topology.vertex_tier == t))
        radix = fabric.tier(t).radix or 0
        if switches.size and used[switches].max() > radix:
            worst = int(switches[np.argmax(used[switches])])
            lines.append(f"topology.{name}.radix: expected at least the {used[worst]} ports that {vertex_name(topology, worst)} uses; got {radix}")
    if lines:
        raise InputError(lines)


def builder(name: str) -> Builder:
    """Return `build` of the module `topologies.<name>`."""
    if name in builders():
        return importlib.import_module(f"topologies.{name}").build
    raise InputError(f"topology.builder: expected one of {', '.join(builders())}{did_you_mean(name, builders())}; got '{name}'")


def builders() -> list[str]:
    """Return the names of all modules of this package that lay cables: those that define `build(fabric)`, this one excepted."""
    names = [m.name for m in pkgutil.iter_modules(topologies.__path__) if m.name != "build"]
    return [n for n in names if hasattr(importlib.import_module(f"topologies.{n}"), "build") and n != "build"]
