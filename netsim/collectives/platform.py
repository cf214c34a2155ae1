"""What a collective sees of the machine: the platform it runs on and the shape of its communicator."""

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from netsim.collectives.figures import FIGURES, Figures, over_pcie
from netsim.config.nccl import Nccl
from netsim.config.topology import Fabric
from netsim.kernels.structs import LINK_TIERS, NIC, Topology

NVLINK_BELIEF = {"ampere": 240.0, "hopper": 370.8, "blackwell": 721.8}
"""GB/s per GPU and direction that NCCL's search believes in (src/graph/topo.h: links x rate per link)."""
PCIE_BELIEF = {3: 12.0, 4: 24.0, 5: 48.0, 6: 96.0}
"""GB/s of a x16 slot by PCIe generation, likewise."""
SOCKETS_BELIEF = {"amd": 16.0, "arm": 6.0}
"""GB/s from one CPU socket to another, likewise; of Intel's by the generation of its bus: Skylake, Sapphire and Granite Rapids."""
INTEL_SOCKETS_BELIEF = {3: 10.0, 4: 10.0, 5: 22.0, 6: 40.0}


class Platform(NamedTuple):
    """A node as NCCL finds it; rates in bytes/s per direction.

    `gpus_per_node` counts the GPUs of one scale-up domain, so a rack of 72 GPUs on one NVLink fabric is one node here.
    """

    arch: str  # 'ampere', 'hopper' or 'blackwell'
    gpus_per_node: int
    nics_per_node: int
    nic_rate: float
    cpu: str = "intel"  # 'intel', 'amd' or 'arm'
    nvlink: float = 450e9  # line rate of a GPU into the scale-up switch
    pcie: int = 5  # generation of the NIC's slot
    rails_joined: bool = True  # whether the network has a way from one rail to another; where not, NCCL is run with NCCL_CROSS_NIC=0
    wire_us: tuple[float, float] | None = None  # latency from GPU to GPU over NVLink and over the network; None: that of the figures
    kind: str = "nvlink"  # of the scale-up links: 'nvlink' or 'pcie', whose rate is what data reach
    islands: int = 1  # sets of neighbouring GPUs with a scale-up switch of their own: CPU sockets
    between: float = float("inf")  # rate from one island to another, which their GPUs share
    between_us: float = 0.0  # latency of that link

    def figures(self, nccl: Nccl) -> Figures:
        """Return the physical figures of the GPU generation under the overrides of the run file."""
        own = FIGURES[self.arch] if self.kind == "nvlink" else over_pcie(FIGURES[self.arch], nccl)
        if nccl.launch_latency is not None:
            own = own._replace(launch_us=nccl.launch_latency * 1e-6)
        if nccl.net_latency is not None:
            own = own._replace(net_hop_us=(nccl.net_latency * 1e-6,) * 3)
        if nccl.nvlink_efficiency is not None:
            own = own._replace(nvlink_efficiency=nccl.nvlink_efficiency)
        return own if nccl.nic_efficiency is None else own._replace(nic_efficiency=nccl.nic_efficiency)

    def pxn(self, nccl: Nccl) -> bool:
        """Whether data may leave through the NIC of another GPU, to which they go over NVLink."""
        return nccl.pxn and self.kind == "nvlink" and self.islands == 1

    def without_p2p(self) -> "Platform":
        """Return the node whose GPUs reach each other through host memory only."""
        return self._replace(nvlink=min(self.nvlink, PCIE_BELIEF[self.pcie] * 1e9))

    def island(self, gpu: np.ndarray) -> np.ndarray:
        """Return the island of local GPUs."""
        return gpu // (self.gpus_per_node // self.islands)

    @property
    def sockets_gbs(self) -> float:
        """What NCCL takes the link between two CPU sockets for, GB/s."""
        return SOCKETS_BELIEF.get(self.cpu) or INTEL_SOCKETS_BELIEF[self.pcie]

    @property
    def nic_gbs(self) -> float:
        """What NCCL takes a NIC for, GB/s: its line rate, or the slot's where that is less."""
        return min(self.nic_rate / 1e9, PCIE_BELIEF[self.pcie])

    @property
    def nics_per_gpu(self) -> int:
        """NICs that one GPU has near it; connections take them in turn."""
        return max(1, self.nics_per_node // self.gpus_per_node)

    @property
    def nics_per_switch(self) -> int:
        """NICs on one PCIe switch: two with two GPUs on DGX A100, else each with its GPU."""
        return 2 if self.arch == "ampere" and self.nics_per_node == self.gpus_per_node else 1

    def nics_of(self, gpu: int) -> tuple[int, ...]:
        """Return the NICs nearest to a local GPU, node-local numbers."""
        if self.nics_per_node <= self.gpus_per_node:
            return (gpu * self.nics_per_node // self.gpus_per_node,) if self.nics_per_node else ()
        share = self.nics_per_gpu
        return tuple(range(gpu * share, gpu * share + share))


def generation(arch: str, scale_up: float) -> str:
    """The GPU generation whose figures stand for an architecture: its own, else that with such scale-up links (bytes/s of a GPU)."""
    return arch if arch in FIGURES else "ampere" if scale_up <= 300e9 else "hopper" if scale_up <= 450e9 else "blackwell"


def platform_of(topology: Topology, arch: str, fabric: Fabric, nccl: Nccl) -> Platform:
    """The node of a fabric as NCCL finds it: NIC rates from the cables, the PCIe generation from the host bus (about 15.75, 31.5, 63, 126
    GB/s). `arch` may be a name that NCCL does not know, of a GPU to come.
    """
    up = topology.link_tier == LINK_TIERS.index("nic")
    nics = topology.vertex_kind == NIC
    rate = topology.link_rate[up]
    ports = max(1, len(rate) // (2 * max(1, topology.n_nics)))
    rails = np.unique(topology.nic_rail)
    latency, host = topology.link_latency, topology.link_tier == LINK_TIERS.index("host")
    out = up & nics[topology.link_src]
    wire = sum(int(latency[way].min()) for way in (out, topology.link_reverse[out], host, host) if topology.n_nics)
    return Platform(
        arch=generation(arch, fabric.scale_up.rate),
        gpus_per_node=topology.gpus_per_node,
        nics_per_node=topology.nics_per_node,
        nic_rate=float(rate.max(initial=0.0)) * ports,
        cpu=nccl.cpu or fabric.host.cpu,
        nvlink=fabric.scale_up.rate,
        pcie=int(np.clip(round(np.log2(fabric.host.rate / 15.75e9)) + 3, 3, 6)),
        rails_joined=len(np.unique(topology.vertex_plane[nics])) < len(rails) or len(rails) == 1,
        wire_us=(2e-6 * int(latency[0]), 1e-6 * wire),
        kind=fabric.scale_up.kind,
        islands=topology.islands,
        between=fabric.scale_up.between or float("inf"),
        between_us=1e-6 * fabric.scale_up.between_latency if topology.islands > 1 else 0.0,
    )


class Communicator(NamedTuple):
    """Members of a call in rank order: node (numbered by first appearance) and local GPU of each; `ranks` of the communicator that carries
    it.

    A send from one stage of a pipeline to the next is a call of two members in a communicator of as many ranks as there are stages.
    """

    node: tuple[int, ...]
    local: tuple[int, ...]
    ranks: int = 0

    @property
    def size(self) -> int:
        """Ranks of the NCCL communicator."""
        return max(self.ranks, len(self.node))


TRAY = 4
"""GPUs of a tray of a rack-scale NVLink domain (GB200 and GB300 NVL72: 18 trays)."""


def trays(comm: Communicator) -> Communicator:
    """Return the communicator whose nodes are trays."""
    return comm._replace(node=tuple(n * 1024 + g // TRAY for n, g in zip(comm.node, comm.local, strict=True)))


class Layout(NamedTuple):
    """A communicator by node."""

    ranks: int
    node: np.ndarray  # int32[R] node of a member, 0 .. N - 1 by first appearance
    local: np.ndarray  # int32[R] local GPU
    place: np.ndarray  # int32[R] place of a member among those of its node
    members: tuple[np.ndarray, ...]  # per node: members by local GPU
    nics: tuple[tuple[int, ...], ...]  # per node: NICs near its members, by member
    near: np.ndarray  # int32[R] nearest NIC of a member, -1 without
    width: int  # members of the smallest node
    island: np.ndarray  # int32[R] island of a member, numbered over all nodes

    @property
    def nodes(self) -> int:
        return len(self.members)

    @property
    def spans_islands(self) -> bool:
        """Whether members of one node are of several islands."""
        return len(np.unique(self.island)) > self.nodes


@lru_cache(maxsize=1024)
def layout(comm: Communicator, platform: Platform) -> Layout:
    """Sort the members of a communicator into nodes."""
    order: dict[int, int] = {}
    node = np.array([order.setdefault(n, len(order)) for n in comm.node], np.int32)
    local = np.array(comm.local, np.int32)
    by_place = np.lexsort((local, node))
    starts = np.searchsorted(node[by_place], np.arange(len(order) + 1))
    members = tuple(by_place[a:b].astype(np.int32) for a, b in pairwise(starts))
    place = np.empty(len(node), np.int32)
    place[by_place] = np.arange(len(node)) - starts[node[by_place]]
    near_of = [platform.nics_of(g) for g in range(platform.gpus_per_node)]
    nics = tuple(tuple(dict.fromkeys(n for m in group for n in near_of[local[m]])) for group in members)
    near = np.array([near_of[g][0] if near_of[g] else -1 for g in comm.local], np.int32)
    island = (node * platform.islands + platform.island(local)).astype(np.int32)
    return Layout(len(node), node, local, place, members, nics, near, min(len(group) for group in members), island)
