"""One result file per run: written under a temporary name, renamed when it is whole."""

import io
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from netsim.errors import InputError
from netsim.files import placed
from netsim.telemetry import series
from netsim.telemetry.channels import BY_PATH, COUNTERS, FILETYPE, VERSION
from netsim.telemetry.frame import Frame, Happened, Series, channels, layout, sampled_block

PACKED, PACKED_WIDE = 1 << 12, 1 << 25
"""Bytes from which an array is compressed. One of 4- or 8-byte numbers takes longer and gains less: up to 32 MB it stays as it is."""


class Writer:
    """Writes channels of the declaration table to an open file."""

    def __init__(self, file: h5py.File) -> None:
        self.file = file

    def put(self, path: str, values: Any) -> None:
        """Write a whole channel."""
        channel = BY_PATH[path]
        text = channel.dtype == "str"
        data = _encoded(values) if text else np.asarray(values, dtype=channel.dtype)
        packed = data.nbytes > (PACKED if text or data.itemsize <= 2 else PACKED_WIDE)
        options: dict[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": not text} if packed else {}
        self._describe(self.file.create_dataset(path, data=data, **options), path)

    def open_series(self, path: str, rows: int, bins: int) -> h5py.Dataset:
        """Make a channel that is filled block of intervals by block; rows compress better and faster by whole values than by bytes."""
        kind = np.dtype(BY_PATH[path].dtype)
        options: dict[str, Any] = {"chunks": (1, min(series.BLOCK, bins))} if rows and bins else {}
        if rows * bins * kind.itemsize > PACKED_WIDE:
            options |= {"compression": "gzip", "compression_opts": 1}
        dataset = self.file.create_dataset(path, shape=(rows, bins), dtype=kind, **options)
        self._describe(dataset, path)
        return dataset

    def _describe(self, dataset: h5py.Dataset, path: str) -> None:
        channel = BY_PATH[path]
        dataset.attrs["axes"] = list(channel.axes)
        dataset.attrs["unit"] = channel.unit
        dataset.attrs["meaning"] = channel.meaning


def _encoded(texts: Any) -> Any:
    """Texts, or an array of bytes, as bytes of one length: variable lengths take HDF5 ten times as long."""
    if not isinstance(texts, np.ndarray) or texts.dtype.kind != "S":
        texts = np.array([str(text).encode() for text in texts], np.bytes_)
    return texts.astype(h5py.string_dtype("utf-8", int(np.strings.str_len(texts).max(initial=1))))


@contextmanager
def result_file(path: Path, attributes: Mapping[str, Any]) -> Iterator[Writer]:
    """Make a file in memory and write it to `path` under a temporary name; it takes its own name only if nothing fails.

    Raises InputError, naming the path, where the file cannot be written. HDF5 itself does not survive a disk that becomes full, hence the
    memory: as much as the compressed file takes.
    """
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        write_head(file, attributes)
        yield Writer(file)
    with whole(path) as part:
        part.write_bytes(buffer.getbuffer())


@contextmanager
def whole(path: Path, tag: str = "") -> Iterator[Path]:
    """As `placed`, with what the operating system says turned into one line for the person."""
    with written(path), placed(path, tag) as part:
        yield part


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Turn what the operating system says about `path` into one line for the person: no room, no right, no such folder."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> InputError:
    """The line for a file that cannot be written."""
    return InputError(f"{path}: expected a place that can be written; got: {(error.strerror or str(error)).lower()}")


def write_head(file: h5py.File, attributes: Mapping[str, Any]) -> None:
    """What every result file starts with."""
    file.attrs["filetype"] = FILETYPE
    file.attrs["version"] = VERSION
    for name, value in attributes.items():
        file.attrs[name] = value


def write_run(writer: Writer, frame: Frame, happened: Happened) -> None:
    """Write all that a run recorded, and the attributes that say how far it got."""
    alike = series.alike(happened.log, frame.loads, frame.n_links)
    for path, values in channels(frame, happened, alike).items():
        writer.put(path, values)
    attributes = writer.file.attrs
    attributes["complete"], attributes["end_ps"] = happened.complete, happened.end_ps
    if "series" not in frame.choices or happened.end_ps == 0:
        return
    shape = layout(frame, happened, alike)
    attributes["interval_ps"] = shape.interval
    writer.put("links/series", shape.of_link)
    _bytes(writer, frame, happened, shape)
    for name, (choice, _, how, *_) in COUNTERS.items():
        if name in happened.samples and choice in frame.choices:
            _sampled(writer, frame, happened, shape, name, how)


def _bytes(writer: Writer, frame: Frame, happened: Happened, shape: Series) -> None:
    dataset = writer.open_series("series/bytes", shape.rows, shape.bins)
    factor = shape.interval // frame.interval
    for bin0, block in series.blocks(happened.log, frame.loads, shape.of_simulated, shape.rows, shape.interval, happened.end_ps):
        if "bytes" in happened.samples:
            block += sampled_block(happened.samples["bytes"], shape, factor, bin0, block.shape[1], "sum")
        _fill(dataset, bin0, block)


def _sampled(writer: Writer, frame: Frame, happened: Happened, shape: Series, name: str, how: str) -> None:
    dataset = writer.open_series(f"series/{name}", shape.rows, shape.bins)
    factor = shape.interval // frame.interval
    for bin0 in range(0, shape.bins, series.BLOCK):
        width = min(series.BLOCK, shape.bins - bin0)
        if not np.diff(np.searchsorted(happened.samples[name].interval, [bin0 * factor, (bin0 + width) * factor]))[0]:
            continue  # what is not written reads as zeros
        _fill(dataset, bin0, sampled_block(happened.samples[name], shape, factor, bin0, width, how))


def _fill(dataset: h5py.Dataset, bin0: int, block: Any) -> None:
    """Write a block chunk by chunk, past HDF5's conversions, which take longer than all the rest; chunks of nothing take no place."""
    if dataset.size == 0:  # no link carried anything
        return
    width, packed = dataset.chunks[1], dataset.compression is not None
    whole = np.zeros((len(block), width), dataset.dtype)
    whole[:, : block.shape[1]] = block
    for row in np.flatnonzero(whole.any(axis=1)).tolist():
        chunk = whole[row].tobytes()
        dataset.id.write_direct_chunk((row, bin0), zlib.compress(chunk, 1) if packed else chunk)
