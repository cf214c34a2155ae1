"""Load run files: YAML, ready files and `--set` overrides in; a validated, frozen `Run` out, or every mistake at once."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from netsim.config import shape
from netsim.config.places import remember
from netsim.config.source import Document, FieldPath, Place, read
from netsim.config.use import LIBRARIES, expand, find, override
from netsim.config.validate import validate
from netsim.errors import InputError

if TYPE_CHECKING:
    from netsim.config.run import Run

T = TypeVar("T")


def load(path: str | Path, overrides: Iterable[str] = ()) -> "Run":
    """Load a run file; `overrides` are `a.b.c=value` texts. Raises InputError with a line for every mistake."""
    from netsim.config.run import Run

    doc = read(path)
    return remember(_finish(doc, Run, (), tuple(overrides), {"name": Path(path).stem}), doc)


def load_section(path: str | Path, cls: type[T], overrides: Iterable[str] = ()) -> T:
    """Load one section from a file of its own, or by the name of a ready file (`dgx_h100`); fields in `overrides` are relative to it."""
    section = _place_of(cls)
    ready = not Path(path).exists() and section in LIBRARIES
    file = find(str(path), section, Path()) if ready else Path(path)
    if isinstance(file, str):
        raise InputError(f"{path}: {file}")
    return _finish(read(file, section), cls, section, tuple(overrides))


def from_data(data: dict[str, Any], overrides: Iterable[str] = (), name: str = "configuration") -> "Run":
    """Build a run from plain data, such as the resolved configuration of a result file; errors name `name` as the file."""
    from netsim.config.run import Run

    return _finish(Document(_copy(data), {(): Place(name, 1, 1)}), Run, (), tuple(overrides))


def _finish(doc: Document, cls: type[T], root: FieldPath, overrides: tuple[str, ...], defaults: dict[str, Any] | None = None) -> T:
    """Overrides that take another ready file, the ready files, then all other overrides, which win; `defaults` fill what is still open."""
    broken: set[FieldPath] = set()
    early = tuple(s for s in overrides if s.partition("=")[0].strip().split(".")[-1] == "use")
    override(doc, root, early, cls)
    expand(doc, root, broken, cls)
    override(doc, root, tuple(s for s in overrides if s not in early), cls)
    expand(doc, root, broken, cls)
    doc.data = (defaults or {}) | doc.data
    return validate(doc, cls, root, broken)


def _place_of(cls: type) -> FieldPath:
    """Where a section stands in a run, if it takes ready files."""
    from netsim.config.run import Run

    for section in LIBRARIES:
        starts = shape.sections(shape.hints(Run).get(str(section[0])))
        if any(cls in shape.sections(shape.at(start, {}, section[1:])) for start in starts):
            return section
    return ()


def _copy(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _copy(value) for key, value in data.items()}
    return [_copy(value) for value in data] if isinstance(data, tuple | list) else data
