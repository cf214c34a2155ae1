"""A run file as a whole: what is simulated, on what, how, and what is recorded."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from netsim.config.compute import Compute
from netsim.config.fields import Index, can_name_a_folder
from netsim.config.nccl import Nccl
from netsim.config.network import Network
from netsim.config.simulate import Simulate
from netsim.config.slurm import Slurm
from netsim.config.telemetry import Telemetry
from netsim.config.topology import Fabric
from netsim.config.traffic import Traffic
from netsim.config.workload import Training


@dataclass(frozen=True)
class Run:
    """Everything that a result depends on.

    name: of the run and of its folder; the file's name where it is left out.
    topology: the cluster: nodes, NICs, switches, cables.
    workload: a training iteration (kind: training) or plain flows (kind: traffic).
    compute: the GPU; only plain flows do without.
    seed: of every random number.
    network: the engine that carries the traffic. nccl: how collectives become traffic.
    simulate: how the simulation is carried out. telemetry: what is recorded. slurm: what a batch job asks for.
    """

    name: str
    topology: Fabric
    workload: Annotated[Training | Traffic, Field(discriminator="kind")]
    compute: Compute | None = None
    seed: Index = 0
    network: Network = field(default_factory=Network)
    nccl: Nccl = field(default_factory=Nccl)
    simulate: Simulate = field(default_factory=Simulate)
    telemetry: Telemetry = field(default_factory=Telemetry)
    slurm: Slurm = field(default_factory=Slurm)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) for every rule between sections that needs no arrays; the packages below check the rest as they build."""
        if not can_name_a_folder(self.name):
            yield "name", f"expected a name that can be a folder's; got {self.name!r}"
        if isinstance(self.workload, Traffic):
            yield from _hosts(self.workload, self.topology.nodes * self.topology.nics)
        elif self.compute is None:
            yield "compute", "expected a section with device for workload.kind: training; got nothing"
        gpus = self.topology.nodes * self.topology.gpus_per_node
        for i, slow in enumerate(self.simulate.slow_gpus):
            if slow.gpu >= gpus:
                yield f"simulate.slow_gpus.{i}.gpu", f"expected a GPU of the fabric (0 to {gpus - 1}); got {slow.gpu}"
        for i, rank in enumerate(self.telemetry.operations if isinstance(self.telemetry.operations, tuple) else ()):
            if rank >= gpus:
                yield f"telemetry.operations.{i}", f"expected a GPU of the fabric (0 to {gpus - 1}); got {rank}"
        turns = self.simulate.iterations
        if turns > 1 and isinstance(self.workload, Traffic):
            yield "simulate.iterations", f"expected 1 with workload.kind: traffic, whose flows say when they start; got {turns}"
        for i, turn in enumerate(self.telemetry.iterations if isinstance(self.telemetry.iterations, tuple) else ()):
            if turn >= turns:
                yield f"telemetry.iterations.{i}", f"expected an iteration of the run (0 to {turns - 1}); got {turn}"


def _hosts(traffic: Traffic, nics: int) -> Iterator[tuple[str, str]]:
    """Rules of plain flows against the NICs that there are."""
    hosts = nics if traffic.hosts is None else traffic.hosts
    if hosts > nics:
        yield "workload.hosts", f"expected at most the {nics} NICs of the fabric; got {hosts}"
    if traffic.pattern == "incast" and traffic.fan_in >= hosts:
        yield "workload.fan_in", f"expected fewer senders than the {hosts} hosts; got {traffic.fan_in}"
    for i, row in enumerate(traffic.flows):
        for end in ("src", "dst"):
            if getattr(row, end) >= nics:
                yield f"workload.flows.{i}.{end}", f"expected a NIC of the fabric (0 to {nics - 1}); got {getattr(row, end)}"
