"""How a protocol lays data into buffers: bytes on the wire, chunks and slices.

Every connection has eight slots per protocol. Simple sends data as it is; LL pairs each 4 bytes with a 4-byte flag; LL128 has one flag
word in sixteen. A ring of Simple groups four slots to a chunk and sends it as two slices; all others send one slot at a time. Source: NCCL
src/include/device.h, src/device/primitives.h.
"""

import math
from typing import NamedTuple

from netsim.config.nccl import PROTOCOLS, Nccl

SLOTS = 8
LL128_LINE, LL128_DATA = 2048, 1920
"""Bytes that a warp writes at once with LL128, and the data in them."""


class Geometry(NamedTuple):
    """Sizes of a protocol in bytes of data."""

    protocol: str
    slot: int
    ring_chunk: int
    grain: int

    @property
    def at_once(self) -> int:
        """Bytes on the wire that a thread block moves before the next can go on: LL 16 in each of 512 threads, LL128 2 KiB in each of 20
        warps, a whole message with Simple (NCCL src/device/prims_ll.h, prims_ll128.h).
        """
        return {"ll": 512 * 16, "ll128": 20 * LL128_LINE}.get(self.protocol, 1 << 62)

    @property
    def number(self) -> int:
        """Place of the protocol in rows of three."""
        return PROTOCOLS.index(self.protocol)

    def wire(self, nbytes: int) -> int:
        """Bytes on the wire for one message of `nbytes` data."""
        if self.protocol == "ll":
            return 16 * math.ceil(nbytes / 8)
        return LL128_LINE * math.ceil(nbytes / LL128_DATA) if self.protocol == "ll128" else nbytes


def geometry(protocol: str, nccl: Nccl) -> Geometry:
    """Return the geometry that the buffer sizes give."""
    if protocol == "ll":
        slot = nccl.NCCL_LL_BUFFSIZE // SLOTS // 2
        return Geometry(protocol, slot, slot, 16)
    if protocol == "ll128":
        slot = nccl.NCCL_LL128_BUFFSIZE // SLOTS * 15 // 16
        return Geometry(protocol, slot, slot, LL128_DATA)
    slot = nccl.NCCL_BUFFSIZE // SLOTS
    return Geometry(protocol, slot, 4 * slot, 512)


def up16(n: float) -> int:
    """Round up to 16 bytes."""
    return 16 * math.ceil(n / 16)


def slices(chunk: int, nominal: int, parts: int) -> tuple[int, int]:
    """Cut a chunk of Simple into slices: bytes of one, and how many carry data; `nominal` is the full slice."""
    size = max(up16(chunk / parts), nominal // 32)
    return size, max(1, math.ceil(chunk / size))
