"""Tables in HDF5: one dataset per column, all of the same length, under a temporary name until the file is whole."""

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from netsim.errors import InputError
from netsim.telemetry.write import whole

FILETYPE = "netsim-table"
VERSION = (1, 0)


def write_table(path: Path, columns: Mapping[str, Sequence[Any]], attributes: Mapping[str, Any], units: Mapping[str, str]) -> None:
    """Write columns of text or numbers (None becomes NaN, or empty text) to `path`; InputError, naming it, where that cannot be."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["filetype"] = FILETYPE
        file.attrs["version"] = VERSION
        file.attrs["columns"] = list(columns)
        for name, value in attributes.items():
            file.attrs[name] = value
        for name, values in columns.items():
            text = any(isinstance(value, str) for value in values)
            data = [("" if text else np.nan) if value is None else value for value in values]
            dataset = file.create_dataset(f"table/{name}", data=np.array(data, dtype=h5py.string_dtype() if text else None))
            dataset.attrs["unit"] = units.get(name, "")
    with whole(path, f".{os.getpid()}") as part:  # several jobs may write the table of a study
        part.write_bytes(buffer.getbuffer())


def read_table(path: Path) -> dict[str, list[Any]]:
    """Read the columns of a table in their order."""
    try:
        file = h5py.File(path, "r")
    except OSError:
        raise InputError(f"{path}: expected a table (HDF5); there is none, or it is of another kind") from None
    with file:
        if file.attrs.get("filetype") != FILETYPE:
            raise InputError(f"{path}: expected a file of type '{FILETYPE}'; got '{file.attrs.get('filetype', 'none')}'")
        found = {}
        for name in file.attrs["columns"]:
            data = file[f"table/{name}"]
            found[str(name)] = (data.asstr()[()] if h5py.check_string_dtype(data.dtype) else data[()]).tolist()
        return found
