"""What is known of each point, one small file each: written under another name and renamed, so that it is there whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from netsim.study.points import Point

DONE, ILLEGAL, FAILED, MISSING = "done", "illegal", "failed", "missing"


class Result(NamedTuple):
    """`status` done, illegal (the input cannot be), failed (the program did) or missing; `message` says why; values by name of metric."""

    status: str
    message: str = ""
    values: dict[str, float] = {}


def path_of(folder: Path, key: str) -> Path:
    """The file of a point."""
    return folder / "points" / f"{key}.json"


def save(folder: Path, key: str, result: Result) -> None:
    """Keep what is known of a point, through a power cut too."""
    path = path_of(folder, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{key}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(result._asdict(), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def find(folder: Path, key: str) -> Result:
    """What is known of a point; a file that cannot be read counts as missing."""
    try:
        data: dict[str, Any] = json.loads(path_of(folder, key).read_text(encoding="utf-8"))
        return Result(**data)
    except (OSError, ValueError, TypeError):
        return Result(MISSING)


def todo(points: list[Point], folder: Path) -> list[Point]:
    """Points that are not done yet, each configuration once; those that failed are tried again."""
    distinct = {point.key: point for point in points if point.run is not None}
    return [point for key, point in distinct.items() if find(folder, key).status in (MISSING, FAILED)]
