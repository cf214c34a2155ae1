"""Buffers of switches: what each input may hold and each output may queue, and everything about them that cannot work."""

import numpy as np

from netsim.config.network import Network
from netsim.errors import InputError
from netsim.kernels.routing import first_nic
from netsim.kernels.structs import GPU, NIC, SWITCH, Array, Topology
from topologies.names import link_name, vertex_name

UNLIMITED = 1 << 60
MOST_XOFF = 1 << 20


def thresholds(topology: Topology, network: Network) -> Array:
    """Return int64[L, 6] per link: xoff, xon, limit (bytes of this input in the switch), delay (ps, from a decision at the far end until
    this end obeys), room (bytes in the queue of this output), credits (bytes that this end may send unasked).

    Where inputs share the buffer, xoff is 0, xon how far below the threshold of the moment a sender may go on, and limit the headroom.
    Raises `InputError` where a buffer is too small for a packet or for the thresholds.
    """
    top, mtu = topology, network.payload + network.header
    table = np.full((top.link_src.size, 6), UNLIMITED, np.int64)
    link = np.flatnonzero((top.vertex_kind[top.link_src] >= NIC) & (top.vertex_kind[top.link_dst] == SWITCH) & (top.link_rate > 0))
    back = top.link_reverse[link]
    ports = np.bincount(top.link_dst[link], minlength=top.vertex_kind.size)
    share = top.vertex_buffer[top.link_dst[link]] // ports[top.link_dst[link]]
    per_byte = 1e12 / np.where(top.link_rate[back] > 0, top.link_rate[back], top.link_rate[link])
    # a NIC takes as long to obey as the switch at the other end would; IEEE 802.3 annex 31B allows it far longer
    delay = np.maximum(top.link_latency[back], top.link_latency[link]) + np.floor(network.control * per_byte + 0.5).astype(np.int64)
    table[link, 3] = delay
    small = np.flatnonzero(share < mtu)
    if small.size:
        where, have = vertex_name(top, int(top.link_dst[link[small[0]]])), int(share[small[0]])
        raise InputError(f"topology.switch.buffer: expected room for a packet of {mtu} B at every port; got {have} B per port at {where}")
    if network.flow_control == "none" and network.sharing == "static":
        out = np.flatnonzero(top.vertex_kind[top.link_src] == SWITCH)
        n_out = np.bincount(top.link_src[out], minlength=top.vertex_kind.size)
        table[out, 4] = top.vertex_buffer[top.link_src[out]] // n_out[top.link_src[out]]
    if network.flow_control == "credits":
        table[link, 5] = _credits(topology, network, link, share, mtu)
    if network.flow_control == "pfc":
        table[link, :3] = _pause(topology, network, link, share, delay, mtu)
    return table


def _credits(topology: Topology, network: Network, link: Array, share: Array, mtu: int) -> Array:
    if network.credits is None:
        return share
    if network.credits < mtu:
        raise InputError(f"network.credits: expected at least a packet of {mtu} B; got {network.credits} B")
    tight = np.flatnonzero(share < network.credits)
    if tight.size:
        where = vertex_name(topology, int(topology.link_dst[link[tight[0]]]))
        raise InputError(
            f"network.credits: expected at most the {int(share[tight[0]])} B that a port of {where} has; got {network.credits} B"
        )
    return np.full(link.size, network.credits)


