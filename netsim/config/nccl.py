"""Section `nccl` of a run file: NCCL's environment variables under their own names, and what the hardware below it is worth."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from netsim.config.fields import Count, Index, Share, Size, Time
from netsim.config.nccl_tables import Tables
from netsim.errors import did_you_mean

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
FUNCTIONS = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce")
NO_EFFECT = {
    "NCCL_DEBUG": "the algorithm of every call is in the result",
    "NCCL_IB_HCA": "the topology says which NICs there are",
    "NCCL_IB_GID_INDEX": "addresses do not change times",
    "NCCL_IB_TC": "collectives have one traffic class",
    "NCCL_IB_SL": "collectives have one service level",
    "NCCL_IB_FIFO_TC": "credits are not data",
    "NCCL_IB_TIMEOUT": "network.recovery.timeout says when a NIC sends again",
    "NCCL_IB_RETRY_CNT": "a NIC sends again until it succeeds",
    "NCCL_IB_PCI_RELAXED_ORDERING": "host.rate is what the bus reaches",
    "NCCL_SOCKET_IFNAME": "only the start-up of NCCL uses sockets",
    "NCCL_IB_ADAPTIVE_ROUTING": "network.spreading says how packets find their way",
    "NCCL_IB_AR_THRESHOLD": "network.spreading says how packets find their way",
    "NCCL_IB_MERGE_NICS": "the ports of a NIC are one NIC (topology.planes)",
    "NCCL_NET_MERGE_LEVEL": "the ports of a NIC are one NIC (topology.planes)",
    "NCCL_NETDEVS_POLICY": "a GPU uses the NICs near it",
    "NCCL_NET_GDR_LEVEL": "NICs read and write the memory of GPUs",
    "NCCL_NET_GDR_READ": "NICs read and write the memory of GPUs",
    "NCCL_GDR_FLUSH_DISABLE": "flushes are part of the latency of a message",
    "NCCL_NET_SHARED_BUFFERS": "buffers of sends and receives do not run short",
    "NCCL_NET_SHARED_COMMS": "sources of a node share their connections where NCCL_P2P_PXN_LEVEL lets them relay",
    "NCCL_TOPO_FILE": "the section topology is the machine; NCCL_GRAPH_FILE changes the channels that are laid over it",
    "NCCL_SHM_DISABLE": "shared memory is used only where NCCL_P2P_DISABLE forbids NVLink",
    "NCCL_PXN_C2C": "relays use NVLink",
    "NCCL_LL128_C2C": "GPUs are joined by NVLink",
    "NCCL_CGA_CLUSTER_SIZE": "a channel is one thread block",
    "NCCL_MAX_P2P_PEERS": "the cost of a peer does not depend on their number",
    "NCCL_P2P_SCHEDULE_GROUP_SIZE": "all peers of a group of sends are met at once",
    "NCCL_THREAD_THRESHOLDS": "thresholds are those of NCCL",
    "NCCL_CHUNK_SIZE": "chunks follow from the buffer sizes",
    "NCCL_LAUNCH_ORDER_IMPLICIT": "the streams of the workload say what waits for what",
}
"""Variables that people carry in their scripts and that change nothing here, with the reason: accepted, and kept in the result file."""

Flag = Annotated[int, Field(ge=0, le=2, strict=True)]
Text = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) and not isinstance(value, bool) else value)]


def _plain(word: str) -> str:
    return word.strip().lower().replace("_", "").replace("-", "")


def choices(text: str | None, function: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of `known` the value of NCCL_ALGO or NCCL_PROTO leaves for a function such as 'allreduce'.

    The form is NCCL's: `list` or `function:list;function:list`, a list is comma-separated, a leading ^ excludes. Raises ValueError on
    words that NCCL does not know.
    """
    allowed = known
    for clause in (text or "").split(";"):
        name, colon, words = clause.rpartition(":")
        if colon and _plain(name) not in FUNCTIONS:
            raise ValueError(
                f"expected one of {', '.join(FUNCTIONS)} before ':'; got '{name.strip()}'{did_you_mean(_plain(name), FUNCTIONS)}"
            )
        exclude = words.strip().startswith("^")
        plain = {_plain(k): k for k in known}
        listed = [w for w in words.strip().lstrip("^").split(",") if w.strip()]
        for word in listed:
            if _plain(word) not in plain:
                raise ValueError(f"expected a list of {', '.join(known)}; got '{word.strip()}'{did_you_mean(_plain(word), known)}")
        if listed and (not colon or _plain(name) == function):
            named = {plain[_plain(w)] for w in listed}
            allowed = tuple(k for k in known if (k in named) != exclude)
    return allowed


