"""What a plan among given GPUs needs on the packet engine: its edges, their flows, dependencies and counters, numbered from 0."""

from dataclasses import dataclass

import numpy as np

from netsim.config.network import Network
from netsim.errors import InputError
from netsim.kernels import routing
from netsim.kernels.packet import layout as k
from netsim.kernels.structs import LINK_TIERS, Array, Plan, Routes, Topology
from topologies.tables import paths


@dataclass
class Footprint:
    """E edges over F flows with D dependencies. A scale-up edge is one flow, an edge between NICs one per queue pair: for each connection
    that it stands for, all that carry its messages in turn.
    """

    launch_ps: int
    uses_scale_up: bool
    edges: Array  # int64[E, 32] rows of layout.EDGE
    n_tokens: int
    dep_edge: Array  # int32[D], and so on: see layout.State
    dep_lag: Array
    dep_token: Array
    rdep_edge: Array
    rdep_lag: Array
    rdep_token: Array
    src_nic: Array  # int64[F] -1: scale-up
    dst_nic: Array
    qp: Array
    nbytes: Array  # int64[F] of the whole call
    message: Array  # int64[F] of a full message
    messages: Array
    flow_edge: Array
    dst_gpu: Array
    to_gpu: Array
    paths: tuple[tuple[Array, Array], tuple[Array, Array]]
    dep_first: int = -1


