"""One call of a collective, with everything that decides its messages."""

from typing import NamedTuple

from netsim.collectives.figures import Figures
from netsim.collectives.geometry import Geometry
from netsim.collectives.graphs import Graphs
from netsim.collectives.platform import Layout, Platform
from netsim.config.nccl import Nccl


class Call(NamedTuple):
    """What an algorithm builds a plan from."""

    op: str
    nbytes: int
    place: Layout
    platform: Platform
    nccl: Nccl
    graphs: Graphs
    total_channels: int  # of the communicator
    channels: int  # that this call is given
    algorithm: str
    geometry: Geometry
    figures: Figures
    ranks: int  # of the communicator that carries the call
    shape_nodes: int  # nodes of that communicator
    root: int = 0

    @property
    def nodes(self) -> int:
        return self.place.nodes

    def hop_us(self, nvlink: float, net: float) -> float:
        """Latency of so many hops over NVLink and over the network, us."""
        p = self.geometry.number
        return nvlink * self.figures.nvlink_hop_us[p] + net * self.figures.net_hop_us[p]
