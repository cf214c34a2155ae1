"""What a run leaves while it goes on, so that a run that is killed has not been in vain.

A spool is a folder beside the result file: the frame as it is known before the start, the log of transfers as it grows (appended to),
and the arrays in which GPUs book their operations, which are files mapped into memory: what was written is in the kernel's page cache
and outlives the process. Ranks that sample a network of their own append to a file each. Room for mapped files is taken at the start, so
that a full disk is an error then and not a bus error later; one that fills up while the run goes on ends it, and what is in the spool
can be read. A run that ends writes its result file and removes the spool.
"""

import io
import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from netsim.errors import InputError
from netsim.files import placed
from netsim.kernels.structs import Array
from netsim.telemetry import series
from netsim.telemetry.channels import FILETYPE, VERSION, counted
from netsim.telemetry.clock import Clock
from netsim.telemetry.frame import Frame, Happened, Samples, joined
from netsim.telemetry.series import Loads, Log
from netsim.telemetry.write import unwritable, write_head, write_run

FOLDER = "spool"
SHARED = ("busy", "exposed", "timers", "bubble", "end", "start", "begin", "ended", "waited", "turn")
"""Arrays of `Happened` that are mapped files while a run goes on; plain traffic has only `ended`."""
LOG = tuple(map(np.dtype, (np.int32, np.int64, np.int64, np.float64, np.int32)))  # columns of `Log`
SAMPLE = np.dtype([("interval", np.int32), ("link", np.int32), ("value", np.float64)])
RESENT = np.dtype([("group", np.int64), ("end", np.int64), ("packets", np.int64)])
HELD_S = 1.0
"""Seconds after which a run leaves something if it is killed."""
NO_RESENT = np.zeros((0, 3), np.int64)


class Spool:
    """The spool of one rank; rank 0 keeps the frame, the log and the operations, every rank its own samples.

    What is not mapped is held back for the first second, so that short runs do not write everything twice.
    """

    def __init__(self, out: Path, rank: int = 0) -> None:
        self.folder = out / FOLDER
        self.rank = rank
        self.clock = Clock()
        self._starts = time.monotonic() + HELD_S
        self._frame: Frame | None = None
        self._held: dict[str, list[Array]] | None = {}
        if rank == 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._guard(lambda: self.folder.mkdir(parents=True, exist_ok=True))

    def frame(self, frame: Frame) -> None:
        """Take what is known before the start."""
        self._frame = frame

    def _write(self, frame: Frame) -> None:
        columns = {f"channel:{path}": np.asarray(values) for path, values in frame.channels.items()}
        columns |= {f"loads:{name}": array for name, array in frame.loads._asdict().items()}
        columns |= {f"keys:{name}": array for name, array in frame.keys.items()}
        columns |= {name: np.asarray(getattr(frame, name)) for name in _ARRAYS}
        head = {name: getattr(frame, name) for name in _NUMBERS}
        text = json.dumps(head | {"filetype": FILETYPE, "version": VERSION})
        self._guard(lambda: np.savez(self.folder / "frame.npz", allow_pickle=False, **columns))
        self._guard(lambda: _head(self.folder / "frame.json", text))

    def mapped(self, name: str, array: Array) -> Array:
        """A copy of an array that lives in a file of the spool."""
        path = self.folder / f"{name}.npy"

        def make() -> Array:
            with open(path, "wb") as file:
                np.lib.format.write_array_header_1_0(file, {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape})
                start = file.tell()
                os.posix_fallocate(file.fileno(), 0, start + max(array.nbytes, 1))
            room = np.memmap(path, array.dtype, "r+", start, array.shape) if array.size else array
            room[...] = array
            return room.view(np.ndarray)

        return self._guard(make)

    def log(self, part: Log) -> None:
        """Append transfers: how many, then column by column, as they are in memory."""
        self._append("log.bin", np.array([len(part.t0)]), *part)

    def sample(self, counter: str, interval: int, link: Array, value: Array) -> None:
        """Append what this rank's links counted in an interval."""
        rows = np.empty(len(link), SAMPLE)
        rows["interval"], rows["link"], rows["value"] = interval, link, value
        self._append(f"samples-{counter}-{self.rank}.bin", rows)

    def resent(self, rows: Array) -> None:
        """Append what this rank's calls or flows sent again: int64[K, 3] as in `Happened`."""
        if len(rows):
            self._append(f"resent-{self.rank}.bin", rows.astype(np.int64))

    def _append(self, name: str, *arrays: Array) -> None:
        with self.clock:
            if self._held is None:
                self._guard(lambda: _add(self.folder / name, arrays))
                return
            self._held.setdefault(name, []).extend(arrays)
            if time.monotonic() >= self._starts:
                held, self._held = self._held, None
                if self._frame is not None:
                    self._write(self._frame)
                for one, parts in held.items():
                    self._guard(lambda one=one, parts=parts: _add(self.folder / one, parts))

    def _guard(self, work: Any) -> Any:
        try:
            return work()
        except OSError as error:
            clear(self.folder.parent)
            said = unwritable(self.folder, error)
            said.alone = self.rank > 0
            raise said from None

    def abandon(self) -> None:
        """The result file cannot be written: the spool stays if it can be read in its place."""
        if self._held is not None:
            self.remove()

    def remove(self) -> None:
        """The result file is written: the spool goes."""
        shutil.rmtree(self.folder, ignore_errors=True)


def clear(out: Path) -> None:
    """Remove a spool that nothing can be read of, as that of a run that was refused or found no room at once."""
    if not (out / FOLDER / "frame.json").exists():
        shutil.rmtree(out / FOLDER, ignore_errors=True)


