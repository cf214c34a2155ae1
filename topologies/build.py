"""From a `Fabric` to a `Topology`: find the builder by its name, let it lay the cables, apply the faults that are always there."""

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable

import topologies
from netsim.config.topology import Fabric
from netsim.errors import InputError, did_you_mean
from netsim.kernels.structs import Topology
from topologies.faults import apply_permanent

Builder = Callable[[Fabric], Topology]


def build(fabric: Fabric) -> Topology:
    """Return the fabric as arrays. Raises `InputError` where hosts outnumber ports, with the arithmetic."""
    return apply_permanent(builder(fabric.builder)(fabric), fabric)


def builder(name: str) -> Builder:
    """Return `build` of the module `topologies.<name>`."""
    if name in builders():
        return importlib.import_module(f"topologies.{name}").build
    raise InputError(f"topology.builder: expected one of {', '.join(builders())}{did_you_mean(name, builders())}; got '{name}'")


def builders() -> list[str]:
    """Return the names of all modules of this package that lay cables: those that define `build(fabric)`, this one excepted."""
    names = [m.name for m in pkgutil.iter_modules(topologies.__path__) if m.name != "build"]
    return [n for n in names if hasattr(importlib.import_module(f"topologies.{n}"), "build") and n != "build"]
