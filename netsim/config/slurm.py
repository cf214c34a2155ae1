"""Section `slurm` of a run file: what a batch job asks for when the run is submitted to a cluster."""

from collections.abc import Iterator
from dataclasses import dataclass

from netsim.config.fields import Count, Size, Time


@dataclass(frozen=True)
class Slurm:
    """What the batch job asks for.

    partition, account, qos: as the cluster names them; none: its default.
    nodes: computers that simulate (not those that are simulated); ranks_per_node: MPI ranks on each.
    time: limit of the job; memory: per node, none: the partition's default.
    modules: environment modules to load, such as the cluster's MPI.
    venv: virtual environment to activate; container: image to run in instead.
    options: further lines for sbatch, such as '--constraint=genoa'.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    nodes: Count = 1
    ranks_per_node: Count = 32
    time: Time = 3600 * 10**12
    memory: Size | None = None
    modules: tuple[str, ...] = ()
    venv: str | None = None
    container: str | None = None
    options: tuple[str, ...] = ()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) for what single fields cannot say."""
        if self.venv and self.container:
            yield "container", f"expected a container or a venv; got both (venv: {self.venv})"
        if self.time == 0:
            yield "time", "expected a time above 0; got 0"
        for name in ("partition", "account", "qos", "venv", "container"):
            if not (getattr(self, name) or "").isprintable():
                yield name, f"expected one line of plain text; got {getattr(self, name)!r}"
        for i, option in enumerate(self.options):
            if not option.isprintable():
                yield f"options.{i}", f"expected one line of plain text; got {option!r}"
            elif not option.startswith("-"):
                yield f"options.{i}", f"expected an option of sbatch such as '--exclusive'; got {option!r}"
