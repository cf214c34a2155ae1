"""Reading result files: `with netsim.open_run(path) as run: run["links/bytes"]`.

Arrays are NumPy's and are read when they are asked for.
`path` is a result file or the folder of a run; a folder whose run was killed holds
a spool (netsim.telemetry.spool), which reads the same up to where the run got: `run.complete` is then False.
"""

import json
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from netsim.errors import InputError, did_you_mean
from netsim.kernels.structs import Array
from netsim.telemetry import spool
from netsim.telemetry.channels import BY_PATH, FILETYPE, VERSION

if TYPE_CHECKING:
    import pandas
    import xarray


class RunFile:
    """A result file opened for reading."""

    def __init__(self, path: str | Path) -> None:
        self.path = _file_of(Path(path))
        try:
            self._file = spool.recover(self.path) if self.path.is_dir() else h5py.File(self.path, "r")
        except FileNotFoundError:
            raise InputError(f"{self.path}: expected a result file; there is none") from None
        except OSError:
            raise InputError(f"{self.path}: expected a result file (HDF5); it is truncated or of another kind") from None
        try:
            self._check()
        except BaseException:
            self._file.close()
            raise

    def _check(self) -> None:
        kind, major = self._file.attrs.get("filetype", "none"), VERSION[0]
        if kind != FILETYPE:
            raise InputError(f"{self.path}: expected a file of type '{FILETYPE}'; got '{kind}'")
        version = self._file.attrs["version"]
        if int(version[0]) != major:
            raise InputError(f"{self.path}: expected version {major} of the result format; got {'.'.join(map(str, version))}")

    def __enter__(self) -> "RunFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; arrays that were read stay."""
        self._file.close()

    def __contains__(self, path: str) -> bool:
        return path in self._file

    def __getitem__(self, path: str) -> Any:
        """The channel as a NumPy array (text as Python strings)."""
        data = self._dataset(path)
        return data.asstr()[()] if h5py.check_string_dtype(data.dtype) else data[()]

    def _dataset(self, path: str) -> h5py.Dataset:
        if path not in self._file or not isinstance(self._file[path], h5py.Dataset):
            known = path in BY_PATH
            why = " (not recorded: see telemetry.channels of its run file)" if known else did_you_mean(path, self.channels)
            raise InputError(f"{self.path}: expected a channel of this file; got '{path}'{why}")
        return self._file[path]

    def slice(self, path: str, *index: Any) -> Array:
        """A part of a channel, without reading the rest: `run.slice("series/bytes", 3, slice(0, 100))`."""
        return np.asarray(self._dataset(path)[index])

    def shape(self, path: str) -> tuple[int, ...]:
        """Sizes of a channel's axes, without reading it."""
        return tuple(int(n) for n in self._dataset(path).shape)

    @property
    def channels(self) -> list[str]:
        """Paths of all channels of this file."""
        return [path for path in BY_PATH if path in self._file]

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the file: engine, interval_ps, end_ps, complete, names of streams and categories..."""
        return {name: value for name, value in self._file.attrs.items() if name not in ("config", "summary")}

    @property
    def complete(self) -> bool:
        """False where the run was stopped or killed before its end."""
        return bool(self._file.attrs["complete"])

    @property
    def interval_ps(self) -> int:
        """Length of the intervals of series/*, ps; 0 where none were recorded."""
        return int(self._file.attrs.get("interval_ps", 0))

    @property
    def end_ps(self) -> int:
        """Simulated time that the run reached, ps."""
        return int(self._file.attrs["end_ps"])

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return dict(json.loads(self._file.attrs["config"]))

    @property
    def summary(self) -> dict[str, Any]:
        """What `summary.json` says; empty where the run was killed."""
        return dict(json.loads(self._file.attrs.get("summary", "{}")))

    @property
    def name(self) -> str:
        """Name of the run."""
        return str(self.config["name"])

    def names(self, which: str) -> list[str]:
        """Names that small numbers stand for: `names("streams")`, `names("categories")`."""
        return [str(name) for name in self._file.attrs.get(which, [])]

    def series(self, link: int, channel: str = "bytes") -> Array:
        """What a link carried (or another counter of series/*) in each interval, float64[intervals]."""
        row, data = int(self["links/series"][link]), self._dataset(f"series/{channel}")
        return np.zeros(data.shape[1]) if row < 0 else data[row].astype(float)

    def times(self) -> Array:
        """Start of each interval of series/*, seconds."""
        return np.arange(self.shape("series/bytes")[1]) * (self.interval_ps * 1e-12)

    def pandas(self, group: str) -> "pandas.DataFrame":
        """The one-dimensional channels of a group ('links', 'gpus', 'operations', 'flows') as a table."""
        try:
            import pandas
        except ImportError:
            raise InputError("pandas: expected it to be installed for tables; pip install 'netsim-llm[tables]'") from None
        rows = {"links": "links/name", "gpus": "gpus/program"}.get(group, f"{group}/start")
        n = self.shape(rows)[0]
        paths = [p for p in self.channels if p.startswith(group + "/") and self.shape(p) == (n,) and BY_PATH[p].axes != ("name",)]
        table = pandas.DataFrame({p.split("/")[1]: self[p] for p in paths})
        if group == "operations":
            table["name"] = self["operations/names"][table["name"]]
            for column in ("stream", "category"):
                plural = {"stream": "streams", "category": "categories"}[column]
                table[column] = np.array(self.names(plural))[table[column]]
        elif group == "flows" and "call" in table:
            table["call"] = self["operations/names"][table["call"]]
        return table

    def xarray(self, path: str) -> "xarray.DataArray":
        """A channel with named axes and its unit."""
        try:
            import xarray
        except ImportError:
            raise InputError("xarray: expected it to be installed for labelled arrays; pip install 'netsim-llm[tables]'") from None
        channel, coordinates = BY_PATH[path], {}
        if "interval" in channel.axes:
            coordinates["interval"] = self.times()
        for axis, names in (("category", "categories"), ("timer", "timers")):
            if axis in channel.axes:
                coordinates[axis] = np.array(self.names(names))
        attributes = {"units": channel.unit, "long_name": channel.meaning}
        return xarray.DataArray(self[path], dims=channel.axes, coords=coordinates, name=path, attrs=attributes)


def _file_of(path: Path) -> Path:
    """The result file of a run's folder, or its spool where there is no newer result; anything else as it is."""
    if not path.is_dir():
        return path
    result, spooled = path / "result.h5", path / spool.FOLDER
    return spooled if spooled.is_dir() else result


def open_run(path: str | Path) -> RunFile:
    """Open a result file, or the one in a run's folder, for reading; InputError where there is none that can be read."""
    return RunFile(path)
