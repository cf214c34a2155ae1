"""Field types of run files: numbers with units and with bounds, checked by pydantic while a file is loaded.

A section of the configuration is a frozen dataclass whose fields carry these types; type checkers see plain numbers.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from netsim import units

Time = Annotated[int, BeforeValidator(units.parse_time)]
"""Picoseconds; written `2 us`."""
Size = Annotated[int, BeforeValidator(units.parse_size)]
"""Bytes; written `16 MiB`."""
Rate = Annotated[float, BeforeValidator(units.parse_rate)]
"""Bytes per second; written `400 Gbps` or `450 GB/s`."""
Flops = Annotated[float, BeforeValidator(units.parse_flops)]
"""FLOP per second; written `989 TFLOPS`."""
Count = Annotated[int, Field(ge=1, strict=True)]
"""A whole number of at least 1."""
Index = Annotated[int, Field(ge=0, strict=True)]
"""A whole number of at least 0."""
Share = Annotated[float, Field(ge=0, le=1)]
"""A number between 0 and 1."""
Positive = Annotated[float, Field(gt=0)]
"""A number above 0."""
