"""Names of vertices and links for people: run files name links in faults, reports name the busiest ones.

    n17.g3           GPU 3 of node 17              nic n17.3      NIC 3 of node 17
    scale-up n17     the NVSwitch complex          leaf r3.s0     leaf of rail 3, segment 0
    scale-up n17.1   that of island 1 where a node has several
    spine r3.1       spine 1 of rail 3             leaf 5, spine 5, core 12     where a switch serves all rails

Switches are numbered within their tier and rail (with several planes: those of plane 0 first). A link is `a -> b`; one of several parallel
cables is `a -> b (2)`, counted from 0.
"""

import re
from collections.abc import Iterator

import numpy as np

from netsim.errors import InputError, did_you_mean
from netsim.kernels.routing import first_nic
from netsim.kernels.structs import GPU, NIC, SCALE_UP, SWITCH, Array, Topology

TIERS = ("", "leaf", "spine", "core")
_PATTERN = re.compile(
    r"n(?P<gpu_node>\d+)\.g(?P<gpu>\d+)|scale-up n(?P<node>\d+)(?:\.(?P<island>\d+))?|nic n(?P<nic_node>\d+)\.(?P<nic>\d+)"
    r"|(?P<tier>leaf|spine|core) (?:r(?P<rail>\d+)\.)?s?(?P<switch>\d+)"
)


def vertex_name(topology: Topology, vertex: int) -> str:
    """Return the name of a vertex."""
    kind, v = topology.vertex_kind[vertex], int(vertex)
    if kind == GPU:
        return f"n{v // topology.gpus_per_node}.g{v % topology.gpus_per_node}"
    if kind == SCALE_UP:
        node, island = divmod(v - topology.n_gpus, topology.islands)
        return f"scale-up n{node}" + (f".{island}" if topology.islands > 1 else "")
    if kind == NIC:
        nic = v - first_nic(topology)
        return f"nic n{nic // topology.nics_per_node}.{nic % topology.nics_per_node}"
    tier, rail = int(topology.vertex_tier[v]), int(topology.vertex_rail[v])
    return switch_name(tier, rail, int(np.searchsorted(_alike(topology, tier, rail), v)))


def switch_name(tier: int, rail: int, number: int) -> str:
    """Return the name of switch `number` of a tier and rail (-1: all rails)."""
    return f"{TIERS[tier]} {number}" if rail < 0 else f"{TIERS[tier]} r{rail}.{'s' if tier == 1 else ''}{number}"


def parse_switch(name: str) -> tuple[int, int, int] | None:
    """Return (tier, rail or -1, number) of a switch's name; None if it is not one."""
    match = _PATTERN.fullmatch(name.strip())
    if match is None or match["tier"] is None:
        return None
    return TIERS.index(match["tier"]), -1 if match["rail"] is None else int(match["rail"]), int(match["switch"])


def parse_nic(name: str) -> tuple[int, int] | None:
    """Return (node, NIC of the node) of a NIC's name; None if it is not one."""
    match = _PATTERN.fullmatch(name.strip())
    return None if match is None or match["nic"] is None else (int(match["nic_node"]), int(match["nic"]))


def find_vertex(topology: Topology, name: str) -> int:
    """Return the vertex of that name; raises `InputError` with the closest name that exists."""
    match, found = _PATTERN.fullmatch(name.strip()), -1
    if match is not None:
        if match["gpu"] is not None:
            found = _in_node(int(match["gpu_node"]), int(match["gpu"]), topology.gpus_per_node, topology.n_nodes, 0)
        elif match["node"] is not None:
            if (match["island"] is not None) == (topology.islands > 1):
                found = _in_node(int(match["node"]), int(match["island"] or 0), topology.islands, topology.n_nodes, topology.n_gpus)
        elif match["nic"] is not None:
            nic_0 = first_nic(topology)
            found = _in_node(int(match["nic_node"]), int(match["nic"]), topology.nics_per_node, topology.n_nodes, nic_0)
        else:
            alike = _alike(topology, TIERS.index(match["tier"]), -1 if match["rail"] is None else int(match["rail"]))
            found = int(alike[int(match["switch"])]) if int(match["switch"]) < alike.size else -1
    if found < 0:
        hint = did_you_mean(name, switch_names(topology)) or f" (nodes are n0 to n{topology.n_nodes - 1})"
        raise InputError(f"expected the name of a vertex such as 'leaf r3.s0' or 'nic n17.3'; got '{name}'{hint}")
    return found


