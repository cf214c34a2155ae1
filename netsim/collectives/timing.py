"""From edges to time: how fast every edge moves, and how long that takes a lone call on an idle machine.

Both engines see the same messages. An edge has a *pace*, the share of its thread block and of its ports that is left for it when the whole
call runs; a message of it moves at the *burst*, the share of those that move with it at the same moment; and it is at hand a *delay*
later: flag, proxy, NIC, wire. The packet engine plays exactly that, message by message. Here the same recursion
(`netsim.kernels.messages`) is played once per plan, for one edge of each kind, on an idle machine, which gives the flow engine

    t = launch + max over bundles(heaviest edge / cap) + fill

exact where a call is alone, and also where it gets half of its share of the network: the fill is what does not grow when the network is
half as fast, the cap is what is left. So latency that transfer hides, windows that bind, and pipelines that drain are all in `cap` and
`fill`, which no one has to derive for an algorithm.

* launch: start of the kernel and of the protocol, and the last phase of each thread block, in which it only receives: nothing moves.
* LL and LL128 carry a flag in every line: a thread block forwards what its threads move at once as it comes, so inside a node the next
  one starts when that much has come, not the whole message. Proxies send whole messages.
* A message between nodes is written to a buffer by its thread block and read from there by the NIC, and likewise at the receiver: each
  side has the slots of a connection, so twice as many messages may be under way (NCCL src/transport/net.cc).

The figures stand in `netsim.collectives.figures`.
"""

from typing import NamedTuple

import numpy as np

from netsim.collectives.call import Call
from netsim.collectives.edges import Edges
from netsim.kernels import messages
from netsim.kernels.structs import Plan

PS_PER_US = 1_000_000


class Rates(NamedTuple):
    """How the thread blocks of an algorithm move data."""

    block: float  # bytes/s that a thread block moves on the heaviest edge of its bundle, all its streams at work
    burst: float | None = None  # the same for one message over NVLink; as `block` where left out
    in_phase: bool = True  # whether all edges of a port are busy at the same moments (rings), or a first message meets only those that do
    # the same, and later ones others as often as these are busy (trees)
    staged: bool = False  # whether what leaves a node is first written to a buffer by the thread block
    nvlink: float | None = None  # share of the line rate that NVLink reaches, where not that of the figures
    overhead_us: tuple[float, float] = (0.0, 0.0)  # time per call in which nothing moves over NVLink and over the network
    hops_us: tuple[float, float] | None = None  # latency per hop over NVLink and over the network, where not that of the figures


def close(call: Call, edges: Edges, rates: Rates, drain_us: float = 0.0) -> Plan:
    """Close a plan; `drain_us` is the time of the last phase, which only receives."""
    figures, p = call.figures, call.geometry.number
    edges.pack_bundles()
    table = edges.table()
    over_net = table["nic_src"] >= 0
    heaviest = np.zeros(int(table["bundle"].max(initial=-1)) + 1)
    np.maximum.at(heaviest, table["bundle"], table["nbytes"])
    share = table["nbytes"] / np.maximum(heaviest[table["bundle"]], 1) if edges.count else np.zeros(0)
    far_off = across(call, table)
    slower = np.minimum(1.0, np.where(far_off, across_rate(call) / rates.block, 1.0))  # of a thread block, to another island
    pace = np.minimum(port_pace(call, table, rates, None), rates.block * share * slower)
    near, far = rates.hops_us or (figures.nvlink_hop_us[p], figures.net_hop_us[p])
    written = table["msg_bytes"] / (rates.block * share) * 1e6 if rates.staged else np.zeros(edges.count)
    hop = np.where(over_net, far - figures.wire_us[1] + written, near - figures.wire_us[0])
    delay = np.rint(np.maximum(hop, 0.1) * PS_PER_US).astype(np.int64)
    at_once = np.minimum(table["msg_bytes"], call.geometry.at_once)
    block = (rates.burst or rates.block) * share * slower * table["msg_bytes"] / at_once
    bare = rates._replace(overhead_us=(0.0, 0.0))
    port = port_pace(call, table, bare, None)
    if not rates.in_phase:
        others = (1 - 1 / table["msgs"]) * np.minimum(pace / port, 1)
        port = 1 / (others / port + (1 - others) / port_pace(call, table, bare, edges.alike(delay)))
    burst = np.maximum(pace, np.where(over_net, port, np.minimum(port * table["msg_bytes"] / at_once, block)))
    whole = np.where(over_net, burst, burst * at_once / table["msg_bytes"])
    rest = (table["nbytes"] - table["msg_bytes"] * (table["msgs"] - 1)) * (1 / np.maximum(pace, whole) - 1 / burst)
    starts = {"p2p": figures.p2p_start_us[p], "nvls": figures.nvls_start_us, "nvls_tree": figures.nvls_start_us}
    start = starts.get(call.algorithm, figures.start_us[p])
    launch = round((figures.launch_us + start + drain_us) * PS_PER_US)
    sms = 0 if call.nccl.sm_free_collectives else call.channels
    plan = edges.close(call.algorithm, call.geometry.protocol, sms, launch, pace, burst, delay, np.rint(rest * 1e12).astype(np.int64))
    wire = call.platform.wire_us or figures.wire_us
    return timed(plan, (np.where(over_net, wire[1], wire[0]) + np.where(far_off, call.platform.between_us, 0.0)) * PS_PER_US)


