"""Tables of NCCL's tuner, each row a field that a run file may override to imitate another release.

Defaults are those of NCCL 2.30.7-1 (github.com/NVIDIA/nccl, src/graph/tuning.cc). Latencies are microseconds, rates GB/s (1e9 bytes per
second) and, where a row has three numbers, those stand for the protocols LL, LL128, Simple in latency rows and for 1, 2 and more nodes in
rate rows.
"""

from dataclasses import dataclass

from netsim.config.fields import Amount

Row = tuple[Amount, Amount, Amount]
Curve = tuple[Amount, ...]


@dataclass(frozen=True)
class Tables:
    """NCCL's cost model in numbers.

    base_latency_*: latency of a call before its first hop, by algorithm.
    hw_latency_<link>_<algorithm>: latency per hop over NVLink, PCIe and the network.
    ll_max_bw_*: highest bus rate of LL; the row for several nodes is chosen by CPU vendor (see the tuner).
    ring_ll128_*, tree_ll128_*, tree_simple_*, nvls_tree_*: highest rate per channel.
    nvls_efficiency_*: share of the NVLink rate that NVLS reaches.
    tree_correction_*: factor on the rate of trees for sizes 64 B, 128 B, ... 512 MiB.
    net_overhead_amd, net_overhead_other: cost of posting a message, by CPU vendor.
    """

    base_latency_tree: Row = (6.8, 14.0, 8.4)
    base_latency_ring: Row = (6.6, 14.0, 8.4)
    base_latency_collnet_direct: Row = (0.0, 0.0, 0.0)
    base_latency_collnet_chain: Row = (0.0, 0.0, 0.0)
    base_latency_nvls: Row = (0.0, 0.0, 0.0)
    base_latency_nvls_tree: Row = (0.0, 0.0, 0.0)
    base_latency_pat: Row = (8.0, 8.0, 8.0)
    hw_latency_nvlink_tree: Row = (0.6, 1.25, 4.0)
    hw_latency_nvlink_ring: Row = (0.6, 1.9, 3.4)
    hw_latency_nvlink_collnet_direct: Row = (0.0, 0.0, 3.7)
    hw_latency_nvlink_collnet_chain: Row = (0.0, 0.0, 2.8)
    hw_latency_nvlink_nvls: Row = (0.0, 0.0, 25.0)
    hw_latency_nvlink_nvls_tree: Row = (0.0, 0.0, 25.0)
    hw_latency_nvlink_pat: Row = (0.0, 0.0, 4.0)
    hw_latency_pci_tree: Row = (1.0, 1.9, 4.0)
    hw_latency_pci_ring: Row = (1.0, 2.5, 5.7)
    hw_latency_pci_collnet_direct: Row = (0.0, 0.0, 3.7)
    hw_latency_pci_collnet_chain: Row = (0.0, 0.0, 2.8)
    hw_latency_pci_nvls: Row = (0.0, 0.0, 0.0)
    hw_latency_pci_nvls_tree: Row = (0.0, 0.0, 0.0)
    hw_latency_pci_pat: Row = (0.0, 0.0, 4.0)
    hw_latency_net_tree: Row = (5.0, 8.5, 14.0)
    hw_latency_net_ring: Row = (2.7, 4.0, 14.0)
    hw_latency_net_collnet_direct: Row = (0.0, 0.0, 31.0)
    hw_latency_net_collnet_chain: Row = (0.0, 0.0, 30.0)
    hw_latency_net_nvls: Row = (0.0, 0.0, 18.0)
    hw_latency_net_nvls_tree: Row = (0.0, 0.0, 20.9)
    hw_latency_net_pat: Row = (0.0, 0.0, 14.0)
    ll_max_bw_volta: Row = (39.0, 39.0, 20.4)
    ll_max_bw_ampere: Row = (87.7, 22.5, 19.0)
    ll_max_bw_hopper: Row = (141.0, 45.0, 35.0)
    ll_max_bw_blackwell: Row = (282.0, 90.0, 70.0)
    ring_ll128_volta: Row = (20.0, 20.0, 20.0)
    ring_ll128_ampere: Row = (20.0, 20.0, 20.0)
    ring_ll128_hopper: Row = (36.7, 36.7, 36.7)
    ring_ll128_blackwell: Row = (40.0, 40.0, 40.0)
    tree_ll128_volta: Row = (20.0, 20.0, 20.0)
    tree_ll128_ampere: Row = (20.0, 20.0, 20.0)
    tree_ll128_hopper: Row = (36.7, 36.7, 29.0)
    tree_ll128_blackwell: Row = (55.6, 31.67, 20.0)
    tree_simple_volta: Row = (26.5, 18.5, 10.0)
    tree_simple_ampere: Row = (24.0, 23.6, 17.8)
    tree_simple_hopper: Row = (38.7, 41.4, 36.0)
    tree_simple_blackwell: Row = (70.0, 42.8, 24.0)
    nvls_tree_volta: Row = (26.5, 18.5, 10.0)
    nvls_tree_ampere: Row = (24.0, 23.6, 17.8)
    nvls_tree_hopper: Row = (0.0, 57.7, 45.5)
    nvls_tree_blackwell: Row = (0.0, 96.0, 80.0)
    nvls_efficiency_volta: Amount = 0.0
    nvls_efficiency_ampere: Amount = 0.0
    nvls_efficiency_hopper: Amount = 0.85
    nvls_efficiency_blackwell: Amount = 0.74
    tree_correction_ll: Curve = (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1)
    tree_correction_ll128: Curve = (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1)
    tree_correction_simple: Curve = (
        0.9,
        0.9,
        0.9,
        0.9,
        0.9,
        0.9,
        0.9,
        0.8,
        0.7,
        0.6,
        0.6,
        0.5,
        0.5,
        0.5,
        0.5,
        0.6,
        0.7,
        0.8,
        0.7,
        0.7,
        0.8,
        0.9,
        0.9,
        0.9,
    )
    net_overhead_amd: Amount = 2.0
    net_overhead_other: Amount = 1.0
    ring_simple_plateau: Amount = 1.4
    ring_simple_plateau_volta: Amount = 1.9
