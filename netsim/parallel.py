"""Everything that is MPI: how ranks start, wait, exchange arrays and fail. No other module imports mpi4py.

`start()` joins the job of the launcher (mpirun, srun); without a launcher, or with one rank, no MPI is started and a serial stand-in of
the same shape answers. Where ranks outnumber the cores of a node, only as many as there are cores work: `world()` is those, and the rest
sleep until the end. Before MPI starts, such ranks are told not to spin while they wait: MPICH's progress throttle and yield take an 8-byte
all-reduce of 8 ranks on 2 cores from 40 ms to below 1 ms, and cost tens of microseconds where cores suffice.
"""

import contextlib
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from netsim.errors import InputError
from netsim.launch import NO_SPIN, Launched, enough_cores, launched, mismatch

PATIENCE_S, PATIENCE_INTERRUPTED_S = 3.0, 25.0
"""Seconds that a rank which gives up leaves the others to do the same; after an interruption they may have results to write."""


class Comm:
    """Ranks that work together. This base class is one rank by itself; `_MpiComm` speaks MPI."""

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1
    crowded = False
    """More ranks work on some node than it has cores."""
    idle = False
    """A rank too many for the cores of its node: it takes no part and waits in `finish`."""

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

    def swap(self, blocks: Any) -> Any:
        """Row i of int64[size, W] goes to rank i; returns the rows that all ranks sent here."""
        return blocks.copy()

    def pour(self, words: Any, counts: Any, expected: Any) -> Any:
        """Send the first counts[0] of int64 `words` to rank 0, the next counts[1] to rank 1, ...; returns the `expected` (int64[size])
        that they sent here, likewise."""
        return words[: counts.sum()].copy()

    def split(self, part: int) -> "Comm":
        """The ranks that give the same number, as a group of their own. All ranks must call it."""
        return self


class _MpiComm(Comm):
    """A communicator of mpi4py."""

    def __init__(self, mpi: Any, comm: Any, crowded: bool) -> None:
        self._mpi, self._comm, self.crowded = mpi, comm, crowded
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._node = comm.Split_type(mpi.COMM_TYPE_SHARED, self.rank)
        self.local_rank, self.local_size = self._node.Get_rank(), self._node.Get_size()
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

    def swap(self, blocks: Any) -> Any:
        import numpy as np

        found = np.empty_like(blocks)
        self._comm.Alltoall(blocks, found)
        return found

    def pour(self, words: Any, counts: Any, expected: Any) -> Any:
        import numpy as np

        found = np.empty(int(expected.sum()), np.int64)
        self._comm.Alltoallv([words, counts, self._mpi.INT64_T], [found, expected, self._mpi.INT64_T])
        return found

    def split(self, part: int) -> "Comm":
        return _MpiComm(self._mpi, self._comm.Split(part, self.rank), self.crowded)


class _Idle(Comm):
    """A rank that only waits for the end."""

    idle = True


class _Job:
    """All ranks that were launched, working or idle: how they end."""

    def __init__(self, mpi: Any) -> None:
        self._mpi, self._comm = mpi, mpi.COMM_WORLD.Dup()

    def leave(self, code: int) -> int:
        """Leave MPI together and return the worst code of all ranks; where the others do not come, a code other than 0 ends them."""
        import array

        mine, worst = array.array("i", [code]), array.array("i", [0])
        patience = None if code == 0 else PATIENCE_S if code <= 2 else PATIENCE_INTERRUPTED_S
        if not _sleep_until(self._comm.Iallreduce(mine, worst, self._mpi.MAX), patience, longest=50e-3):
            self.abort(code)
        self._mpi.Finalize()
        return worst[0]

    def abort(self, code: int) -> None:
        """End all ranks at once."""
        self._comm.Abort(code)


def _unpack(row: Any, count: int) -> list[Any]:
    """Cut one rank's message of `fuse` into its arrays (copies)."""
    parts, start = [], 1 + count
    for length in row[1 : 1 + count]:
        parts.append(row[start : start + length].copy())
        start += length
    return parts


def _sleep_until(request: Any, patience: float | None = None, longest: float = 5e-3) -> bool:
    """Wait for an MPI request asleep, polling at intervals that grow to `longest`. False after `patience` seconds in vain."""
    pause, deadline = 20e-6, time.monotonic() + (patience or float("inf"))
    while not request.Test():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, longest)
    return True


_world = Comm()
_job: _Job | None = None


def world() -> Comm:
    """All ranks that work; one rank until `start` was called."""
    return _world


def start() -> Comm:
    """Join the launcher's job and return the ranks that work; raises InputError when launcher and MPI library do not belong together."""
    global _world, _job
    job = launched()
    if job.size == 1 or _job is not None:
        return _world
    if not enough_cores(job):
        for name, value in NO_SPIN.items():
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
    _job = _Job(mpi)
    sys.excepthook = _end_job
    _world = _workers(mpi)
    return _world


def _workers(mpi: Any) -> Comm:
    """As many ranks of each node as it has cores for; NETSIM_RANKS_PER_NODE sets another number, of at least 1."""
    everyone = mpi.COMM_WORLD
    node = everyone.Split_type(mpi.COMM_TYPE_SHARED, everyone.Get_rank())
    cores = len(set().union(*node.allgather(os.sched_getaffinity(0))))
    said = os.environ.get("NETSIM_RANKS_PER_NODE", "")
    most = max(1, int(said)) if said.isdigit() else cores
    works = node.Get_rank() < most
    part = everyone.Split(int(not works), everyone.Get_rank())
    workers = min(node.Get_size(), most)
    crowded = max(everyone.allgather(workers - cores)) > 0
    return _MpiComm(mpi, part, crowded) if works else _Idle()


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


def _end_job(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    """An exception that nobody caught ends all ranks: one rank that is gone would leave the others waiting for ever."""
    text = "".join(traceback.format_exception(kind, value, trace))
    print("".join(f"[rank {launched().rank}] {line}\n" for line in text.splitlines()), end="", file=sys.stderr, flush=True)
    if _job is not None:
        _job.abort(1)


def finish(code: int = 0) -> int:
    """Leave MPI in good order and return the exit code of the job, the worst of all ranks.

    A rank that gives up alone (its code is not 0) takes the others with it after a few seconds.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if _job is not None:
        return _job.leave(code)
    if code and launched().rank > 0:
        time.sleep(PATIENCE_S)  # Open MPI's mpirun ends the job with the first rank that fails: let rank 0 say why
    return code


@contextlib.contextmanager
def first_on_node_then_others() -> Iterator[None]:
    """Run the body on one rank of each node first and then on the others, which find numba's cache filled: compiling on all takes ages."""
    if _world.local_rank > 0:
        _world.node_barrier()
    yield
    if _world.local_rank == 0:
        _world.node_barrier()
