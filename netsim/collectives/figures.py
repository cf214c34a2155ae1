"""Physical figures of GPU generations that decide how long a collective takes: the only calibrated numbers of the collectives.

Everything else follows from NCCL's own geometry and tables. Each figure belongs to a GPU generation, never to one table of measurements or
to a message size. `docs/collectives.md` names the measurements that they were fitted to and the errors that remain.
"""

from typing import NamedTuple

PerProtocol = tuple[float, float, float]


class Figures(NamedTuple):
    """What hardware and driver of one GPU generation do; triples stand for LL, LL128, Simple. Times in us, rates in bytes/s."""

    launch_us: float  # kernel launch, start of the thread blocks and completion
    start_us: PerProtocol  # first message of a protocol: buffers and flags cold, thread blocks ramping up
    p2p_start_us: float  # the same for Simple sends and receives
    nvlink_hop_us: PerProtocol  # a message over NVLink: written, flag seen by the peer, reduced, ready to leave
    net_hop_us: PerProtocol  # a message over the network: proxy, NIC, idle fabric, NIC, flag seen
    channel_rate: PerProtocol  # bytes/s on the wire that one thread block moves
    nvlink_efficiency: float  # payload over line rate where the links are full
    nvls_us: float  # latency of a reduction and multicast in the scale-up switch
    nvls_loop_us: float  # barriers around one loop of reduction and multicast
    nvls_net_hop_us: float  # a chunk of NVLSTree over the network
    nic_efficiency: float  # RDMA payload over line rate
    p2p_efficiency: float  # of nvlink_efficiency, where many peers are sent to at once
    wire_us: tuple[float, float]  # part of a hop spent in cables and switches: NVLink, network


FIGURES = {
    "ampere": Figures(
        7.9, (0.0, 8.0, 30.0), 10.0, (1.0, 2.5, 5.0), (4.6, 6.0, 14.0), (13e9, 15e9, 19.8e9), 0.785, 0.0, 0.0, 20.9, 0.945, 0.93, (0.3, 2.0)
    ),
    "hopper": Figures(
        4.4,
        (0.0, 4.0, 20.0),
        8.0,
        (0.82, 2.2, 3.4),
        (4.6, 6.0, 14.0),
        (15.8e9, 18e9, 43.5e9),
        0.822,
        20.0,
        6.8,
        20.9,
        0.945,
        0.9,
        (0.3, 2.0),
    ),
    "blackwell": Figures(
        7.6,
        (0.0, 4.0, 14.0),
        10.0,
        (1.22, 12.5, 1.0),
        (4.6, 6.0, 14.0),
        (17.5e9, 22e9, 44e9),
        0.757,
        20.0,
        8.3,
        20.9,
        0.945,
        0.97,
        (0.3, 2.0),
    ),
}
