"""Files that are there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def placed(path: Path, tag: str = "") -> Iterator[Path]:
    """Give a temporary name, with `tag` in it, to write to; the file takes its own name only if nothing fails, and else is gone.

    Errors of the operating system pass.
    """
    part = path.with_name(f"{path.name}{tag}.part")
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
