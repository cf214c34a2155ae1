"""Parameters of a congestion control: from what people write to the tuple that its kernels take."""

from types import ModuleType
from typing import Any

from netsim import units
from netsim.config.network import CongestionControl
from netsim.errors import InputError, did_you_mean
from netsim.kernels.packet.cc import algorithm, algorithms

PARSE = {"time": units.parse_time, "size": units.parse_size, "rate": units.parse_rate, "number": float}


def parameters(chosen: CongestionControl) -> tuple[Any, ModuleType]:
    """Return (parameters of the algorithm, its module); raises `InputError` for what is unknown or wrong."""
    known = algorithms()
    if chosen.name not in known:
        hint = did_you_mean(chosen.name, known)
        raise InputError(f"network.congestion_control.name: expected one of {', '.join(known)}; got {chosen.name!r}{hint}")
    module = algorithm(chosen.name)
    table, lines = module.PARAMETERS, []
    for name in chosen.parameters.keys() - table.keys():
        hint = did_you_mean(name, table)
        lines.append(f"network.congestion_control.parameters: expected one of {', '.join(table) or 'none'}; got the key {name!r}{hint}")
    values = {}
    for name, (unit, default, _) in table.items():
        text = chosen.parameters.get(name, default)
        try:
            values[name] = float(PARSE[unit](text))  # type: ignore[operator]
        except ValueError as error:
            said = str(error) if unit != "number" else "expected a number"
            lines.append(f"network.congestion_control.parameters.{name}: {said}; got {text!r}")
    if lines:
        raise InputError(sorted(lines))
    return module.Parameters(**values), module
