"""Fabrics: from the `topology` section of a run file to the arrays that the engines take.

    build(fabric)                        hosts, switches and cables as a `Topology`, by the module of this package named `fabric.builder`
    routes(topology, fabric)             equal-cost next hops as `Routes`; failed links (rate 0) are avoided
    paths(topology, routes, ...)         whole paths from NIC to NIC; a pair without a way is an error
    fault_events(topology, fabric)       when which link changes its rate during a run; `with_rates` is the topology from then on
    planes, partition                    what can be simulated apart
    vertex_name, link_name, find_links   names of vertices and links, and back

A new fabric is a new module here with `build(fabric: Fabric) -> Topology`, or a YAML file that sets the parameters of an existing one.
"""

from topologies.builders import build
from topologies.faults import fault_events, with_rates
from topologies.names import find_links, find_vertex, link_name, link_names, vertex_name
from topologies.split import partition, planes
from topologies.tables import paths, routes

__all__ = [
    "build",
    "fault_events",
    "find_links",
    "find_vertex",
    "link_name",
    "link_names",
    "partition",
    "paths",
    "planes",
    "routes",
    "vertex_name",
    "with_rates",
]
