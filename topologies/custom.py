"""Any fabric from a list of cables, in the run file or in a CSV file with the columns a,b,rate,latency,count.

Ends are named like everywhere (`topologies.names`): `nic n0.3`, `leaf r3.s0`, `spine 1`, `core 2`. Switches come into being by being named;
those of one tier and rail are numbered from 0 without gaps. Any switch may be cabled to any other, and a NIC to any switch.
"""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from netsim.config.topology import Edge, Fabric
from netsim.errors import InputError
from netsim.kernels.structs import Topology
from topologies.assemble import Network, assemble
from topologies.names import parse_nic, parse_switch, switch_name


def build(fabric: Fabric) -> Topology:
    """Return the fabric. Raises `InputError` for every cable whose ends cannot be, all at once."""
    edges = read_csv(fabric.edges) if isinstance(fabric.edges, str) else fabric.edges
    switches = sorted({s for e in edges for s in (parse_switch(e.a), parse_switch(e.b)) if s is not None})
    lines = [f"topology.edges: {gap}" for gap in _gaps(switches)]
    n_nics = fabric.nodes * fabric.nics
    number = {s: n_nics + i for i, s in enumerate(switches)}
    rows: list[tuple[int, int, float, int]] = []
    for i, edge in enumerate(edges):
        try:
            a, b = sorted((_vertex(edge.a, fabric, number), _vertex(edge.b, fabric, number)))
            _check_ends(edge, a, b, n_nics)
        except InputError as error:
            lines += [f"topology.edges.{i}: {line}" for line in error.lines]
            continue
        cable = fabric.link.latency if edge.latency is None else edge.latency
        rows += [(a, b, fabric.link.rate if edge.rate is None else edge.rate, cable)] * edge.count
    bare = sorted(set(range(n_nics)) - {row[0] for row in rows})
    if bare and not lines:
        lines.append(
            f"topology.edges: expected a cable from every NIC; got none from nic n{bare[0] // fabric.nics}.{bare[0] % fabric.nics}"
        )
    if lines:
        raise InputError(lines)
    lower, upper, rate, propagation = (np.array(column) for column in zip(*rows, strict=True))
    tier, rail = np.array([s[0] for s in switches]), np.array([s[1] for s in switches])
    return assemble(fabric, Network(tier, rail, lower, upper, rate.astype(float), propagation.astype(np.int64)))


def read_csv(path: str) -> tuple[Edge, ...]:
    """Return the cables of a CSV file; raises `InputError` with file and line of every mistake."""
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, skipinitialspace=True))
    except (OSError, ValueError, csv.Error) as error:  # ValueError: no text, or a path that holds a null byte
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"topology.edges: expected a CSV file of cables; got {path!r}: {reason.lower()}") from None
    adapter, edges, lines = TypeAdapter(Edge), [], []
    for line, row in enumerate(rows, 2):
        data: dict[str, Any] = {key: value for key, value in row.items() if value}
        if str(data.get("count", "")).isdigit():
            data["count"] = int(data["count"])
        try:
            edges.append(adapter.validate_python(data))
        except ValidationError as error:
            for detail in error.errors():
                column = detail["loc"][0] if detail["loc"] else "a"
                lines.append(
                    f"{path}:{line}: {column}: {detail['msg'].removeprefix('Value error, ').lower()}; got {data.get(str(column))!r}"
                )
    if lines or not edges:
        raise InputError(lines or f"{path}: expected a heading a,b,rate,latency,count and at least one cable; got none")
    return tuple(edges)


def _gaps(switches: list[tuple[int, int, int]]) -> list[str]:
    numbers: dict[tuple[int, int], list[int]] = {}
    for tier, rail, number in switches:
        numbers.setdefault((tier, rail), []).append(number)
    return [
        f"expected switches numbered from 0 without gaps; got {switch_name(tier, rail, found[-1])} but only {len(found)} of its kind"
        for (tier, rail), found in numbers.items()
        if found[-1] != len(found) - 1
    ]


def _vertex(name: str, fabric: Fabric, number: dict[tuple[int, int, int], int]) -> int:
    switch, nic = parse_switch(name), parse_nic(name)
    if switch is not None:
        return number[switch]
    if nic is None:
        raise InputError(f"expected an end such as 'nic n0.3', 'leaf r3.s0' or 'spine 1'; got '{name}'")
    if nic[0] >= fabric.nodes or nic[1] >= fabric.nics:
        raise InputError(f"expected a NIC of {fabric.nodes} nodes with {fabric.nics} NICs; got '{name}'")
    return nic[0] * fabric.nics + nic[1]


def _check_ends(edge: Edge, a: int, b: int, n_nics: int) -> None:
    if a == b:
        raise InputError(f"expected a cable between two ends; got '{edge.a}' twice")
    if b < n_nics:
        raise InputError(f"expected a switch at one end; got '{edge.a}' and '{edge.b}'")