@dataclass(frozen=True)
class Nccl:
    """NCCL's variables (names, meanings and defaults as NCCL documents them), then the figures and tables of the model.

    * NCCL_ALGO, NCCL_PROTO: allowed algorithms and protocols, NCCL's list syntax; NCCL_NVLS_ENABLE, NCCL_PAT_ENABLE, NCCL_COLLNET_ENABLE
      (from NCCL_COLLNET_NODE_THRESHOLD nodes up): 0 leaves one out.
    * NCCL_NTHREADS, NCCL_LL128_NTHREADS: threads per channel.
    * NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS (also _CTAS, _NRINGS): bounds on the channels of collectives; _P2P_: of sends and receives,
      which give a peer on the network one channel per NCCL_P2P_PER_CHANNEL_NET_BW GB/s, or NCCL_NCHANNELS_PER_NET_PEER.
    * NCCL_BUFFSIZE, NCCL_LL_BUFFSIZE, NCCL_LL128_BUFFSIZE: buffer of a connection per protocol, eight slots each; the chunk sizes and the
      threshold below which sends use LL are NCCL's.
    * NCCL_CROSS_NIC: 0 rings stay on one rail, 1 the same ring on every node, 2 automatic.
    * NCCL_PXN_DISABLE, NCCL_P2P_PXN_LEVEL: relay through the GPU next to the peer's rail: 2 always, 1 unless the peer's NIC is on the
      sender's own PCIe switch, 0 never.
    * NCCL_P2P_DISABLE: 1 (or NCCL_P2P_LEVEL: LOC) keeps GPUs of a node off NVLink: they go through host memory, at the rate of their bus.
    * NCCL_MNNVL_ENABLE: 0 makes the trays of a rack-scale NVLink domain (4 GPUs) nodes of their own, joined by their NICs.
    * NCCL_GRAPH_FILE: channels from a file (NCCL's XML, or the same in JSON) in place of the built-in rules.
    * NCCL_IB_QPS_PER_CONNECTION: queue pairs of a network connection, each hashed on its own by ECMP; left out, `network.qps`. They carry
      messages in turn; with NCCL_IB_SPLIT_DATA_ON_QPS every message is split among them.
    * NCCL_NET_OVERHEAD: nanoseconds to post a message, for the choice of algorithm; left out, by CPU vendor.
    * The names of `NO_EFFECT` are accepted and kept with the result, and change nothing in the model for the reason given there.
    * cpu: vendor of the hosts' CPUs, which NCCL's cost model asks for; left out, topology.host.cpu.
    * launch_latency, net_latency: kernel launch, and latency of a network message with its software.
    * nvlink_efficiency, nic_efficiency: share of the line rate that payload reaches. Left out, these four are the figures of the GPU
      generation (netsim/collectives/figures.py, with their source).
    * sm_free_collectives: collectives run on copy engines and occupy no SM.
    * tables: rows of NCCL's cost model.
    """

    NCCL_ALGO: str | None = None
    NCCL_PROTO: str | None = None
    NCCL_NTHREADS: Count | None = None
    NCCL_LL128_NTHREADS: Count | None = None
    NCCL_NVLS_ENABLE: Flag = 2
    NCCL_PAT_ENABLE: Flag = 2
    NCCL_COLLNET_ENABLE: Flag = 0
    NCCL_COLLNET_NODE_THRESHOLD: Count = 2
    NCCL_NET_OVERHEAD: Index | None = None
    NCCL_MIN_NCHANNELS: Count | None = None
    NCCL_MAX_NCHANNELS: Count | None = None
    NCCL_MIN_NRINGS: Count | None = None
    NCCL_MAX_NRINGS: Count | None = None
    NCCL_MIN_CTAS: Count | None = None
    NCCL_MAX_CTAS: Count | None = None
    NCCL_NVLS_NCHANNELS: Count | None = None
    NCCL_NCHANNELS_PER_NET_PEER: Count | None = None
    NCCL_MIN_P2P_NCHANNELS: Count = 1
    NCCL_MAX_P2P_NCHANNELS: Count = 64
    NCCL_P2P_PER_CHANNEL_NET_BW: Count = 14
    NCCL_BUFFSIZE: Size = 4194304
    NCCL_LL_BUFFSIZE: Size = 524288
    NCCL_LL128_BUFFSIZE: Size = 4915200
    NCCL_P2P_NET_CHUNKSIZE: Size = 131072
    NCCL_P2P_NVL_CHUNKSIZE: Size = 524288
    NCCL_P2P_PCI_CHUNKSIZE: Size = 131072
    NCCL_P2P_LL_THRESHOLD: Size = 16384
    NCCL_ALLOC_P2P_NET_LL_BUFFERS: Flag = 0
    NCCL_NVLS_CHUNKSIZE: Size = 131072
    NCCL_NVLSTREE_MAX_CHUNKSIZE: Size | None = None
    NCCL_CROSS_NIC: Flag = 2
    NCCL_PXN_DISABLE: Flag = 0
    NCCL_P2P_PXN_LEVEL: Flag = 2
    NCCL_GRAPH_FILE: str | None = None
    NCCL_IB_QPS_PER_CONNECTION: Annotated[int, Field(ge=1, le=128, strict=True)] | None = None
    NCCL_IB_SPLIT_DATA_ON_QPS: Flag = 0
    NCCL_P2P_DISABLE: Flag = 0
    NCCL_P2P_LEVEL: Text | None = None
    NCCL_MNNVL_ENABLE: Flag = 2
    NCCL_DEBUG: Text | None = None
    NCCL_IB_HCA: Text | None = None
    NCCL_IB_GID_INDEX: Text | None = None
    NCCL_IB_TC: Text | None = None
    NCCL_IB_SL: Text | None = None
    NCCL_IB_FIFO_TC: Text | None = None
    NCCL_IB_TIMEOUT: Text | None = None
    NCCL_IB_RETRY_CNT: Text | None = None
    NCCL_IB_PCI_RELAXED_ORDERING: Text | None = None
    NCCL_SOCKET_IFNAME: Text | None = None
    NCCL_IB_ADAPTIVE_ROUTING: Text | None = None
    NCCL_IB_AR_THRESHOLD: Text | None = None
    NCCL_IB_MERGE_NICS: Text | None = None
    NCCL_NET_MERGE_LEVEL: Text | None = None
    NCCL_NETDEVS_POLICY: Text | None = None
    NCCL_NET_GDR_LEVEL: Text | None = None
    NCCL_NET_GDR_READ: Text | None = None
    NCCL_GDR_FLUSH_DISABLE: Text | None = None
    NCCL_NET_SHARED_BUFFERS: Text | None = None
    NCCL_NET_SHARED_COMMS: Text | None = None
    NCCL_TOPO_FILE: Text | None = None
    NCCL_SHM_DISABLE: Text | None = None
    NCCL_PXN_C2C: Text | None = None
    NCCL_LL128_C2C: Text | None = None
    NCCL_CGA_CLUSTER_SIZE: Text | None = None
    NCCL_MAX_P2P_PEERS: Text | None = None
    NCCL_P2P_SCHEDULE_GROUP_SIZE: Text | None = None
    NCCL_THREAD_THRESHOLDS: Text | None = None
    NCCL_CHUNK_SIZE: Text | None = None
    NCCL_LAUNCH_ORDER_IMPLICIT: Text | None = None
    cpu: Literal["intel", "amd", "arm"] | None = None
    launch_latency: Time | None = None
    net_latency: Time | None = None
    nvlink_efficiency: Share | None = None
    nic_efficiency: Share | None = None
    sm_free_collectives: bool = False
    tables: Tables = field(default_factory=Tables)

    @property
    def pieces(self) -> int:
        """Queue pairs among which every message is split."""
        return (self.NCCL_IB_QPS_PER_CONNECTION or 1) if self.NCCL_IB_SPLIT_DATA_ON_QPS else 1

    @property
    def qps(self) -> int:
        """Queue pairs that carry messages in turn; 0: as many as `network.qps` says."""
        return 1 if self.pieces > 1 else self.NCCL_IB_QPS_PER_CONNECTION or 0

    def bounds(self) -> tuple[int, int]:
        """Return the least and the most channels that the variables allow for a collective."""
        least = self.NCCL_MIN_CTAS or self.NCCL_MIN_NCHANNELS or self.NCCL_MIN_NRINGS or 1
        most = self.NCCL_MAX_CTAS or self.NCCL_MAX_NCHANNELS or self.NCCL_MAX_NRINGS or 64
        return min(least, 64), max(1, min(most, 64))

    @property
    def p2p(self) -> bool:
        """Whether GPUs of a node reach each other over NVLink."""
        return self.NCCL_P2P_DISABLE == 0 and str(self.NCCL_P2P_LEVEL or "").upper() not in ("LOC", "0")

    @property
    def pxn(self) -> bool:
        """Whether data may leave through the NIC of another GPU, over NVLink."""
        return self.NCCL_PXN_DISABLE == 0 and self.p2p

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what the fields say together that cannot be."""
        for name, known in (("NCCL_ALGO", ALGORITHMS), ("NCCL_PROTO", PROTOCOLS)):
            try:
                choices(getattr(self, name), "", known)
            except ValueError as error:
                yield name, str(error)
        least, most = self.bounds()
        if least > most:
            yield "NCCL_MIN_NCHANNELS", f"expected at most NCCL_MAX_NCHANNELS = {most}; got {least}"
        if self.NCCL_MIN_P2P_NCHANNELS > self.NCCL_MAX_P2P_NCHANNELS:
            yield (
                "NCCL_MIN_P2P_NCHANNELS",
                (f"expected at most NCCL_MAX_P2P_NCHANNELS = {self.NCCL_MAX_P2P_NCHANNELS}; got {self.NCCL_MIN_P2P_NCHANNELS}"),
            )
        chunks = ("NCCL_P2P_NET_CHUNKSIZE", "NCCL_P2P_NVL_CHUNKSIZE", "NCCL_P2P_PCI_CHUNKSIZE")
        for name in ("NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", *chunks):
            if getattr(self, name) < 16384:
                yield name, f"expected at least 16 KiB; got {getattr(self, name)} bytes"
        for row in ("tree_correction_ll", "tree_correction_ll128", "tree_correction_simple"):
            if len(getattr(self.tables, row)) != 24:
                yield f"tables.{row}", f"expected 24 factors, for 64 B to 512 MiB; got {len(getattr(self.tables, row))}"