def footprint(topology: Topology, routes: Routes, network: Network, plan: Plan, members: Array) -> Footprint:
    """Lay out a plan; raises `InputError` where two of its NICs cannot reach each other."""
    top, n = topology, plan.edge_src.size
    src, dst = members[plan.edge_src], members[plan.edge_dst]
    inside = plan.edge_nic_src < 0
    qps = np.where(inside, 1, np.minimum(plan.qps or network.qps, np.maximum(plan.edge_msgs, 1))).astype(np.int64)
    parts = np.where(inside, 1, plan.edge_weight * qps).astype(np.int64)
    flow_0 = np.cumsum(parts) - parts
    flow_edge = np.repeat(np.arange(n), parts)
    part = np.arange(flow_edge.size) - flow_0[flow_edge]
    lane, lanes, msgs = part % qps[flow_edge], qps[flow_edge], plan.edge_msgs[flow_edge].astype(np.int64)
    messages = (msgs - lane + lanes - 1) // lanes  # of those in turn, how many a queue pair carries
    full = (plan.edge_msg_bytes * np.where(inside, plan.edge_weight, 1)).astype(np.int64)[flow_edge]
    missing = full * msgs - (plan.edge_bytes * np.where(inside, plan.edge_weight, 1)).astype(np.int64)[flow_edge]
    nic_src = np.where(inside, -1, src // top.gpus_per_node * top.nics_per_node + plan.edge_nic_src)
    nic_dst = np.where(inside, -1, dst // top.gpus_per_node * top.nics_per_node + plan.edge_nic_dst)
    bus_out, bus_in = _bus(top, src, nic_src), _bus(top, dst, nic_dst)
    fp = Footprint(
        launch_ps=int(plan.launch_ps),
        uses_scale_up=bool(inside.any()),
        edges=np.zeros((n, 1 << k.EDGE), np.int64),
        n_tokens=0,
        **_dependencies(plan),  # type: ignore[arg-type]
        src_nic=nic_src[flow_edge].astype(np.int64),
        dst_nic=nic_dst[flow_edge].astype(np.int64),
        qp=(plan.edge_qp[flow_edge] + (part // lanes << 16) + (lane << 32)).astype(np.int64),
        nbytes=full * messages - missing * (lane == (msgs - 1) % lanes),
        message=full,
        messages=messages,
        flow_edge=flow_edge,
        dst_gpu=dst[flow_edge],
        to_gpu=bus_in[flow_edge],
        paths=((np.zeros(1, np.int64), np.zeros(0, np.int32)),) * 2,
    )
    fp.paths = _paths(topology, routes, fp, src[flow_edge])
    counters = 1 + np.bincount(plan.dep_idx, minlength=n).astype(np.int64)
    rows, tokens = fp.edges, counters + plan.edge_window
    back = _return_ps(topology, network, fp)[flow_0] if n else np.zeros(0, np.int64)
    rows[:, k.EDGE_MSGS], rows[:, k.WINDOW], rows[:, k.FLOW_0], rows[:, k.FLOWS] = plan.edge_msgs, plan.edge_window, flow_0, parts
    rows[:, k.SRC_GPU], rows[:, k.DST_GPU], rows[:, k.QPS] = src, dst, qps
    rows[:, k.DEP_0], rows[:, k.DEP_1] = plan.dep_ptr[:-1], plan.dep_ptr[1:]
    rdep_ptr = np.r_[0, np.cumsum(np.bincount(plan.dep_idx, minlength=n))]
    rows[:, k.RDEP_0], rows[:, k.RDEP_1] = rdep_ptr[:-1], rdep_ptr[1:]
    rows[:, k.CREDIT_PS] = back + bus_out + bus_in
    rows[:, k.DELAY_PS] = plan.edge_delay_ps if plan.edge_delay_ps.size else 0
    rows[:, k.REST_PS] = plan.edge_rest_ps if plan.edge_rest_ps.size else 0
    rows[:, k.TOKEN_0], rows[:, k.HAND_0] = np.cumsum(tokens) - tokens, counters
    rest = plan.edge_bytes - plan.edge_msg_bytes * (plan.edge_msgs - 1)
    rows[:, k.GAP_PS], rows[:, k.COPY_PS] = _time(plan.edge_msg_bytes, plan.edge_pace), _time(plan.edge_msg_bytes, plan.edge_burst)
    rows[:, k.COPY_LAST] = _time(rest, plan.edge_burst)
    rows[:, k.SCALE_UP_EDGE], rows[:, k.TO_NIC] = inside, bus_out
    across = routing.scale_up_links(top, src, dst)[1] * inside
    rows[:, k.ACROSS] = np.maximum(across, 0)
    rows[:, k.ACROSS_GPU] = routing.island_of(top, src) * (top.gpus_per_node // top.islands)
    fp.n_tokens = int(tokens.sum())
    return fp


def whole_paths(topology: Topology, routes: Routes, src: Array, dst: Array, qp: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return paths (ptr, links) out and back; raises `InputError` for pairs without a way and for paths of more than 8 links."""
    ahead, back = paths(topology, routes, src, dst, qp), paths(topology, routes, dst, src, qp)
    longest = max(int(np.diff(ptr).max(initial=0)) for ptr, _ in (ahead, back))
    if longest > 8:
        raise InputError(f"network.engine: expected paths of at most 8 links for the packet engine; got one of {longest}")
    return ahead, back


def _time(nbytes: Array, rate: Array) -> Array:
    """int64[E]: ps that bytes take at a rate; 0 where none is given."""
    return np.rint(nbytes * 1e12 / rate).astype(np.int64) if rate.size else np.zeros(nbytes.size, np.int64)


def _dependencies(plan: Plan) -> dict[str, Array]:
    """Dependencies by the edge that waits, and by the edge waited for; counter 0 of an edge is for messages that nothing depends on."""
    after = np.repeat(np.arange(plan.edge_src.size), np.diff(plan.dep_ptr)).astype(np.int32)
    by_before = np.argsort(plan.dep_idx, kind="stable")
    before = plan.dep_idx[by_before]
    counter = np.empty(after.size, np.int32)
    counter[by_before] = 1 + np.arange(after.size) - np.searchsorted(before, before)
    return {
        "dep_edge": plan.dep_idx.astype(np.int32), "dep_lag": plan.dep_lag.astype(np.int32), "dep_token": counter,
        "rdep_edge": after[by_before], "rdep_lag": plan.dep_lag[by_before].astype(np.int32), "rdep_token": counter[by_before],
    }  # fmt: skip


def _paths(topology: Topology, routes: Routes, fp: Footprint, src_gpu: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Paths out and back of every flow; those inside a node are GPU -> switch -> GPU, from island to island where they cross."""
    inside = fp.src_nic < 0
    ahead, back = whole_paths(topology, routes, fp.src_nic[~inside], fp.dst_nic[~inside], fp.qp[~inside])
    within = np.stack(routing.scale_up_links(topology, src_gpu[inside], fp.dst_gpu[inside]), axis=1)
    return _merge(inside, within, ahead), _merge(inside, within, back)


def _merge(inside: Array, within: Array, outside: tuple[Array, Array]) -> tuple[Array, Array]:
    length = np.zeros(inside.size, np.int64)
    length[inside], length[~inside] = (within >= 0).sum(axis=1), np.diff(outside[0])
    ptr = np.r_[0, np.cumsum(length)]
    links = np.empty(int(ptr[-1]), np.int32)
    mask = np.repeat(inside, length)
    links[mask], links[~mask] = within[within >= 0], outside[1]
    return ptr, links


def _return_ps(topology: Topology, network: Network, fp: Footprint) -> Array:
    """int64[F]: how long word from the receiver takes on an idle path; inside a node the latency alone."""
    ptr, links = fp.paths[1]
    rate = topology.link_rate[links]
    network_link = ~np.isin(topology.link_tier[links], (LINK_TIERS.index("scale_up"), LINK_TIERS.index("between")))
    on_wire = np.floor(network.control * 1e12 / np.where(rate > 0, rate, np.inf) + 0.5).astype(np.int64) * network_link
    total = np.r_[0, np.cumsum(topology.link_latency[links] + on_wire)]
    return total[ptr[1:]] - total[ptr[:-1]]


def _bus(topology: Topology, gpu: Array, nic: Array) -> Array:
    """int64[E]: latency of the buses between a GPU and a NIC of its node; 0 for scale-up edges."""
    total = np.zeros(gpu.size, np.int64)
    for i in np.flatnonzero(nic >= 0):
        for link in routing.host_links(topology, gpu[i], nic[i]):
            total[i] += topology.link_latency[link] if link >= 0 else 0
    return total
