"""From edges to time: what the links of an idle machine allow, and the latency that no bandwidth hides.

    t = launch + max over bundles(heaviest edge / pace) + fill

* launch: start of the kernel and of the protocol, and the last phase of each thread block, in which it only receives: nothing moves.
* pace: a bundle goes no faster than its thread blocks move bytes, and no faster than its share of the busiest NVLink port or NIC that it
  crosses, at the rate that payload reaches on them (line rate x efficiency). An engine may find less, where others use the same links.
* fill: what the latency of the hops adds to the transfer. An engine that plays single messages leaves it out and delays each by
  `edge_delay_ps`.

The figures stand in `netsim.collectives.figures`.
"""

import numpy as np

from netsim.collectives.call import Call
from netsim.collectives.edges import Edges
from netsim.kernels.structs import Plan

PS_PER_US = 1_000_000


def close(
    call: Call,
    edges: Edges,
    fill_us: float,
    channel_rate: float,
    drain_us: float = 0.0,
    nvlink: float | None = None,
    overhead_us: tuple[float, float] = (0.0, 0.0),
    hops_us: tuple[float, float] | None = None,
) -> Plan:
    """Close a plan.

    `channel_rate` bytes/s that a thread block puts on the heaviest edge of its bundle; `drain_us` time of the last phase, which only
    receives; `nvlink` share of the line rate, where it is not that of the figures; `overhead_us` time per call in which the bundles move
    nothing over NVLink and over the network; `hops_us` latency per hop over NVLink and over the network, likewise.
    """
    figures, p = call.figures, call.geometry.number
    edges.pack_bundles()
    table = edges.table()
    pace = np.minimum(link_pace(call, table, nvlink or figures.nvlink_efficiency, overhead_us), channel_rate)
    near, far = hops_us or (figures.nvlink_hop_us[p], figures.net_hop_us[p])
    hop = np.where(table["nic_src"] < 0, near - figures.wire_us[0], far - figures.wire_us[1])
    delay = np.rint(np.maximum(hop, 0.1) * PS_PER_US).astype(np.int64)
    start = (figures.p2p_start_us if call.algorithm == "p2p" else figures.start_us)[p]
    launch = round((figures.launch_us + start + drain_us) * PS_PER_US)
    sms = 0 if call.nccl.sm_free_collectives else call.channels
    return edges.close(call.algorithm, call.geometry.protocol, sms, launch, round(fill_us * PS_PER_US), pace, delay)


def link_pace(
    call: Call, table: dict[str, np.ndarray], nvlink_efficiency: float, overhead_us: tuple[float, float] = (0.0, 0.0)
) -> np.ndarray:
    """Return the pace of each bundle that its busiest link allows when the call is alone, bytes/s on its heaviest edge."""
    place, platform, figures = call.place, call.platform, call.figures
    load = table["nbytes"] * table["weight"]
    over_net = table["nic_src"] >= 0
    gpu_rate, nic_rate = platform.nvlink * nvlink_efficiency, platform.nic_rate * figures.nic_efficiency
    busy = np.zeros(len(load))
    for end, nic in (("src", "nic_src"), ("dst", "nic_dst")):
        port = np.where(over_net, place.ranks + place.node[table[end]] * max(platform.nics_per_node, 1) + table[nic], table[end])
        total = np.bincount(port, weights=load)
        busy = np.maximum(
            busy, total[port] / np.where(over_net, nic_rate, gpu_rate) + np.where(over_net, overhead_us[1], overhead_us[0]) * 1e-6
        )
    bundles = int(table["bundle"].max()) + 1 if len(load) else 0
    seconds, heaviest = np.zeros(bundles), np.zeros(bundles)
    np.maximum.at(seconds, table["bundle"], busy)
    np.maximum.at(heaviest, table["bundle"], table["nbytes"])
    return heaviest / np.maximum(seconds, 1e-30)


def idle_us(plan: Plan) -> float:
    """Return the time of a lone call on an idle network, us."""
    heaviest = np.zeros(len(plan.bundle_cap))
    np.maximum.at(heaviest, plan.edge_bundle, plan.edge_bytes)
    transfer = float((heaviest / plan.bundle_cap).max()) if len(heaviest) else 0.0
    return (plan.launch_ps + plan.fill_ps) / PS_PER_US + transfer * 1e6
