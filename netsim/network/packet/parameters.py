"""Parameters of a congestion control: from what people write to the tuple that its kernels take."""

from math import inf
from sys import float_info
from types import ModuleType
from typing import Any

from netsim import units
from netsim.config.network import CongestionControl
from netsim.errors import InputError, did_you_mean
from netsim.kernels.packet.cc import algorithm, algorithms


def _number(text: object) -> float:
    return _between(text, float_info.max, "expected a number above 0")


def _share(text: object) -> float:
    return _between(text, 1.0, "expected a number above 0 and at most 1")


def _between(text: object, most: float, expected: str) -> float:
    try:
        value = float(text)  # type: ignore[arg-type]
    except ValueError:
        raise ValueError(expected) from None
    if not 0 < value <= most:
        raise ValueError(expected)
    return value


PARSE = {"time": units.parse_time, "size": units.parse_size, "rate": units.parse_rate, "number": _number, "share": _share}


def parameters(chosen: CongestionControl) -> tuple[Any, ModuleType]:
    """Return (parameters of the algorithm, its module); raises `InputError` for what is unknown or wrong."""
    known = algorithms()
    if chosen.name not in known:
        hint = did_you_mean(chosen.name, known)
        raise InputError(f"network.congestion_control.name: expected one of {', '.join(known)}; got {chosen.name!r}{hint}")
    module = algorithm(chosen.name)
    table, lines = module.PARAMETERS, []
    for name in chosen.parameters.keys() - table.keys():
        expected = f"expected one of {', '.join(table)}" if table else f"expected none, which {chosen.name!r} does not have"
        lines.append(f"network.congestion_control.parameters: {expected}; got the key {name!r}{did_you_mean(name, table)}")
    values = {}
    for name, (unit, default, _) in table.items():
        text = chosen.parameters.get(name, default)
        try:
            values[name] = float(PARSE[unit](text))
            if values[name] == inf:
                raise OverflowError
        except OverflowError:
            lines.append(f"network.congestion_control.parameters.{name}: expected a finite {unit}; got {text!r}")
        except ValueError as error:
            lines.append(f"network.congestion_control.parameters.{name}: {error}; got {text!r}")
    if lines:
        raise InputError(sorted(lines))
    return module.Parameters(**values), module
