"""Physical figures of GPU generations that decide how long a collective takes: the only calibrated numbers of the collectives.

Everything else follows from NCCL's own geometry and tables. Each figure belongs to a GPU generation, never to a table of measurements or to a message
size. `docs/collectives.md` holds the measurements that they were fitted to and the errors that remain.
"""

from typing import NamedTuple

PerProtocol = tuple[float, float, float]


class Figures(NamedTuple):
    """What hardware and driver of one GPU generation do; triples stand for LL, LL128, Simple."""

    launch_us: float  # kernel launch, start of the thread blocks and completion
    nvlink_hop_us: PerProtocol  # a message over NVLink: written, flag seen by the peer, reduced, ready to leave
    net_hop_us: PerProtocol  # a message over the network: proxy, NIC, idle fabric, NIC, flag seen
    channel_rate: PerProtocol  # bytes/s of payload that one thread block moves
    nvlink_efficiency: float  # payload over line rate, thread blocks writing to peers
    nvls_efficiency: float  # the same, switch multicast and reduction
    nvls_us: float  # latency of a reduction and multicast in the switch
    nic_efficiency: float  # RDMA payload over line rate
    wire_us: tuple[float, float]  # share of a hop spent in cables and switches: NVLink, network (simulated by a packet engine)


FIGURES = {
    "ampere": Figures(7.0, (0.6, 1.25, 3.4), (2.7, 4.0, 12.0), (20e9, 20e9, 24e9), 0.80, 0.0, 0.0, 0.945, (0.3, 2.0)),
    "hopper": Figures(6.6, (0.6, 1.25, 3.4), (2.7, 4.0, 12.0), (20e9, 36.7e9, 30e9), 0.82, 0.75, 25.0, 0.945, (0.3, 2.0)),
    "blackwell": Figures(6.6, (0.6, 1.25, 3.4), (2.7, 4.0, 12.0), (20e9, 40e9, 45e9), 0.80, 0.75, 25.0, 0.945, (0.3, 2.0)),
}
