"""Physical figures of GPU generations that decide how long a collective takes: the only calibrated numbers of the collectives.

Everything else follows from NCCL's own geometry and tables. Each figure belongs to a GPU generation, never to one table of measurements or
to a message size. Where they come from (docs/collectives.md has the tables and the errors that remain):

* launch, LL hop: intercept and slope of small all-gathers and all-reduces over their steps (2, 4 and 8 GPUs), which are straight lines.
* NVLink efficiency and the rate of a Simple thread block: time per byte of large all-gathers on 2, 4 and 8 GPUs, (R - 1) / link + 1 /
  blocks; two equations, the third holds within 1 % on all three generations.
* NVLS: time of a loop over its size (chunks of 16 to 128 KiB on Hopper) is a straight line: barriers and rate of a thread block.
* Starts of protocols: what is left of the intercepts at large sizes. LL and LL128 hops over the network: trees and rings of 2 and 4 nodes.
* Simple over the network: sends and receives of 2 KiB to 1 MiB between 2 nodes.
* A thread block to a GPU of another CPU socket, where NCCL goes through host memory: rings over two sockets, which have two thread blocks.
  Ampere: all-gathers 14.5 GB/s, reduce-scatters 11.9 GB/s over 8 A100 (MooreThreads/SimuMax, configs/system/a100_pcie.json, in GiB/s;
  all-reduces fit, 13.4 GB/s). Blackwell: all-reduces 22.2 GB/s over 8 GPUs on two EPYC of PCIe 5, and 37.6 GB/s with eight thread blocks
  (NCCL tuning guide of the RTX PRO 6000 community wiki). Hopper, of the same PCIe: as Blackwell.
"""

from typing import NamedTuple

from netsim.config.nccl import Nccl

PerProtocol = tuple[float, float, float]


class Figures(NamedTuple):
    """What hardware and driver of one GPU generation do; triples stand for LL, LL128, Simple. Times in us, rates in bytes/s."""

    launch_us: float  # kernel launch, start of the thread blocks and completion
    start_us: PerProtocol  # first message of a protocol: buffers and flags cold, thread blocks ramping up
    p2p_start_us: PerProtocol  # the same for sends and receives
    nvlink_hop_us: PerProtocol  # a message over NVLink: written, flag seen by the peer, reduced, ready to leave
    net_hop_us: PerProtocol  # a message over the network: proxy, NIC, idle fabric, NIC, flag seen; Simple: measured on sends and receives
    channel_rate: PerProtocol  # bytes/s on the wire that one thread block moves
    nvlink_efficiency: float  # payload over line rate where the links are full
    p2p_efficiency: float  # of nvlink_efficiency, where many peers are sent to at once
    nvls_start_us: float  # the same for NVLS and NVLSTree
    nvls_us: float  # latency of a reduction and multicast in the scale-up switch
    nvls_channel_rate: float  # bytes/s of the buffer that one thread block of NVLS copies in, reduces and copies out
    nvls_loop_us: float  # barriers around one loop of reduction and multicast
    nvls_net_hop_us: float  # a chunk of NVLSTree over the network: NCCL's own constant (src/graph/tuning.cc)
    nic_efficiency: float  # RDMA payload over line rate: ib_write_bw on ConnectX-7, 45,060 MiB/s of 400 Gb/s (median of 33 node pairs)
    wire_us: tuple[float, float]  # part of a hop spent in cables and switches: NVLink, network
    across_rate: tuple[float, float]  # bytes/s that a thread block moves to a GPU of another CPU socket: copies, reductions


FIGURES = {
    "ampere": Figures(
        launch_us=7.9,
        start_us=(0.0, 14.0, 50.0),
        p2p_start_us=(3.5, 3.5, 10.0),
        nvlink_hop_us=(1.0, 2.2, 5.0),
        net_hop_us=(5.6, 6.1, 10.0),
        channel_rate=(13e9, 10e9, 19.8e9),
        nvlink_efficiency=0.785,
        p2p_efficiency=0.93,
        nvls_start_us=0.0,
        nvls_us=0.0,
        nvls_channel_rate=20.3e9,
        nvls_loop_us=0.0,
        nvls_net_hop_us=20.9,
        nic_efficiency=0.945,
        wire_us=(0.5, 1.2),
        across_rate=(7.25e9, 5.94e9),
    ),
    "hopper": Figures(
        launch_us=4.4,
        start_us=(0.0, 12.0, 20.0),
        p2p_start_us=(1.8, 1.8, 8.0),
        nvlink_hop_us=(0.82, 0.7, 3.4),
        net_hop_us=(5.6, 6.1, 10.0),
        channel_rate=(15.8e9, 17e9, 43.5e9),
        nvlink_efficiency=0.822,
        p2p_efficiency=0.9,
        nvls_start_us=11.0,
        nvls_us=20.0,
        nvls_channel_rate=20.3e9,
        nvls_loop_us=6.8,
        nvls_net_hop_us=20.9,
        nic_efficiency=0.945,
        wire_us=(0.5, 1.2),
        across_rate=(11.1e9, 11.1e9),
    ),
    "blackwell": Figures(
        launch_us=7.6,
        start_us=(0.0, 18.0, 9.0),
        p2p_start_us=(1.8, 1.8, 9.0),
        nvlink_hop_us=(1.22, 8.0, 8.3),
        net_hop_us=(5.6, 6.1, 10.0),
        channel_rate=(17.5e9, 22e9, 44e9),
        nvlink_efficiency=0.757,
        p2p_efficiency=0.88,
        nvls_start_us=8.0,
        nvls_us=20.0,
        nvls_channel_rate=20.3e9,
        nvls_loop_us=5.0,
        nvls_net_hop_us=20.9,
        nic_efficiency=0.945,
        wire_us=(0.5, 1.2),
        across_rate=(11.1e9, 11.1e9),
    ),
}


def over_pcie(own: Figures, nccl: Nccl) -> Figures:
    """Return the figures of a node whose GPUs are joined by PCIe: its rate is what data reach, and a hop takes as much longer as NCCL's own
    tables have it.
    """
    tables = nccl.tables
    longer = [pci - link for pci, link in zip(tables.hw_latency_pci_ring, tables.hw_latency_nvlink_ring, strict=True)]
    ll, ll128, simple = (hop + more for hop, more in zip(own.nvlink_hop_us, longer, strict=True))
    return own._replace(nvlink_efficiency=1.0, nvlink_hop_us=(ll, ll128, simple))
