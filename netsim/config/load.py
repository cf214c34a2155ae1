"""Load run files: YAML, ready files and `--set` overrides in; a validated, frozen `Run` out, or every mistake at once."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from netsim.config import shape
from netsim.config.places import remember
from netsim.config.source import Document, FieldPath, Place, read
from netsim.config.use import LIBRARIES, expand, find, override
from netsim.config.validate import validate

if TYPE_CHECKING:
    from netsim.config.run import Run

T = TypeVar("T")


def load(path: str | Path, overrides: Iterable[str] = ()) -> "Run":
    """Load a run file; `overrides` are `a.b.c=value` texts. Raises InputError with a line for every mistake."""
    from netsim.config.run import Run

    doc = read(path)
    if "use" not in doc.data:
        doc.data.setdefault("name", Path(path).stem)
    return remember(_finish(doc, Run, (), tuple(overrides)), doc)


def load_section(path: str | Path, cls: type[T], overrides: Iterable[str] = ()) -> T:
    """Load one section from a file of its own, or by the name of a ready file (`dgx_h100`); fields in `overrides` are relative to it."""
    section = _place_of(cls)
    known = find(str(path), section, Path()) if not Path(path).exists() and section in LIBRARIES else path
    return _finish(read(path if isinstance(known, str) else known, section), cls, section, tuple(overrides))


def from_data(data: dict[str, Any], overrides: Iterable[str] = (), name: str = "configuration") -> "Run":
    """Build a run from plain data, such as the resolved configuration of a result file; errors name `name` as the file."""
    from netsim.config.run import Run

    return _finish(Document(_copy(data), {(): Place(name, 1, 1)}), Run, (), tuple(overrides))


def _finish(doc: Document, cls: type[T], root: FieldPath, overrides: tuple[str, ...]) -> T:
    broken: set[FieldPath] = set()
    early = tuple(s for s in overrides if s.partition("=")[0].strip().split(".")[-1] == "use")
    override(doc, root, early, cls)
    expand(doc, root, broken, cls)
    override(doc, root, tuple(s for s in overrides if s not in early), cls)
    expand(doc, root, broken, cls)
    return validate(doc, cls, root, broken)


def _place_of(cls: type) -> FieldPath:
    """Where a section stands in a run, if it takes ready files."""
    from netsim.config.run import Run

    for section in LIBRARIES:
        for start in (*shape.sections(shape.hints(Run).get(str(section[0]))),):
            if cls in shape.sections(shape.at(start, {}, section[1:]) if section[1:] else start):
                return section
    return ()


def _copy(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _copy(value) for key, value in data.items()}
    return [_copy(value) for value in data] if isinstance(data, tuple | list) else data
