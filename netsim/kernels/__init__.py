"""Kernels: pure functions over arrays, compiled by numba.

numba's cache of compiled code notices a change in the file of a function, but not in files that it takes functions and constants from. All
files here lean on each other, so what was compiled before the newest of them changed is dropped when the package is imported.
"""

import contextlib
from pathlib import Path


def _drop_stale() -> None:
    folder = Path(__file__).parent
    newest = max(path.stat().st_mtime for path in folder.rglob("*.py"))
    for index in folder.rglob("*.nbi"):
        with contextlib.suppress(OSError):
            if index.stat().st_mtime < newest:
                index.unlink()


_drop_stale()
