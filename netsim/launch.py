"""What the launcher (mpirun, srun) tells a process through its environment, and what a rank tells its libraries before MPI starts."""

import os
from collections.abc import Mapping
from typing import NamedTuple

_LAUNCHERS = (  # size, rank, ranks on this node, rank on this node
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PALS_SIZE", "PALS_RANKID", "PALS_LOCAL_SIZE", "PALS_LOCAL_RANKID"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"),
)
NO_SPIN = {
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "1",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS")

class Launched(NamedTuple):
    """What the launcher says of this process; `by` names the variable that told it, or is empty."""

    size: int
    rank: int
    local_size: int
    local_rank: int
    by: str


def launched(environ: Mapping[str, str] = os.environ) -> Launched:
    """Read the launcher's variables; one process without a launcher is rank 0 of 1."""
    for names in _LAUNCHERS:
        size, rank, local_size, local_rank = (environ.get(name, "") for name in names)
        if size.isdigit() and rank.isdigit():
            near = int(local_size) if local_size.isdigit() else int(size)
            return Launched(int(size), int(rank), near, int(local_rank) if local_rank.isdigit() else int(rank), names[0])
    return Launched(1, 0, 1, 0, "")


def quiet_threads() -> None:
    """One thread per rank for BLAS, OpenMP and numba, unless the user says otherwise; call before numpy is imported."""
    for name in _ONE_THREAD:
        os.environ.setdefault(name, "1")


def enough_cores(job: Launched) -> bool:
    """Guess before MPI starts whether every rank of this node has a core; Open MPI and srun bind a rank to some of those that there are."""
    bound_to = len(os.sched_getaffinity(0))
    node = os.environ.get("SLURM_CPUS_ON_NODE") or (os.cpu_count() if job.by.startswith("OMPI") else 0)
    return job.local_size <= max(bound_to, int(node or 0))


def mismatch(job: Launched, library: str, but: str) -> str:
    """The sentence for a launcher that is not of the MPI library in use."""
    launcher = {"PMI_SIZE": "MPICH's or Intel's mpirun", "OMPI_COMM_WORLD_SIZE": "Open MPI's mpirun", "SLURM_STEP_NUM_TASKS": "srun"}
    return (
        f"{launcher.get(job.by, 'the launcher')} started {job.size} ranks ({job.by}={job.size}), but the MPI library in use ({library}) "
        f"{but}: use the mpirun that belongs to this library"
    )
