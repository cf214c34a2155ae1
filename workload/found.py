"""Parts that are found by name: `<name>` is the file workload/<kind>/<name>.py, a path is a file of the user's own."""

from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from netsim.errors import InputError, did_you_mean


def known(kind: str) -> list[str]:
    """Names of the files that ship with the package."""
    return sorted(p.stem for p in (Path(__file__).parent / kind).glob("*.py") if p.stem != "__init__")


@cache
def found(kind: str, name: str) -> ModuleType:
    """Return the module of a schedule, dispatcher or block; `InputError` where there is no such file."""
    path = Path(name)
    if path.suffix == ".py":
        if not path.is_file():
            raise InputError(f"{name}: expected a Python file with a {kind[:-1]}; there is none")
        spec = spec_from_file_location(f"workload_{kind}_{path.stem}", path)
        assert spec and spec.loader
        module = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except (SyntaxError, UnicodeDecodeError) as error:
            raise InputError(f"{name}: expected a Python file; got a mistake: {error}") from None
        return module
    if name not in known(kind):
        raise InputError(
            f"{name}: expected one of the {kind} {', '.join(known(kind))}, or a path to a Python file{did_you_mean(name, known(kind))}"
        )
    return import_module(f"workload.{kind}.{name}")