def switch_names(topology: Topology) -> Iterator[str]:
    """Yield the names of all switches, from leaf up."""
    numbers: dict[tuple[int, int], int] = {}
    switches = topology.vertex_kind == SWITCH
    for tier, rail in zip(topology.vertex_tier[switches].tolist(), topology.vertex_rail[switches].tolist(), strict=True):
        numbers[tier, rail] = numbers.get((tier, rail), -1) + 1
        yield switch_name(tier, rail, numbers[tier, rail])


def link_names(topology: Topology) -> Array:
    """Return the names of all links, in order, as bytes: what `link_name` says of each, made for all of them at once."""
    names = np.concatenate([_host_names(topology), np.array([*switch_names(topology), ""], np.bytes_)])
    key = topology.link_src.astype(np.int64) * topology.vertex_kind.size + topology.link_dst
    order = np.argsort(key, kind="stable")
    new = np.diff(key[order], prepend=-1) != 0
    first, several = np.flatnonzero(new), np.zeros(key.size, bool)
    number = np.arange(key.size) - first[np.cumsum(new) - 1]
    several[order] = np.repeat(np.diff(first, append=key.size) > 1, np.diff(first, append=key.size))
    out = np.strings.add(np.strings.add(names[topology.link_src], b" -> "), names[topology.link_dst])
    cable = np.zeros(key.size, np.int64)
    cable[order] = number
    suffix = np.array([f" ({n})" for n in range(number.max(initial=0) + 1)], np.bytes_)
    return np.strings.add(out, np.where(several, suffix[cable], b""))


def _host_names(topology: Topology) -> Array:
    """Names of GPUs, scale-up switches and NICs."""
    node: Array = np.arange(topology.n_nodes).astype(np.bytes_)

    def each(kind: bytes, mark: str, count: int) -> Array:
        place: Array = np.array([f"{mark}{i}" for i in range(count)], np.bytes_)
        return np.strings.add(kind, np.strings.add(np.repeat(node, count), np.tile(place, topology.n_nodes)))

    gpus, nics = each(b"n", ".g", topology.gpus_per_node), each(b"nic n", ".", topology.nics_per_node)
    inside = np.strings.add(b"scale-up n", node) if topology.islands == 1 else each(b"scale-up n", ".", topology.islands)
    return np.concatenate([gpus, inside, nics])


def link_name(topology: Topology, link: int) -> str:
    """Return `a -> b` with the cable's number where there are several."""
    src, dst = int(topology.link_src[link]), int(topology.link_dst[link])
    same = _between(topology, src, dst)
    number = f" ({int(np.searchsorted(same, link))})" if same.size > 1 else ""
    return f"{vertex_name(topology, src)} -> {vertex_name(topology, dst)}{number}"


def find_links(topology: Topology, name: str) -> Array:
    """Return the links that `a -> b` or `a -> b (2)` names; raises `InputError` if there are none."""
    match = re.fullmatch(r"\s*(.+?)\s*->\s*(.+?)\s*(?:\(\s*(\d+)\s*\))?\s*", name)
    if match is None:
        raise InputError(f"expected a link such as 'leaf r3.s0 -> spine r3.1'; got '{name}'")
    src, dst = find_vertex(topology, match[1]), find_vertex(topology, match[2])
    links = _between(topology, src, dst)
    if match[3] is not None:
        links = links[int(match[3]) : int(match[3]) + 1]
    if not links.size:
        peers = ", ".join(vertex_name(topology, p) for p in np.unique(topology.link_dst[topology.link_src == src])[:4])
        raise InputError(f"expected a link that exists ({match[1]} has links to {peers}, ...); got '{name.strip()}'")
    return links


def _alike(topology: Topology, tier: int, rail: int) -> Array:
    """The switches of one tier and rail."""
    return np.flatnonzero((topology.vertex_tier == tier) & (topology.vertex_rail == rail))


def _between(topology: Topology, src: int, dst: int) -> Array:
    return np.flatnonzero((topology.link_src == src) & (topology.link_dst == dst))


def _in_node(node: int, index: int, per_node: int, n_nodes: int, offset: int) -> int:
    return offset + node * per_node + index if node < n_nodes and index < per_node else -1
