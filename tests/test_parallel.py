"""MPI for real: exchanges, waiting, failure, and a launcher that does not fit; and the serial stand-in."""

import os
from pathlib import Path

import numpy as np
import pytest

from netsim import parallel
from netsim.launch import launched, quiet_threads
from tests.conftest import Cli

EXCHANGES = """
import numpy as np
from netsim import parallel

comm = parallel.start()
rank, size = comm.rank, comm.size
assert parallel.world() is comm and parallel.start() is comm
assert comm.bcast({"from": rank}) == {"from": 0}
gathered = comm.gather(rank * rank)
assert gathered == ([r * r for r in range(size)] if rank == 0 else None)
both = comm.allgather(np.array([rank, -rank], np.int32))
assert both.dtype == np.int32 and both.tolist() == [[r, -r] for r in range(size)]

for n in (253, 254, 255):  # with two words of its own, a message fills the room of 256, and goes beyond it by one
    assert [parts[0].tolist() for parts in comm.fuse([np.arange(n) + rank])] == [list(range(r, n + r)) for r in range(size)]
for scale in (1, 1000, 3):  # the second outgrows the room of a single exchange
    sent = [np.arange(rank * scale, dtype=np.int64), np.zeros(0, np.int64), np.array([rank + 2**40], np.int64)]
    for r, parts in enumerate(comm.fuse(sent)):
        assert [p.tolist() for p in parts] == [list(range(r * scale)), [], [r + 2**40]]

swapped = comm.swap(np.array([[rank, to] for to in range(size)], np.int64))
assert swapped.tolist() == [[r, rank] for r in range(size)]
counts = np.arange(size) * (rank + 1)  # r words from rank r - 1 to rank 1, twice as many to rank 2, ...
poured = comm.pour(np.repeat(np.arange(size), counts) + 100 * rank, counts, rank * np.arange(1, size + 1))
assert poured.tolist() == [100 * r + rank for r in range(size) for _ in range(rank * (r + 1))]
part = comm.split(rank // 2)
assert part.size == 2 and part.allgather(np.array([rank])).tolist() == [[rank // 2 * 2], [rank // 2 * 2 + 1]]
comm.barrier()
with parallel.first_on_node_then_others():
    order = open("order", "a")
    order.write(str(rank))
    order.close()
comm.barrier()
assert open("order").read()[0] == "0" and len(open("order").read()) == size
print(f"rank {rank} done", flush=True)
parallel.finish()
"""


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_exchanges(python: Cli, ranks: int) -> None:
    done = python("-c", EXCHANGES, ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert all(f"rank {r} done" in done.stdout for r in range(ranks))


FAILING = """
import time
from netsim import parallel
comm = parallel.start()
if comm.rank == 1:
    raise RuntimeError("the disk of rank 1 burns")
comm.barrier()
time.sleep(1000)
"""


@pytest.mark.mpi
def test_a_rank_that_fails_ends_the_job_with_its_message(python: Cli) -> None:
    ended = python("-c", FAILING, ranks=3)
    assert ended.returncode != 0  # mpirun may add the signal by which it ended the others
    assert "[rank 1] RuntimeError: the disk of rank 1 burns" in ended.stderr


KILLED = """
import os, signal, time
from netsim import parallel
comm = parallel.start()
comm.barrier()
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
comm.allgather(__import__("numpy").zeros(1))
time.sleep(1000)
"""


@pytest.mark.mpi
def test_a_rank_that_is_killed_ends_the_job(python: Cli) -> None:
    ended = python("-c", KILLED, ranks=3)
    assert ended.returncode != 0


ALONE = """
from netsim import parallel
comm = parallel.start()
if comm.rank == 1:
    parallel.finish(2)
comm.bcast(0, root=1)
"""


@pytest.mark.mpi
def test_a_rank_that_gives_up_alone_takes_the_others_with_it(python: Cli) -> None:
    ended = python("-c", ALONE, ranks=2)
    assert ended.returncode != 0


LIBRARY = """
import os, sys
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
MPI.Init()  # before the variables are set, so that MPI itself is not misled by them
os.environ.update({prefix}_SIZE="4", {prefix}_RANK="0")
MPI.Init = lambda: None
MPI.Get_library_version = lambda: "{library}, of today"
from netsim.cli.main import main
sys.exit(main(["run", "none.yaml"]))
"""


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("prefix", "library", "said"),
    [
        ("PMI", "Open MPI v5", "MPICH's or Intel's mpirun started 4 ranks (PMI_SIZE=4), but the MPI library in use (Open MPI v5) sees 1"),
        ("OMPI_COMM_WORLD", "MPICH", "4 ranks (OMPI_COMM_WORLD_SIZE=4), but the MPI library in use (MPICH) is another one"),
    ],
)
def test_a_launcher_of_another_mpi_is_named(python: Cli, prefix: str, library: str, said: str) -> None:
    ended = python("-c", LIBRARY.format(prefix=prefix, library=library))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr and ended.stderr.endswith(": use the mpirun that belongs to this library\n")
    assert len(ended.stderr.splitlines()) == 1


