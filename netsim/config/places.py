"""Rules that are checked after loading still name file, line and column: a loaded run remembers where its values were written."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from netsim.config.source import Document
from netsim.errors import InputError

if TYPE_CHECKING:
    from netsim.config.run import Run

_FIELD = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*): (.*)", re.DOTALL)


def remember(run: "Run", doc: Document) -> "Run":
    """Keep the document that a run was loaded from; it takes no part in comparison, and copies do not have it."""
    object.__setattr__(run, "_document", doc)
    return run


def placed(run: "Run", problems: Iterable[tuple[str, str]]) -> list[str]:
    """Turn (dotted field, sentence) pairs into finished lines; the place is that of the nearest section where the field was not written."""
    doc: Document | None = getattr(run, "_document", None)
    if doc is None:
        return [f"{name}: {sentence}" for name, sentence in problems]
    paths = [(tuple(int(p) if p.isdecimal() else p for p in name.split(".")), sentence) for name, sentence in problems]
    return [doc.line(path, sentence) for path, sentence in paths]


@contextlib.contextmanager
def places(run: "Run") -> Iterator[None]:
    """Inside, an InputError whose lines read `section.field: sentence` leaves with the place of that field in front."""
    try:
        yield
    except InputError as error:
        found = InputError([_with_place(run, line) for line in error.lines])
        found.alone = error.alone
        raise found from None


def _with_place(run: "Run", line: str) -> str:
    match = _FIELD.fullmatch(line)
    known = match is not None and match[1].split(".")[0] in {f.name for f in fields(run)}
    return placed(run, [(match[1], match[2])])[0] if match and known else line
