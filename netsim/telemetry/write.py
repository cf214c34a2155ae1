"""One result file per run: written under a temporary name, renamed when it is whole."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from netsim.errors import InputError
from netsim.kernels.structs import Array
from netsim.telemetry.channels import BY_PATH, FILETYPE, VERSION

CHUNK = 1 << 16


class Writer:
    """Writes channels of the declaration table to an open file."""

    def __init__(self, file: h5py.File) -> None:
        self.file = file

    def put(self, path: str, values: Any) -> None:
        """Write a whole channel."""
        channel = BY_PATH[path]
        data = np.array(values, dtype=h5py.string_dtype()) if channel.dtype == "str" else np.asarray(values, dtype=channel.dtype)
        big = data.size * (8 if channel.dtype == "str" else data.itemsize) > CHUNK
        options: dict[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": True, "chunks": True} if big else {}
        self._describe(self.file.create_dataset(path, data=data, **options), path)

    def open_series(self, path: str, rows: int, columns: int, chunk: int) -> h5py.Dataset:
        """Make a two-dimensional channel that is filled column block by column block."""
        shape = (rows, columns)
        options: dict[str, Any] = {}
        if rows and columns:
            options = {"compression": "gzip", "compression_opts": 1, "shuffle": True, "chunks": (1, min(chunk, columns))}
        dataset = self.file.create_dataset(path, shape=shape, dtype=BY_PATH[path].dtype, **options)
        self._describe(dataset, path)
        return dataset

    def _describe(self, dataset: h5py.Dataset, path: str) -> None:
        channel = BY_PATH[path]
        dataset.attrs["axes"] = list(channel.axes)
        dataset.attrs["unit"] = channel.unit
        dataset.attrs["meaning"] = channel.meaning


@contextmanager
def result_file(path: Path, attributes: Mapping[str, Any]) -> Iterator[Writer]:
    """Open `path` for writing under a temporary name; it takes its own name only if nothing fails.

    Raises InputError, naming the path, where the file cannot be written.
    """
    part = path.with_name(path.name + ".part")
    try:
        with h5py.File(part, "w") as file:
            file.attrs["filetype"] = FILETYPE
            file.attrs["version"] = VERSION
            for name, value in attributes.items():
                file.attrs[name] = value
            yield Writer(file)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        reason = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
        raise InputError(f"{path}: expected a place that can be written; {reason}") from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def link_series(writer: Writer, rows: int, n_bins: int, blocks: Iterator[tuple[int, Array]], chunk: int) -> None:
    """Fill `series/bytes` from (first interval, float64[rows, intervals]) blocks."""
    dataset = writer.open_series("series/bytes", rows, n_bins, chunk)
    for first, block in blocks:
        dataset[:, first : first + block.shape[1]] = block
