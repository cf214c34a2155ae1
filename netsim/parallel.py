"""Everything that is MPI: how ranks start, wait, exchange arrays and fail. No other module imports mpi4py.

`start()` joins the job of the launcher (mpirun, srun); without a launcher, or with one rank, no MPI is started and a serial stand-in of
the same shape answers. Before MPI starts, ranks that outnumber the usable cores are told not to spin while they wait: MPICH's progress
throttle and yield take an 8-byte all-reduce of 8 ranks on 2 cores from 40 ms to below 1 ms, and cost tens of microseconds where cores
suffice.
"""

import contextlib
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from netsim.errors import InputError

_LAUNCHERS = (  # size, rank, ranks on this node, rank on this node
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PALS_SIZE", "PALS_RANKID", "PALS_LOCAL_SIZE", "PALS_LOCAL_RANKID"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"),
)
_NO_SPIN = {
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "1",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS")
PATIENCE_S = 3.0
"""Seconds that a rank which gives up leaves the others to do the same."""


class Launched(NamedTuple):
    """What the launcher says of this process; `by` names the variable that told it, or is empty."""

    size: int
    rank: int
    local_size: int
    local_rank: int
    by: str


def launched(environ: dict[str, str] | os._Environ[str] = os.environ) -> Launched:
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


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


class Comm:
    """Ranks that work together. This base class is one rank by itself; `_MpiComm` speaks MPI."""

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1

    def bcast(self, value: Any, root: int = 0) -> Any:
        """The value that `root` holds, on every rank (any object that pickles)."""
        return value

    def gather(self, value: Any) -> list[Any] | None:
        """The values of all ranks on rank 0, None elsewhere (any objects that pickle)."""
        return [value]

    def allgather(self, array: Any) -> Any:
        """Arrays of one shape and type from all ranks, stacked: [size, ...]."""
        return array[None].copy()

    def fuse(self, arrays: Sequence[Any]) -> list[list[Any]]:
        """Exchange a few int64 arrays of varying length at once; returns, per rank, its arrays."""
        return [[array.copy() for array in arrays]]

    def barrier(self) -> None:
        """Wait, asleep, until all ranks are here."""

    def node_barrier(self) -> None:
        """Wait, asleep, until all ranks of this node are here."""

    def first(self, count: int) -> "Comm | None":
        """The first `count` ranks as a group of their own; None on the other ranks. All ranks must call it."""
        return self

    def abort(self, code: int) -> None:
        """End all ranks at once."""
        os._exit(code)

    def close(self, patience: float | None = None) -> bool:
        """Leave MPI together with all ranks; False where some are not here after `patience` seconds."""
        return True


class _MpiComm(Comm):
    """A communicator of mpi4py."""

    def __init__(self, mpi: Any, comm: Any) -> None:
        self._mpi, self._comm = mpi, comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._node = comm.Split_type(mpi.COMM_TYPE_SHARED, self.rank)
        self.local_rank, self.local_size = self._node.Get_rank(), self._node.Get_size()
        self._closing = comm.Dup()
        self._capacity = 256

    def bcast(self, value: Any, root: int = 0) -> Any:
        return self._comm.bcast(value, root)

    def gather(self, value: Any) -> list[Any] | None:
        return self._comm.gather(value, 0)

    def allgather(self, array: Any) -> Any:
        import numpy as np

        mine = np.ascontiguousarray(array)
        everyone = np.empty((self.size, *mine.shape), mine.dtype)
        self._comm.Allgather(mine, everyone)
        return everyone

    def fuse(self, arrays: Sequence[Any]) -> list[list[Any]]:
        """As in `Comm`: one all-gather of [words, lengths, contents]; a second one only when some rank outgrows the room of the first."""
        import numpy as np

        lengths = np.array([len(array) for array in arrays], np.int64)
        words = 1 + len(arrays) + int(lengths.sum())
        message = np.concatenate([np.array([words], np.int64), lengths, *arrays]).astype(np.int64, copy=False)
        while True:
            room = self._capacity
            mine = np.zeros(room, np.int64)
            mine[: min(words, room)] = message[:room]
            everyone = self.allgather(mine)
            longest = int(everyone[:, 0].max())
            if longest <= room:
                break
            self._capacity = 1 << longest.bit_length()
        return [_unpack(row, len(arrays)) for row in everyone]

    def barrier(self) -> None:
        _sleep_until(self._comm.Ibarrier())

    def node_barrier(self) -> None:
        _sleep_until(self._node.Ibarrier())

    def first(self, count: int) -> "Comm | None":
        part = self._comm.Split(0 if self.rank < count else self._mpi.UNDEFINED, self.rank)
        return _MpiComm(self._mpi, part) if self.rank < count else None

    def abort(self, code: int) -> None:
        self._comm.Abort(code)

    def close(self, patience: float | None = None) -> bool:
        together = _sleep_until(self._closing.Ibarrier(), patience)
        if together:
            self._mpi.Finalize()
        return together


def _unpack(row: Any, count: int) -> list[Any]:
    """Cut one rank's message of `fuse` into its arrays (copies)."""
    parts, start = [], 1 + count
    for length in row[1 : 1 + count]:
        parts.append(row[start : start + length].copy())
        start += length
    return parts


def _sleep_until(request: Any, patience: float | None = None) -> bool:
    """Wait for an MPI request without occupying a core: poll at intervals that grow to 5 ms. False after `patience` seconds in vain."""
    pause, deadline = 20e-6, time.monotonic() + (patience or float("inf"))
    while not request.Test():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 5e-3)
    return True


