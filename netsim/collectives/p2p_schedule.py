"""In which order a rank meets its peers in a group of sends and receives, and on which channels.

Nodes are visited at the offsets of a quadratic sequence (0, 1, 3, 6, ... modulo the next power of two), the GPUs of a node at offsets 0,
1, 2, ...; in each round every rank sends to `+offset` and receives from `-offset`, so that no two ranks send to the same GPU. Rounds take
their first channel in bit-reversed order, which spreads those that run at once. Source: NCCL src/init.cc (p2pSchedule) and
src/include/comm.h (channel of a round).
"""

import math
from typing import NamedTuple

import numpy as np

from netsim.collectives.platform import Platform
from netsim.config.nccl import Nccl

SLOTS_IN_FLIGHT = 8
BUS_CHANNELS = 2
"""Channels to a peer that is not reached over NVLink (NCCL src/graph/paths.cc, ncclTopoGetNchannels)."""


class Round(NamedTuple):
    """One round: offset of the node and of the GPU in it."""

    node: int
    local: int


class Transfer(NamedTuple):
    """How a message to one peer is cut: channels (parts), bytes on each, bytes of a step."""

    parts: int
    nbytes: int
    step: int


def power_of_two(n: int) -> int:
    """Smallest power of two that is at least n."""
    return 1 << max(0, math.ceil(n) - 1).bit_length()


def reverse_bits(value: int, bits: int) -> int:
    """`value` read from its lowest bit up, in `bits` bits."""
    return int(f"{value % (1 << bits):0{bits}b}"[::-1], 2) if bits else 0


def node_offsets(nodes: int) -> list[int]:
    """Offsets of nodes in the order in which they are visited."""
    size, offset, out = power_of_two(nodes), 0, []
    for step in range(1, size + 1):
        if offset < nodes:
            out.append(offset)
        offset = (offset + step) % size
    return out


def rounds(nodes: int, width: int, group: int = 8) -> list[Round]:
    """All rounds in order; `group` GPUs of a node are met before the next node."""
    size = max(k for k in range(1, min(group, width) + 1) if width % k == 0)
    return [Round(d, first + k) for first in range(0, width, size) for d in node_offsets(nodes) for k in range(size)]


def channel_base(meeting: Round, nodes: int, width: int, channels: int) -> int:
    """First channel of a round."""
    group = math.ceil(width / SLOTS_IN_FLIGHT)
    index = node_offsets(nodes).index(meeting.node) * group + meeting.local // SLOTS_IN_FLIGHT if nodes > 1 else meeting.local
    return reverse_bits(index, channels.bit_length() - 1)


def p2p_channels(total: int, platform: Platform, nodes: int, ranks: int, nccl: Nccl, over_bus: bool = False) -> tuple[int, int]:
    """Return the channels of sends and receives and those that one peer may use; `over_bus`: GPUs of a node are not all on one NVLink."""
    channels = min(max(power_of_two(total), nccl.NCCL_MIN_P2P_NCHANNELS), power_of_two(nccl.NCCL_MAX_P2P_NCHANNELS))
    most = min(BUS_CHANNELS if over_bus else channels, channels)
    if nodes == 1:
        return channels, most
    own = max(1, len(platform.nics_of(0)))
    peer = nccl.NCCL_NCHANNELS_PER_NET_PEER or max(own, math.ceil(math.floor(platform.nic_gbs) / nccl.NCCL_P2P_PER_CHANNEL_NET_BW))
    peer = min(power_of_two(peer), most)
    while peer > 1 and peer * math.ceil(ranks / SLOTS_IN_FLIGHT) > channels:
        peer //= 2
    return channels, peer


def transfer(
    nbytes: int, across: bool, nodes: int, ranks: int, channels: tuple[int, int], nccl: Nccl, over_bus: bool = False
) -> Transfer:
    """Cut a message of `nbytes` to one peer, on the network (`across`) or not, into parts and steps; `over_bus` as above."""
    total, peer = channels
    inside = nccl.NCCL_P2P_PCI_CHUNKSIZE if over_bus else nccl.NCCL_P2P_NVL_CHUNKSIZE
    chunk = min(inside if nodes == 1 else nccl.NCCL_P2P_NET_CHUNKSIZE, nccl.NCCL_BUFFSIZE // SLOTS_IN_FLIGHT)
    fewest = peer
    while fewest > 1 and fewest * ranks > total:
        fewest //= 2
    smallest, largest = (chunk // 2, chunk) if nodes > 1 else (chunk // 8, 32 * chunk)
    parts = max(1, min(fewest, math.ceil(nbytes / smallest)))
    while parts * 2 <= peer and _part(nbytes, parts) > largest:
        parts *= 2
    step = chunk
    if across:
        step = chunk // 4 if nbytes < chunk else chunk // 2 if nbytes < 8 * chunk else chunk
    part = _part(nbytes, parts)
    parts = max(1, math.ceil(nbytes / part))
    return Transfer(parts, -(-nbytes // parts), min(step, -(-nbytes // parts)))


def _part(nbytes: int, parts: int) -> int:
    return max(4096, 4096 * math.ceil(nbytes / parts / 4096))


def bases(nodes: int, width: int, channels: int) -> np.ndarray:
    """First channels as int64[nodes, width]: row d, column delta."""
    order = {d: i for i, d in enumerate(node_offsets(nodes))}
    out = np.zeros((nodes, width), np.int64)
    for d in range(nodes):
        for k in range(width):
            index = order[d] * math.ceil(width / SLOTS_IN_FLIGHT) + k // SLOTS_IN_FLIGHT if nodes > 1 else k
            out[d, k] = reverse_bits(index, channels.bit_length() - 1)
    return out
