"""From a `Fabric` to a `Topology`: find the builder by its name, let it lay the cables, apply the faults that are always there."""

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

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
            lines.append(
                f"topology.{name}.radix: expected at least the {used[worst]} ports that {vertex_name(topology, worst)} uses; got {radix}"
            )
    if lines:
        raise InputError(lines)


def builder(name: str) -> Builder:
    """Return `build` of the module `topologies.<name>`."""
    if name not in builders():
        raise InputError(f"topology.builder: expected one of {', '.join(builders())}; got '{name}'{did_you_mean(name, builders())}")
    found: Builder = importlib.import_module(f"topologies.{name}").build
    return found


def builders() -> list[str]:
    """Return the names of the modules beside this one that define `build(fabric)`; none is imported."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return [f.stem for f in files if f.name != Path(__file__).name and "\ndef build(" in f.read_text(encoding="utf-8")]