def _head(path: Path, text: str) -> None:
    """Write what a spool can be read from once it is there."""
    with placed(path) as part:
        part.write_text(text)


def _add(path: Path, arrays: Sequence[Array]) -> None:
    with open(path, "ab") as file:
        for array in arrays:
            file.write(array.data)


_ARRAYS = ("link_of", "gpu_of", "key_of_tag", "call_group", "call_bytes", "call_alike", "call_path")
_NUMBERS = ("attributes", "choices", "interval", "n_links", "n_bundles")


def recover(folder: Path) -> h5py.File:
    """Make a result file, in memory, of the spool of a run that did not end."""
    try:
        frame, happened = read_frame(folder), read_happened(folder)
    except (OSError, KeyError, ValueError):
        raise InputError(f"{folder}: expected the spool of a run; it was killed before it had begun") from None
    file = h5py.File(io.BytesIO(), "w")
    write_head(file, frame.attributes)
    from netsim.telemetry.write import Writer

    write_run(Writer(file), frame, happened)
    return file


def read_head(folder: Path) -> dict[str, Any]:
    """The numbers and names of a spool's frame; InputError where another version wrote it."""
    head = dict(json.loads((folder / "frame.json").read_text()))
    if tuple(head["version"]) != VERSION:
        raise InputError(f"{folder}: expected the spool of a run of format {_dotted(VERSION)}; got {_dotted(head['version'])}")
    return head


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def read_frame(folder: Path) -> Frame:
    """The frame of a spool."""
    head = read_head(folder)
    with np.load(folder / "frame.npz") as columns:
        arrays = {name: columns[name] for name in columns.files}
    return Frame(
        attributes=head["attributes"],
        channels=_family(arrays, "channel"),
        keys=_family(arrays, "keys"),
        interval=head["interval"],
        choices=tuple(head["choices"]),
        loads=Loads(**{name: arrays[f"loads:{name}"] for name in Loads._fields}),
        n_links=head["n_links"],
        n_bundles=head["n_bundles"],
        **{name: arrays[name] for name in _ARRAYS},
    )


def read_happened(folder: Path) -> Happened:
    """What had happened when the run was killed."""
    log = _log(folder / "log.bin")
    shared = {name: _mapped(folder / f"{name}.npy") for name in SHARED}
    head = read_head(folder)
    by_packets = head["attributes"]["engine"] == "packet"
    samples = {name: _samples(folder, name) for name in (counted(head["choices"]) if by_packets else ())}
    with np.load(folder / "frame.npz") as columns:
        n_bundles, n_links = len(columns["loads:bundle_ptr"]) - 1, len(columns["link_of"])
    interval = head["interval"]
    reached = max(int(log.t1.max(initial=0)), int(shared["ended"].max(initial=0)), int(shared["end"].max(initial=0)), 1)
    sampled = 1 + max((int(s.interval.max(initial=-1)) for s in samples.values()), default=-1)
    reached = max(reached, sampled * interval)
    counters = {name: _total(name, s, n_links, interval / reached) for name, s in samples.items()}
    resent = [_rows(path, RESENT) for path in sorted(folder.glob("resent-*.bin"))]
    again = np.stack([np.concatenate([r[name] for r in resent]) for name in RESENT.names or ()], axis=1) if resent else NO_RESENT
    moved = series.bundle_bytes(log, n_bundles)
    return Happened(False, reached, log, moved, **shared, counters=counters, samples=samples, resent=again)


def _total(name: str, samples: Samples, n_links: int, share: float) -> Array:
    """A counter over the whole run; an interval is `share` of it."""
    if name == "queue_max":
        most = np.zeros(n_links)
        np.maximum.at(most, samples.link, samples.value)
        return most
    return np.bincount(samples.link, weights=samples.value, minlength=n_links) * (share if name == "queue_mean" else 1)


def _family(arrays: dict[str, Array], prefix: str) -> dict[str, Array]:
    """Arrays whose names start with `prefix:`, without it."""
    return {name.partition(":")[2]: values for name, values in arrays.items() if name.startswith(f"{prefix}:")}


def _mapped(path: Path) -> Array:
    """An array that was mapped, empty where the run had none of this name."""
    return np.array(np.load(path, mmap_mode="r")) if path.exists() else np.zeros(0, np.int64)


def _log(path: Path) -> Log:
    """Transfers of a file that may end in the middle of what was appended last, which is then left out."""
    raw, at = path.read_bytes() if path.exists() else b"", 0
    parts = [[np.zeros(0, kind)] for kind in LOG]
    while at + 8 <= len(raw):
        n = int(np.frombuffer(raw, np.int64, 1, at)[0])
        ends = at + 8 + np.cumsum([0, *(n * kind.itemsize for kind in LOG)])
        if ends[-1] > len(raw):
            break
        for column, kind, begin in zip(parts, LOG, ends[:-1].tolist(), strict=True):
            column.append(np.frombuffer(raw, kind, n, begin))
        at = int(ends[-1])
    return Log(*map(np.concatenate, parts))


def _rows(path: Path, kind: "np.dtype[Any]") -> Array:
    """Records of a file that may end in the middle of one."""
    raw = path.read_bytes() if path.exists() else b""
    return np.frombuffer(raw[: len(raw) // kind.itemsize * kind.itemsize], kind)


def _samples(folder: Path, counter: str) -> Samples:
    """What all ranks counted; a counter that nothing was counted for has no file."""
    parts = [np.zeros(0, SAMPLE), *(_rows(path, SAMPLE) for path in sorted(folder.glob(f"samples-{counter}-*.bin")))]
    return joined([Samples(rows["interval"], rows["link"], rows["value"]) for rows in parts])
