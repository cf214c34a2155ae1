"""Ranks as threads of one process: the hand-over between parts of a fabric, without MPI."""

import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from netsim.parallel import Comm
from tests.conftest import PATIENCE_S


class _Meeting:
    """Where threads leave what they have for others; each gets all of it."""

    def __init__(self, size: int) -> None:
        self.barrier, self.left = threading.Barrier(size), [None] * size

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self.left[rank] = value
        self.barrier.wait(PATIENCE_S)
        everyone = list(self.left)
        self.barrier.wait(PATIENCE_S)
        return everyone


class Thread(Comm):
    """A rank that is a thread."""

    def __init__(self, rank: int, size: int, meeting: _Meeting) -> None:
        self.rank, self.size, self._meeting = rank, size, meeting

    def bcast(self, value: Any, root: int = 0) -> Any:
        return pickle.loads(self._meeting.exchange(self.rank, pickle.dumps(value) if self.rank == root else None)[root])

    def gather(self, value: Any) -> list[Any] | None:
        everyone = self._meeting.exchange(self.rank, value)
        return everyone if self.rank == 0 else None

    def allgather(self, array: Any) -> Any:
        return np.stack(self._meeting.exchange(self.rank, np.array(array)))

    def fuse(self, arrays: Any) -> list[list[Any]]:
        return self._meeting.exchange(self.rank, [a.copy() for a in arrays])

    def swap(self, blocks: Any) -> Any:
        return np.stack([b[self.rank] for b in self._meeting.exchange(self.rank, blocks.copy())])

    def pour(self, words: Any, counts: Any, expected: Any) -> Any:
        everyone = self._meeting.exchange(self.rank, (words.copy(), counts))
        parts = [w[c[: self.rank].sum() : c[: self.rank + 1].sum()] for w, c in everyone]
        assert [len(p) for p in parts] == expected.tolist()
        return np.concatenate(parts)

    def split(self, part: int) -> Comm:
        members = [r for r, p in enumerate(self._meeting.exchange(self.rank, part)) if p == part]
        meeting = self._meeting.exchange(self.rank, _Meeting(len(members)))[members[0]]
        return Thread(members.index(self.rank), len(members), meeting)


def together(size: int, work: Callable[[Comm], Any]) -> list[Any]:
    """Let `size` ranks do `work`; returns what each returned."""
    meeting, found, failed = _Meeting(size), [None] * size, []

    def one(rank: int) -> None:
        try:
            found[rank] = work(Thread(rank, size, meeting))
        except BaseException as error:
            failed.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=one, args=(r,)) for r in range(size)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for error in failed:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    assert not failed, failed
    return found
