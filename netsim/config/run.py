"""A run file as a whole: what is simulated, on what, how, and what is recorded."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from netsim.config.compute import Compute
from netsim.config.fields import Index
from netsim.config.nccl import Nccl
from netsim.config.simulate import Simulate
from netsim.config.slurm import Slurm
from netsim.config.telemetry import Telemetry
from netsim.config.topology import Fabric
from netsim.config.workload import Training


@dataclass(frozen=True)
class Run:
    """Everything that a result depends on.

    name: of the run and of its folder; the file's name where it is left out.
    seed: of every random number.
    """

    name: str
    topology: Fabric
    workload: Training
    compute: Compute
    seed: Index = 0
    nccl: Nccl = field(default_factory=Nccl)
    simulate: Simulate = field(default_factory=Simulate)
    telemetry: Telemetry = field(default_factory=Telemetry)
    slurm: Slurm = field(default_factory=Slurm)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) for every rule between sections."""
        if not self.name or "/" in self.name or self.name.startswith("."):
            yield "name", f"expected a name that can be a folder's; got {self.name!r}"
        for i, slow in enumerate(self.simulate.slow_gpus):
            gpus = self.topology.nodes * self.topology.gpus_per_node
            if slow.gpu >= gpus:
                yield f"simulate.slow_gpus.{i}.gpu", f"expected a GPU of the fabric (0 to {gpus - 1}); got {slow.gpu}"