def across(call: Call, table: dict[str, np.ndarray]) -> np.ndarray:
    """Say which edges go from one island of a node to another."""
    island = call.place.island
    return (table["nic_src"] < 0) & (island[table["src"]] != island[table["dst"]])


def across_rate(call: Call) -> float:
    """Return what a thread block moves to another island: copies, reductions, or the mean of both in an all-reduce."""
    copy, reduction = call.figures.across_rate
    if call.op == "all_reduce":
        return 2 / (1 / copy + 1 / reduction)
    return reduction if call.op in ("reduce_scatter", "reduce") else copy


def port_pace(call: Call, table: dict[str, np.ndarray], rates: Rates, phase: np.ndarray | None) -> np.ndarray:
    """Return the pace of each edge, bytes/s, that its busier port allows when all edges of the port move together, or all of one phase."""
    place, platform, figures = call.place, call.platform, call.figures
    load = (table["nbytes"] * table["weight"]).astype(np.float64)
    over_net = table["nic_src"] >= 0
    rate = np.where(over_net, platform.nic_rate * figures.nic_efficiency, platform.nvlink * (rates.nvlink or figures.nvlink_efficiency))
    overhead = np.where(over_net, rates.overhead_us[1], rates.overhead_us[0]) * 1e-6
    busy = np.zeros(len(load))
    for end, nic in (("src", "nic_src"), ("dst", "nic_dst")):
        port = np.where(over_net, place.ranks + place.node[table[end]] * max(platform.nics_per_node, 1) + table[nic], table[end])
        if phase is not None:
            port = np.unique(port * len(load) + phase, return_inverse=True)[1].ravel()
        total = np.bincount(port, weights=load) if len(load) else load
        busy = np.maximum(busy, total[port] / rate + overhead)
    far_off = across(call, table)
    if far_off.any():  # one link carries all from island to island
        pair = place.island[table["src"]] * np.int64(len(load) + place.ranks) * 2 + place.island[table["dst"]]
        if phase is not None:
            pair = pair * (int(phase.max()) + 1) + phase
        _, link = np.unique(pair[far_off], return_inverse=True)
        total = np.bincount(link.ravel(), weights=load[far_off])
        busy[far_off] = np.maximum(busy[far_off], total[link.ravel()] / platform.between)
    return table["nbytes"] / np.maximum(busy, 1e-30)


def timed(plan: Plan, wire_ps: np.ndarray) -> Plan:
    """Return the plan with the caps and the fill that follow from its messages; `wire_ps` float64[E] latency of each edge's links."""
    heaviest = np.zeros(int(plan.edge_bundle.max(initial=-1)) + 1)
    if not len(heaviest):
        return plan
    np.maximum.at(heaviest, plan.edge_bundle, plan.edge_bytes)
    alone, least = _ends(plan, wire_ps, 1.0)
    halved, longer = _ends(plan, wire_ps, 0.5)
    last = int(alone.argmax())
    fill = min(max(0.0, halved[last] - longer[last]), max(0.0, alone[last] - least.max()))
    cap = heaviest / np.maximum(alone - fill, least) * 1e12
    return plan._replace(fill_ps=round(fill), bundle_cap=cap)


def _ends(plan: Plan, wire_ps: np.ndarray, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Return when each bundle ends, and how long its slowest edge moves, ps, with the network at `factor` of its pace."""
    net = plan.edge_nic_src >= 0
    factor_of = np.where(net if net.any() else True, factor, 1.0) * 1e-12
    gap, copy = plan.edge_msg_bytes / (plan.edge_pace * factor_of), plan.edge_msg_bytes / (plan.edge_burst * factor_of)
    rest = plan.edge_bytes - plan.edge_msg_bytes * (plan.edge_msgs - 1)
    last, hop = rest / (plan.edge_burst * factor_of), plan.edge_delay_ps + wire_ps
    deps = plan.dep_ptr.astype(np.int64), plan.dep_idx.astype(np.int64), plan.dep_lag.astype(np.int64)
    group = messages.alike((plan.edge_msgs, plan.edge_window, gap // 1000, copy // 1000, last // 1000, hop // 1000, net), *deps)
    which, both = messages.folded(group, *deps)
    end = messages.play(
        plan.edge_msgs[which].astype(np.int64), plan.edge_window[which].astype(np.int64), gap[which], copy[which], last[which], hop[which],
        wire_ps[which], *both,
    ) + plan.edge_rest_ps[which]  # fmt: skip
    bundles = int(plan.edge_bundle.max()) + 1
    ends, least = np.zeros(bundles), np.zeros(bundles)
    np.maximum.at(ends, plan.edge_bundle, end[group])
    np.maximum.at(least, plan.edge_bundle, plan.edge_bytes / (plan.edge_pace * factor_of))
    return ends, least


def idle_us(plan: Plan) -> float:
    """Return the time of a lone call on an idle network, us."""
    heaviest = np.zeros(len(plan.bundle_cap))
    np.maximum.at(heaviest, plan.edge_bundle, plan.edge_bytes)
    transfer = float((heaviest / plan.bundle_cap).max()) if len(heaviest) else 0.0
    return (plan.launch_ps + plan.fill_ps) / PS_PER_US + transfer * 1e6