_world: Comm = Comm()
_serial = _world


def world() -> Comm:
    """All ranks of the job; one rank until `start` was called."""
    return _world


def start() -> Comm:
    """Join the launcher's job and return all its ranks; raises InputError when launcher and MPI library do not belong together."""
    global _world
    job = launched()
    if job.size == 1 or _world is not _serial:
        return _world
    if job.local_size > usable_cores():
        for name, value in _NO_SPIN.items():
            os.environ.setdefault(name, value)
    mpi = _library(job)
    library = " ".join(mpi.Get_library_version().replace("\0", "").splitlines()[0].split(",")[0].split())
    if job.by.startswith("OMPI") and "Open MPI" not in library:
        raise InputError(mismatch(job, library, "is another one"))  # MPICH would abort in Init, with ten lines from each rank
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mpi4py suspects what the next line finds out
        mpi.Init()
    if mpi.COMM_WORLD.Get_size() != job.size:
        raise InputError(mismatch(job, library, f"sees {mpi.COMM_WORLD.Get_size()}"))
    _world = _MpiComm(mpi, mpi.COMM_WORLD)
    sys.excepthook = _end_job
    return _world


def _library(job: Launched) -> Any:
    """Import mpi4py without starting MPI; raises InputError where it, or the MPI library below it, is missing."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        cause = str(error).splitlines()[0]
        raise InputError(
            f"{job.by}={job.size} says that {job.size} ranks were launched, but no MPI library can be loaded ({cause}); "
            "pip install 'netsim-llm[mpi]' brings one, on a cluster load its MPI module"
        ) from None
    return MPI


def mismatch(job: Launched, library: str, but: str) -> str:
    """The sentence for a launcher that is not of the MPI library in use."""
    launcher = {"PMI_SIZE": "MPICH's or Intel's mpirun", "OMPI_COMM_WORLD_SIZE": "Open MPI's mpirun", "SLURM_STEP_NUM_TASKS": "srun"}
    return (
        f"{launcher.get(job.by, 'the launcher')} started {job.size} ranks ({job.by}={job.size}), but the MPI library in use ({library}) "
        f"{but}: use the mpirun that belongs to this library"
    )


def _end_job(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    """An exception that nobody caught ends all ranks: one rank that is gone would leave the others waiting for ever."""
    text = "".join(traceback.format_exception(kind, value, trace))
    print("".join(f"[rank {_world.rank}] {line}\n" for line in text.splitlines()), end="", file=sys.stderr, flush=True)
    _world.abort(1)


def finish(code: int = 0) -> None:
    """Leave MPI in good order; a rank that gives up alone (its code is not 0) takes the others with it after a few seconds."""
    sys.stdout.flush()
    sys.stderr.flush()
    if _world is _serial and code and launched().rank > 0:
        time.sleep(PATIENCE_S)  # Open MPI's mpirun ends the job with the first rank that fails: let rank 0 say why
    if not _world.close(PATIENCE_S if code else None):
        _world.abort(code)


@contextlib.contextmanager
def first_on_node_then_others() -> Iterator[None]:
    """Run the body on one rank of each node first and then on the others, which find numba's cache filled: compiling on all takes ages."""
    if _world.local_rank > 0:
        _world.node_barrier()
    yield
    if _world.local_rank == 0:
        _world.node_barrier()