def _pause(topology: Topology, network: Network, link: Array, share: Array, delay: Array, mtu: int) -> Array:
    """xoff, xon and limit of inputs. Between crossing xoff and silence pass the pause's way, a packet under way, and what is on the
    cable.
    """
    pfc = network.pfc
    needed = np.ceil((delay + topology.link_latency[link]) * topology.link_rate[link] / 1e12).astype(np.int64) + 2 * mtu
    headroom = needed if pfc.headroom is None else np.full(link.size, pfc.headroom)
    if network.sharing == "dynamic":
        offset = 2 * mtu if pfc.xon_offset is None else pfc.xon_offset
        table = np.stack([np.zeros(link.size, np.int64), np.full(link.size, offset), headroom], axis=1)
        _room_for_pool(topology, link, headroom, mtu)
        return table
    xoff = np.minimum(MOST_XOFF, share - headroom) if pfc.xoff is None else np.full(link.size, pfc.xoff)
    tight = np.flatnonzero((xoff < mtu) | (xoff + headroom > share))
    if tight.size:
        i = tight[0]
        if pfc.xoff is None and pfc.headroom is not None:
            raise InputError(
                f"network.pfc.headroom: expected to leave a packet ({mtu} B) of the {int(share[i])} B of buffer per port; "
                f"got {pfc.headroom} B at {link_name(topology, int(link[i]))}"
            )
        raise InputError(
            f"network.pfc: expected xoff of at least a packet ({mtu} B) and xoff + headroom of at most the {int(share[i])} B of buffer "
            f"per port; got {int(xoff[i])} B + {int(headroom[i])} B at {link_name(topology, int(link[i]))}"
        )
    xon = np.maximum(xoff - 2 * mtu, 0) if pfc.xon is None else np.full(link.size, pfc.xon)
    if (xon > xoff).any():
        raise InputError(f"network.pfc.xon: expected at most xoff ({int(xoff[xon > xoff][0])} B); got {pfc.xon} B")
    return np.stack([xoff, xon, xoff + headroom], axis=1)


def _room_for_pool(topology: Topology, link: Array, headroom: Array, mtu: int) -> None:
    """Raise `InputError` where the headrooms of a switch leave no packet's room to share."""
    switch, n = topology.link_dst[link], topology.vertex_kind.size
    total, ports = np.bincount(switch, headroom, n).astype(np.int64), np.bincount(switch, minlength=n)
    tight = np.flatnonzero((ports > 0) & (topology.vertex_buffer - total < mtu))
    if tight.size:
        v = int(tight[0])
        raise InputError(
            f"network.pfc.headroom: expected a packet ({mtu} B) and the headroom of every port in the "
            f"{int(topology.vertex_buffer[v])} B of buffer of {vertex_name(topology, v)}; "
            f"got {int(ports[v])} ports with {int(total[v])} B of headroom"
        )


def bus_rate(topology: Topology, network: Network) -> Array:
    """float64[L]: the rate at which the bus between GPU and NIC lets the NIC's links carry packets; infinite elsewhere.

    The bus moves payload only. Ports of a NIC share it equally. A NIC that sends fetches data no faster, and one that cannot hand them on
    lets its switch send no faster: on either side link and bus follow each other as one link of the lesser rate.
    """
    top, rate = topology, np.full(topology.link_rate.size, np.inf)
    src, dst, first = top.vertex_kind[top.link_src], top.vertex_kind[top.link_dst], first_nic(top)
    out, into = top.link_src - first, top.link_dst - first
    for cable, nic, bus, bus_nic in (
        ((src == NIC) & (dst == SWITCH), out, (src == GPU) & (dst == NIC), into),
        ((src == SWITCH) & (dst == NIC), into, (src == NIC) & (dst == GPU), out),
    ):
        widest = np.zeros(top.n_nics)
        np.maximum.at(widest, bus_nic[bus], top.link_rate[bus])
        ports = np.bincount(nic[cable], minlength=top.n_nics)
        share = widest[nic[cable]] * (network.payload + network.header) / network.payload / ports[nic[cable]]
        rate[cable] = np.where(share > 0, share, np.inf)
    return rate


def window(topology: Topology, network: Network, links: Array) -> tuple[int, int]:
    """Return (longest window, least latency in ps) over `links`: how much may be played at once, and how soon anything can arrive.

    A window is no longer than the shortest latency of a link that does not lead to a host. Raises `InputError` for a link without latency.
    """
    latency = topology.link_latency[links]
    if latency.size and latency.min() <= 0:
        name = link_name(topology, int(links[np.argmin(latency)]))
        raise InputError(
            f"topology: expected a latency above 0 on every link, because windows are as long as the shortest; got 0 ps on {name}"
        )
    kind = topology.vertex_kind[topology.link_dst[links]]
    longest = int(latency[(kind != NIC) & (kind != GPU)].min(initial=UNLIMITED))
    return min(longest, network.window or longest), int(latency.min(initial=UNLIMITED))
