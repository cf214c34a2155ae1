"""Reading result files: `with netsim.open_run(path) as run: run["links/bytes"]`."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np

from netsim.errors import InputError, did_you_mean
from netsim.telemetry.channels import BY_PATH, FILETYPE, VERSION


class RunFile:
    """A result file opened for reading; arrays are read when asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            self.path = self.path / "result.h5"
        try:
            self._file = h5py.File(self.path, "r")
        except FileNotFoundError:
            raise InputError(f"{self.path}: expected a result file; there is none") from None
        except OSError:
            raise InputError(f"{self.path}: expected a result file (HDF5); it is truncated or of another kind") from None
        self._check()

    def _check(self) -> None:
        if self._file.attrs.get("filetype") != FILETYPE:
            raise InputError(f"{self.path}: expected a file of type '{FILETYPE}'; got '{self._file.attrs.get('filetype', 'none')}'")
        major = int(self._file.attrs["version"][0])
        if major != VERSION[0]:
            raise InputError(f"{self.path}: expected version {VERSION[0]} of the result format; got {major}")

    def __enter__(self) -> "RunFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def __contains__(self, path: str) -> bool:
        return path in self._file

    def __getitem__(self, path: str) -> Any:
        """The channel as a NumPy array (strings as Python strings)."""
        if path not in self._file or not isinstance(self._file[path], h5py.Dataset):
            raise InputError(f"{self.path}: expected a channel of this file; got '{path}'{did_you_mean(path, BY_PATH)}")
        data = self._file[path]
        return data.asstr()[()] if h5py.check_string_dtype(data.dtype) else data[()]

    def slice(self, path: str, *index: Any) -> np.ndarray:
        """A part of a channel, without reading the rest."""
        return np.asarray(self._file[path][index])

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the file: engine, interval_s, complete, names of streams and categories..."""
        return {name: value for name, value in self._file.attrs.items() if name not in ("config", "summary")}

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return dict(json.loads(self._file.attrs["config"]))

    @property
    def summary(self) -> dict[str, Any]:
        """What `summary.json` says."""
        return dict(json.loads(self._file.attrs["summary"]))

    def series(self, link: int) -> np.ndarray:
        """Bytes of a link in each interval, float64[intervals]."""
        row = int(self._file["links/series"][link])
        n = self._file["series/bytes"].shape[1]
        return np.zeros(n) if row < 0 else self._file["series/bytes"][row].astype(float)


def open_run(path: str | Path) -> RunFile:
    """Open a result file, or the one in a run's folder, for reading."""
    return RunFile(path)
