"""The `topology` section of a run file: nodes, NICs, switches, cables and their faults."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from netsim.config.fields import Count, Positive, Rate, Size, Time, Unit, write_rate
from netsim.units import format_time, parse_rate

FaultRate = Annotated[
    float, BeforeValidator(lambda rate: 0.0 if rate == 0 else parse_rate(rate)), Unit("a rate such as '100 Gbps', or 0", write_rate)
]
"""Bytes per second; written `100 Gbps`, or a bare 0 for a dead link."""

Ports = Annotated[int, Field(ge=1, le=65_536, strict=True)]
"""Ports of a switch, or cables side by side."""

TIER_NAMES = ("leaf", "spine", "core")
LARGEST_NODE, LARGEST_CLUSTER = 1024, 2**22
"""What the arrays are meant for: rails are int16, and four million GPUs are some gigabytes of routing tables."""


@dataclass(frozen=True)
class ScaleUp:
    """The links inside a node: NVLink, or the PCIe buses of nodes without.

    rate: of one GPU into the switch of its island, each direction; of NVLink the line rate, of PCIe what data reach both ways at once.
    latency: from GPU to GPU through that switch.
    kind: nvlink or pcie, which NCCL uses differently.
    islands: sets of neighbouring GPUs with a switch of their own, joined by one link for each two: the CPU sockets of a PCIe node.
    between: rate of such a link (UPI, Infinity Fabric), each direction, which all traffic from the one island to the other shares.
    between_latency: of such a link, on top of `latency`.
    """

    rate: Rate = 450e9
    latency: Time = 500_000
    kind: Literal["nvlink", "pcie"] = "nvlink"
    islands: Count = 1
    between: Rate | None = None
    between_latency: Time = 300_000

    def problems(self) -> Iterator[tuple[str, str]]:
        """Rules between islands and the links that join them."""
        if self.islands > 1 and self.between is None:
            yield "between", f"expected the rate of the link between two islands, such as '16 GB/s', with islands: {self.islands}; got none"
        if self.islands == 1 and self.between is not None:
            yield "between", "expected islands: 2 (or more) for a link to join; got islands: 1"
        if self.between == 0:
            yield "between", "expected a rate above 0 (a dead link is a fault); got 0"


@dataclass(frozen=True)
class Host:
    """The bus between a GPU and a NIC near it: PCIe or its like.

    rate: each direction.
    latency: one way.
    cpu: vendor of the CPUs, by which NCCL chooses among protocols.
    """

    rate: Rate = 63e9
    latency: Time = 300_000
    cpu: Literal["intel", "amd", "arm"] = "intel"


@dataclass(frozen=True)
class Link:
    """Every cable, unless its tier says otherwise.

    rate: each direction.
    latency: propagation, from the last bit sent to the last bit received.
    """

    rate: Rate = 50e9
    latency: Time = 500_000


@dataclass(frozen=True)
class Switch:
    """Every switch, unless its tier says otherwise.

    radix: ports of a switch, whatever their speed.
    latency: the pipeline, from a packet's last bit in until it may leave.
    buffer: packet memory of a switch.
    """

    radix: Ports = 64
    latency: Time = 300_000
    buffer: Size = 64 * 2**20


@dataclass(frozen=True)
class Tier:
    """What one tier (leaf, spine or core) does differently; what is left out is taken from `link` and `switch`.

    rate, cable: rate and propagation of the links below this tier (NIC to leaf, leaf to spine, spine to core).
    radix, latency, buffer: of its switches.
    down, up: ports of a switch that look down and up; left out, they follow from radix and oversubscription.
    oversubscription: capacity of the ports that look down over that of the ports that look up.
    parallel: cables between one switch of this tier and each switch below; left out, as many as let the fewest switches do.
    """

    rate: Rate | None = None
    cable: Time | None = None
    radix: Ports | None = None
    latency: Time | None = None
    buffer: Size | None = None
    down: Count | None = None
    up: Count | None = None
    oversubscription: Positive = 1.0
    parallel: Count | None = None


@dataclass(frozen=True)
class Edge:
    """A cable of the builder custom.

    a, b: its two ends by name (`nic n0.3`, `leaf r3.s0`, `spine 1`).
    rate, latency: left out, those of `link`.
    count: how many such cables.
    """

    a: str
    b: str
    rate: Rate | None = None
    latency: Time | None = None
    count: Ports = 1


@dataclass(frozen=True)
class Fault:
    """A link that is dead or slow, always or for a while.

    link: its name, such as `leaf r3.s0 -> spine r3.1`; parallel cables fail together unless one is named by ` (2)` behind it.
    rate: what is left of it; 0 is dead.
    from, until: when; without both the fault is there from the start and stays.
    both_ways: the opposite direction as well.
    """

    link: str
    rate: FaultRate = 0.0
    from_: Annotated[Time | None, Field(alias="from")] = None
    until: Time | None = None
    both_ways: bool = True

    @property
    def permanent(self) -> bool:
        return self.from_ is None and self.until is None


@dataclass(frozen=True)
class Fabric:
    """The cluster: nodes with their scale-up links and NICs, and the network between the NICs.

    builder: module of the `topologies` package that lays the cables.
    nodes, gpus_per_node, nics_per_node: the hosts; NICs left out are as many as GPUs. NIC r of every node is on rail r.
    scale_up, host: links inside a node.
    link, switch: cables and switches; leaf, spine, core: what a tier does differently.
    tiers: of switches, 2 or 3.
    segment: nodes per leaf (left out: as many as the leaf has ports for); pod: leaves that share their spines (left out: as many as fit).
    spines: one set of spines per rail, or one that all rails share; cores: likewise in three tiers.
    planes: ports per NIC, each in a plane of switches of its own (builder dual_plane).
    edges: cables of the builder custom, or the path of a CSV file with columns a,b,rate,latency,count.
    routing: how one of several equal paths is chosen: ecmp (by connection), static (by pair of NICs), dmodk (by destination).
    faults: links that are dead or slow.
    """

    builder: str = "rail_optimised"
    nodes: Count = 128
    gpus_per_node: Count = 8
    nics_per_node: Count | None = None
    scale_up: ScaleUp = ScaleUp()
    host: Host = Host()
    link: Link = Link()
    switch: Switch = Switch()
    leaf: Tier = Tier()
    spine: Tier = Tier()
    core: Tier = Tier()
    tiers: Literal[2, 3] = 2
    segment: Count | None = None
    pod: Count | None = None
    spines: Literal["per_rail", "shared"] = "per_rail"
    cores: Literal["per_rail", "shared"] = "shared"
    planes: Ports = 2
    edges: tuple[Edge, ...] | str = ()
    routing: Literal["ecmp", "static", "dmodk"] = "ecmp"
    faults: tuple[Fault, ...] = ()

    @property
    def nics(self) -> int:
        """NICs of a node."""
        return self.nics_per_node or self.gpus_per_node

    def tier(self, number: int) -> Tier:
        """Tier 1 (leaf), 2 (spine) or 3 (core) with everything filled in except its port counts."""
        own = getattr(self, TIER_NAMES[number - 1])
        return replace(
            own,
            rate=self.link.rate if own.rate is None else own.rate,
            cable=self.link.latency if own.cable is None else own.cable,
            radix=own.radix or self.switch.radix,
            latency=self.switch.latency if own.latency is None else own.latency,
            buffer=self.switch.buffer if own.buffer is None else own.buffer,
        )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Rules that span fields, each as (field, sentence)."""
        if self.gpus_per_node % self.scale_up.islands:
            fits = [str(n) for n in range(1, self.gpus_per_node + 1) if self.gpus_per_node % n == 0]
            yield (
                "scale_up.islands",
                f"expected a divisor of gpus_per_node: {self.gpus_per_node}, such as {' or '.join(fits[1:3])}; got {self.scale_up.islands}",
            )
        for field, rate in (("link.rate", self.link.rate), ("scale_up.rate", self.scale_up.rate), ("host.rate", self.host.rate)):
            if rate <= 0:
                yield field, "expected a rate above 0 (a dead link is a fault); got 0"
        for name in TIER_NAMES:
            tier = getattr(self, name)
            radix = tier.radix or self.switch.radix
            if tier.rate == 0:
                yield f"{name}.rate", "expected a rate above 0 (a dead link is a fault); got 0"
            if (tier.down or 0) + (tier.up or 0) > radix:
                yield f"{name}", f"expected down + up of at most the radix of {radix}; got {tier.down or 0} + {tier.up or 0}"
        if max(self.gpus_per_node, self.nics) > LARGEST_NODE:
            yield "gpus_per_node", f"expected at most {LARGEST_NODE:,} GPUs and NICs in a node; got {max(self.gpus_per_node, self.nics):,}"
        if self.nodes * max(self.gpus_per_node, self.nics) > LARGEST_CLUSTER:
            yield "nodes", f"expected at most {LARGEST_CLUSTER:,} GPUs and NICs in all; got {self.nodes:,} nodes"
        if self.edges and self.builder != "custom":
            yield "edges", f"expected edges only with builder 'custom'; got builder '{self.builder}'"
        if not self.edges and self.builder == "custom":
            yield "edges", "expected the cables of builder 'custom'; got none"
        for i, fault in enumerate(self.faults):
            if fault.until is not None and fault.until <= (fault.from_ or 0):
                yield f"faults.{i}.until", f"expected a time after 'from' ({format_time(fault.from_ or 0)}); got {format_time(fault.until)}"
