"""The `network` section of a run file: which engine carries the traffic, and how the packet engine's switches and NICs behave."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from netsim.config.fields import Count, Index, Share, Size, Time


@dataclass(frozen=True)
class Pfc:
    """Priority flow control (IEEE 802.1Qbb) of the data class, for each input port of a switch.

    headroom: room of an input for what is on the way when its sender is paused; left out, what the cable needs.
    With `sharing: static` - xoff: buffered bytes of an input above which its sender is paused; left out, what the headroom leaves of an
    equal share of the switch's buffer (at most 1 MiB). xon: at or below which it may go on; left out, xoff less two packets.
    With `sharing: dynamic` xoff is alpha x (free bytes of what the headrooms leave of the buffer), moment by moment. xon_offset: how far
    below that an input must be before its sender may go on; left out, two packets.
    """

    xoff: Size | None = None
    xon: Size | None = None
    headroom: Size | None = None
    xon_offset: Size | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.xoff is not None and self.xon is not None and self.xon > self.xoff:
            yield "xon", f"expected at most xoff ({self.xoff} B); got {self.xon} B"


@dataclass(frozen=True)
class Ecn:
    """ECN marking of data by the queue of an output port at the packet's arrival.

    kmin, kmax: queue in bytes at which marking starts, and from which every packet is marked; equal: a step.
    pmax: probability of a mark just below kmax (RED ramp).
    """

    kmin: Size = 400_000
    kmax: Size = 1_600_000
    pmax: Share = 0.01

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.kmin > self.kmax:
            yield "kmin", f"expected at most kmax ({self.kmax} B); got {self.kmin} B"


@dataclass(frozen=True)
class CongestionControl:
    """How a sender reacts to congestion.

    name: a file of netsim/kernels/packet/cc (none, dcqcn, swift, hpcc).
    parameters: those of the algorithm, by their names in its paper; docs/packet.md has the list.
    """

    name: str = "dcqcn"
    parameters: dict[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Recovery:
    """What NICs do about lost packets: those that a lossy network drops, and those that a link loses when it fails, on any network.

    mode: go_back_n resends everything from the first loss, selective only what is missing.
    timeout: without progress for so long, the sender starts again at the first unacknowledged packet.
    """

    mode: Literal["go_back_n", "selective"] = "go_back_n"
    timeout: Time = 1_000_000_000


@dataclass(frozen=True)
class Network:
    """The network engine and, for `engine: packet`, its switches and NICs.

    engine: packet (every packet), flow (fluid max-min fair rates), ideal (latency and bandwidth of each connection alone).
    payload, header: bytes of a data packet; control: bytes of an acknowledgement, congestion notification or pause on the wire.
    spreading: which of several equal paths a packet takes: flow (all of a queue pair the one that topology.routing chooses), spray (each a
    random one), adaptive (each packet the shortest queue), flowlet (adaptive for each burst; bursts are apart by flowlet_gap).
    flow_control: pfc (lossless RoCE), credits (InfiniBand), none (packets are lost when a buffer is full).
    pfc: thresholds; credits: buffer of an input port that its sender may fill.
    sharing: how a switch divides its buffer: static (an equal share per port) or dynamic (alpha x free buffer, for each output queue with
    flow_control none, for each input with pfc).
    ecn: marking thresholds; leave the section empty for the defaults, null for no marking.
    acks: analytic (they take the time of an idle path and no bandwidth) or simulated; ack_every: packets per acknowledgement.
    cnp_interval: least time between two congestion notifications of a queue pair.
    recovery: of losses, which lossless networks have when links fail.
    qps: queue pairs of a connection, each of which routing may send another way: a plain flow is split among them, a connection of a
    collective has its messages carried in turn (NCCL_IB_QPS_PER_CONNECTION goes before this, where it is given).
    convergence: from a link's failure or return until routing has taken it out of the groups of equal paths, or back in, everywhere.
    RFC 7938, section 7, has milliseconds for the detection of a failed interface, and less than a second for everything.
    window: longest stretch played at once, at most the shortest latency of a link; results do not depend on it.
    """

    engine: Literal["packet", "flow", "ideal"] = "flow"
    payload: Annotated[int, Field(ge=1, le=65000, strict=True)] = 4096
    header: Annotated[int, Field(ge=0, le=500, strict=True)] = 64
    control: Annotated[int, Field(ge=1, le=500, strict=True)] = 64
    spreading: Literal["flow", "spray", "adaptive", "flowlet"] = "flow"
    flowlet_gap: Time = 10_000_000
    flow_control: Literal["pfc", "credits", "none"] = "pfc"
    pfc: Pfc = Pfc()
    credits: Size | None = None
    sharing: Literal["static", "dynamic"] = "static"
    alpha: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    ecn: Ecn | None = Ecn()
    congestion_control: CongestionControl = CongestionControl()
    acks: Literal["analytic", "simulated"] = "analytic"
    ack_every: Count = 1
    cnp_interval: Time = 50_000_000
    recovery: Recovery = Recovery()
    qps: Annotated[int, Field(ge=1, le=1024, strict=True)] = 1
    convergence: Time = 10_000_000_000
    window: Time | None = None
    seed: Index | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.window == 0:
            yield "window", "expected a time above 0; got 0"
        if self.sharing == "dynamic" and self.flow_control == "credits":
            yield "sharing", "expected static with flow_control credits, which promise room to each sender; got dynamic"
        if self.sharing == "dynamic" and self.flow_control == "pfc":
            for name in ("xoff", "xon"):
                if (given := getattr(self.pfc, name)) is not None:
                    yield f"pfc.{name}", f"expected none with sharing dynamic, whose threshold is alpha x free buffer; got {given} B"
        if self.pfc.xon_offset is not None and (self.sharing, self.flow_control) != ("dynamic", "pfc"):
            yield "pfc.xon_offset", f"expected none without sharing dynamic and flow_control pfc; got {self.pfc.xon_offset} B"
        if self.flow_control == "none" and self.spreading != "flow" and self.recovery.mode == "go_back_n":
            yield "spreading", f"expected flow, because go_back_n takes every packet that is overtaken for lost; got {self.spreading}"
        if self.congestion_control.name == "hpcc" and self.spreading in ("spray", "adaptive"):
            yield "spreading", f"expected flow or flowlet with hpcc, which takes a hop for one port; got {self.spreading}"