def test_no_mpi_library_is_one_sentence(python: Cli, tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('libmpi.so.12: cannot open shared object file')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from netsim.cli.main import main; sys.exit(main(['run', 'none.yaml']))"
    ended = python("-c", code, PMI_SIZE="2", PMI_RANK="0")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1 and "no MPI library can be loaded (libmpi.so.12" in ended.stderr


IDLE = """
import os, sys, time
from netsim import parallel
comm = parallel.start()
assert comm.idle == (parallel.launched().rank >= 2)
if not comm.idle:
    assert comm.size == 2
    time.sleep(1)
    comm.barrier()
    print("worked", flush=True)
used = sum(os.times()[:2])
code = parallel.finish(2 if comm.rank == 1 else 0)
if comm.idle:
    assert sum(os.times()[:2]) - used < 0.5, "an idle rank sleeps"
sys.exit(code if code == 2 else 9)
"""


@pytest.mark.mpi
def test_ranks_beyond_the_cores_sleep_and_end_with_the_code_of_the_others(python: Cli) -> None:
    ended = python("-c", IDLE, ranks=5, NETSIM_RANKS_PER_NODE="2")
    assert (ended.returncode, ended.stdout.count("worked")) == (2, 2), ended.stderr


@pytest.mark.mpi
def test_by_default_as_many_ranks_work_as_there_are_cores(python: Cli) -> None:
    code = "from netsim import parallel; c = parallel.start(); print('idle' if c.idle else f'{c.size} work', flush=True); parallel.finish()"
    cores = len(os.sched_getaffinity(0))
    shown = python("-c", code, ranks=cores + 2, NETSIM_RANKS_PER_NODE="")
    assert (shown.stdout.count(f"{cores} work"), shown.stdout.count("idle")) == (cores, 2)


@pytest.mark.mpi
def test_at_least_one_rank_works(python: Cli) -> None:
    code = "from netsim import parallel; c = parallel.start(); print('idle' if c.idle else f'{c.size} work', flush=True); parallel.finish()"
    shown = python("-c", code, ranks=2, NETSIM_RANKS_PER_NODE="0")
    assert (shown.stdout.count("1 work"), shown.stdout.count("idle")) == (1, 1)


def test_one_process_starts_no_mpi(python: Cli) -> None:
    code = "import sys; from netsim import parallel; c = parallel.start(); print(c.rank, c.size, 'mpi4py' in sys.modules)"
    assert python("-c", code).stdout == "0 1 False\n"


def test_serial_stand_in_answers_like_one_rank() -> None:
    comm = parallel.Comm()
    assert comm.bcast(5) == 5 and comm.gather(5) == [5]
    assert comm.allgather(np.arange(3)).tolist() == [[0, 1, 2]]
    sent = [np.arange(3), np.arange(0)]
    (received,) = comm.fuse(sent)
    assert [a.tolist() for a in received] == [[0, 1, 2], []]
    received[0][0] = 9
    assert sent[0][0] == 0, "what is received is a copy, as it is with MPI"
    assert comm.swap(np.arange(2)[None]).tolist() == [[0, 1]]
    assert comm.pour(np.arange(3), np.array([2]), np.array([2])).tolist() == [0, 1]
    assert comm.split(7) is comm and not comm.idle


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (1, 0, 1, 0, "")),
        ({"PMI_SIZE": "8", "PMI_RANK": "3", "MPI_LOCALNRANKS": "4", "MPI_LOCALRANKID": "3"}, (8, 3, 4, 3, "PMI_SIZE")),
        (
            {f"OMPI_COMM_WORLD_{name}": value for name, value in {"SIZE": "4", "RANK": "2", "LOCAL_SIZE": "2", "LOCAL_RANK": "0"}.items()},
            (4, 2, 2, 0, "OMPI_COMM_WORLD_SIZE"),
        ),
        ({"SLURM_NTASKS": "64", "SLURM_PROCID": "0"}, (1, 0, 1, 0, "")),
        (
            {"SLURM_STEP_NUM_TASKS": "64", "SLURM_PROCID": "40", "SLURM_NTASKS_PER_NODE": "32", "SLURM_LOCALID": "8"},
            (64, 40, 32, 8, "SLURM_STEP_NUM_TASKS"),
        ),
    ],
    ids=["none", "mpich", "openmpi", "batch script", "srun"],
)
def test_launcher_is_recognised(environ: dict[str, str], expected: tuple[int, int, int, int, str]) -> None:
    assert launched(environ) == expected


def test_one_thread_per_rank_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "4")
    quiet_threads()
    assert (os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]) == ("1", "4")
