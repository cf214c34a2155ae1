"""How many channels a communicator has, and which bytes each of them carries."""

import math
from functools import lru_cache

import numpy as np

from netsim.collectives.graphs import Graphs
from netsim.collectives.platform import Layout, Platform
from netsim.config.nccl import Nccl


def compute_channels(found: Graphs, platform: Platform, place: Layout, nccl: Nccl) -> int:
    """Return the channels of collectives: each search channel twice (for the two trees), again where rings are fast and few."""
    channels = 2 * min(len(found.ring.channels), len(found.tree.channels))
    if place.nodes > 1 and platform.arch != "ampere" and found.ring.bw_intra > 45 and channels < 16:
        channels *= 2
    least, most = nccl.bounds()
    return max(least, min(channels, most, 64))


def nvls_channels(platform: Platform, place: Layout, nccl: Nccl) -> int:
    """Return the thread blocks of NVLS and NVLSTree."""
    if nccl.NCCL_NVLS_NCHANNELS:
        return nccl.NCCL_NVLS_NCHANNELS
    count = 16 if platform.arch != "blackwell" else 32 if place.nodes == 2 else 24
    least, most = nccl.bounds()
    return max(least, min(count, most))


def _up16(n: float) -> int:
    return 16 * math.ceil(n / 16)


@lru_cache(maxsize=4096)
def split(nbytes: int, traffic: int, channels: int) -> tuple[int, ...]:
    """Cut a buffer into contiguous pieces, one per channel, in cells of 32 KiB of traffic; `traffic` is bytes moved per byte of the buffer.

    Fewer channels than asked for come back where the cells run out. Source: NCCL src/enqueue.cc, continuous byte distribution.
    """
    per_channel = _up16(max(traffic * nbytes, 32768) / channels)
    cell = _up16(math.ceil(32768 / traffic))
    cells = max(1, math.ceil(nbytes / cell))
    each = min(cells, math.ceil(per_channel / (cell * traffic)))
    used = math.ceil(cells / each)
    sizes = np.full(used, each * cell, np.int64)
    sizes[-1] = max(0, nbytes - (used - 1) * each * cell)
    return tuple(int(s) for s in sizes)
