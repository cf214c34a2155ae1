"""Number vertices and links of hosts and network in the order of `Topology`, and fill its arrays."""

from typing import NamedTuple

import numpy as np

from netsim.config.topology import Fabric
from netsim.kernels.components import components
from netsim.kernels.structs import GPU, NIC, SCALE_UP, SWITCH, Array, Topology


class Network(NamedTuple):
    """Switches and cables as builders describe them; network vertices are NICs 0 .. n_nics - 1, then switches."""

    switch_tier: Array  # int8[S], ascending
    switch_rail: Array  # int16[S], -1 where it serves all rails
    a: Array  # int[C] network vertex at the lower end of a cable
    b: Array  # int[C] network vertex at the upper end
    rate: Array  # float64[C] bytes/s
    cable: Array  # int64[C] propagation, ps


def bus_pairs(gpus: int, nics: int) -> tuple[Array, Array, Array]:
    """Return (gpu, nic) of every host bus of one node, GPU-major, and the GPU nearest to each NIC: neighbours by even spread."""
    nearest_nic = np.arange(gpus) * nics // gpus
    nearest_gpu = np.arange(nics) * gpus // nics if nics >= gpus else -(-np.arange(nics) * gpus // nics)
    pairs = np.unique(np.concatenate([np.arange(gpus) * nics + nearest_nic, nearest_gpu * nics + np.arange(nics)]))
    return pairs // nics, pairs % nics, nearest_gpu


def island_pairs(n_nodes: int, islands: int) -> tuple[Array, Array]:
    """Return (source, destination) of the links between islands, which are numbered over all nodes: node by node, by source."""
    here, there = np.nonzero(~np.eye(islands, dtype=bool))
    first = islands * np.arange(n_nodes)[:, None]
    return (first + here).ravel(), (first + there).ravel()


def assemble(fabric: Fabric, network: Network) -> Topology:
    """Return the `Topology` of `fabric.nodes` hosts on `network`."""
    n_nodes, gpus, nics = fabric.nodes, fabric.gpus_per_node, fabric.nics
    n_gpus, n_nics, n_switches = n_nodes * gpus, n_nodes * nics, network.switch_tier.size
    islands, inside = fabric.scale_up.islands, fabric.scale_up
    first_nic = n_gpus + n_nodes * islands
    first_switch = first_nic + n_nics
    tiers = [fabric.tier(t) for t in (1, 2, 3)]
    host_tiers = np.zeros(first_switch, np.int8)
    vertex_tier = np.concatenate([host_tiers, network.switch_tier.astype(np.int8)])
    nic_rail = np.tile(np.arange(nics, dtype=np.int16), n_nodes)
    no_rail = np.full(first_nic, -1, np.int16)

    # host links: every one up, then down in the same order
    gpu, nic, nearest_gpu = bus_pairs(gpus, nics)
    node = np.arange(n_nodes)
    bus_gpu = (node[:, None] * gpus + gpu).ravel()
    bus_nic = (node[:, None] * nics + nic).ravel()
    all_gpus = np.arange(n_gpus)
    up_src = [all_gpus, bus_gpu]
    up_dst = [n_gpus + all_gpus // (gpus // islands), first_nic + bus_nic]
    half, (here, there) = inside.latency // 2, island_pairs(n_nodes, islands)
    counts = [n_gpus, n_gpus, bus_gpu.size, bus_gpu.size, here.size]
    host_rate = np.repeat([inside.rate, inside.rate, fabric.host.rate, fabric.host.rate, inside.between or 0.0], counts)
    host_latency = np.repeat([half, inside.latency - half, fabric.host.latency, fabric.host.latency, inside.between_latency], counts)

    # cables: likewise; the pipeline of a switch is part of every link that enters it
    a, b = first_nic + network.a, first_nic + network.b
    pipeline = np.array([0] + [t.latency for t in tiers], np.int64)
    link_src = np.concatenate([up_src[0], up_dst[0], up_src[1], up_dst[1], n_gpus + here, a, b])
    link_dst = np.concatenate([up_dst[0], up_src[0], up_dst[1], up_src[1], n_gpus + there, b, a])
    cable_tier = 2 + np.minimum(np.minimum(vertex_tier[a], vertex_tier[b]), 2)
    sizes = [n_gpus, bus_gpu.size, a.size]
    starts = np.cumsum([0, 2 * n_gpus, 2 * bus_gpu.size + here.size])
    reverse = [np.concatenate([s + n + np.arange(n), s + np.arange(n)]) for s, n in zip(starts, sizes, strict=True)]
    reverse.insert(2, starts[2] - here.size + np.lexsort((here, there)))
    plane = components(n_nics + n_switches, np.asarray(network.a, np.int32), np.asarray(network.b, np.int32))

    return Topology(
        gpus_per_node=gpus,
        nics_per_node=nics,
        islands=islands,
        n_gpus=n_gpus,
        n_nodes=n_nodes,
        n_nics=n_nics,
        n_switches=n_switches,
        vertex_kind=np.repeat(np.array([GPU, SCALE_UP, NIC, SWITCH], np.int8), [n_gpus, n_nodes * islands, n_nics, n_switches]),
        vertex_tier=vertex_tier,
        vertex_rail=np.concatenate([no_rail, nic_rail, network.switch_rail.astype(np.int16)]),
        vertex_plane=np.concatenate([no_rail, plane.astype(np.int16)]),
        vertex_buffer=np.array([0] + [t.buffer for t in tiers], np.int64)[vertex_tier],
        link_src=link_src.astype(np.int32),
        link_dst=link_dst.astype(np.int32),
        link_rate=np.concatenate([host_rate, network.rate, network.rate]).astype(np.float64),
        link_latency=np.concatenate(
            [host_latency, network.cable + pipeline[vertex_tier[b]], network.cable + pipeline[vertex_tier[a]]]
        ).astype(np.int64),
        link_tier=np.concatenate([np.repeat([0, 1, 5], [2 * n_gpus, 2 * bus_gpu.size, here.size]), np.tile(cable_tier, 2)]).astype(np.int8),
        link_reverse=np.concatenate(reverse).astype(np.int32),
        gpu_nic_ptr=np.searchsorted(bus_gpu, np.arange(n_gpus + 1)).astype(np.int32),
        gpu_nic_idx=bus_nic.astype(np.int32),
        nic_gpu=(node[:, None] * gpus + nearest_gpu).ravel().astype(np.int32),
        nic_rail=nic_rail,
    )
