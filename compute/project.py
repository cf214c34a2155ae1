"""Projection: what a measured table says about a GPU that nobody has measured.

Every row of the base is scaled: time = (t - launch) * (w * peak ratio + (1 - w) * bandwidth ratio) + launch of the new GPU, where w is the
share of compute in a soft roofline on the base, w = c^4 / (c^4 + b^4), c = operations / peak, b = bytes / bandwidth. Compute-bound kernels
thus follow the dense tensor-core peak of their precision, memory-bound ones the memory bandwidth, and those at the ridge both. Efficiency
relative to the roofs is assumed to carry over; `compute.evaluate` tests that on GPUs that were measured.
"""

from dataclasses import replace
from itertools import chain
from math import exp
from pathlib import Path

from compute import tables
from compute.device import Device, build, by_family, library_shift
from compute.kernels import flops, moved_bytes, peak_of
from compute.lookup import quantise_s
from compute.tables import Row
from netsim.config.compute import DeviceCard

SHARPNESS = 4
"""Exponent of the soft roofline: at equal roofs both count half, at a ratio of 2 the higher one counts 94 percent."""
SIGMA = 0.20
"""Relative standard deviation of projected times, over all shapes: docs/compute.md, section on projection."""


def project_row(base: Device, to: DeviceCard, row: Row) -> Row:
    """The row as the new GPU would measure it; quantisation that fused rows hold is taken off."""
    kernel, card = row.kernel, base.card
    compute = flops(kernel) / peak_of(card, kernel.dtype)
    memory = moved_bytes(kernel) / card.hbm
    share = compute**SHARPNESS / (compute**SHARPNESS + memory**SHARPNESS)
    factor = share * peak_of(card, kernel.dtype) / peak_of(to, kernel.dtype) + (1 - share) * card.hbm / to.hbm
    busy_us = row.time_us - card.launch / 1e6
    if row.fused:
        busy_us = max(busy_us - quantise_s(base, kernel) * 1e6, max(compute, memory) * 1e6)
    busy_us *= exp(library_shift(card, base.scopes, base.ratios, row))
    return Row(kernel, max(busy_us, 0.0) * factor + to.launch / 1e6, source=f"projected from {card.name}")


def project(base: DeviceCard, to: DeviceCard) -> tuple[DeviceCard, list[Row]]:
    """Return the new card, marked as projected, and its table (sustained rates scale with the peaks where the card names none).

    Of each family it takes the last table that has it: what two campaigns disagree by would be noise in one table.
    """
    sheets = [tables.read(name) for name in base.tables]
    device = build(base, sheets)
    families: dict[str, list[Row]] = {}
    for sheet in sheets:
        families |= by_family(sheet)
    held = sorted(chain(*families.values()), key=lambda r: -abs(library_shift(base, device.scopes, device.ratios, r)))
    rows = [project_row(device, to, row) for row in {row.kernel: row for row in held}.values()]
    sustained = to.sustained or {dtype: rate * peak_of(to, dtype) / peak_of(base, dtype) for dtype, rate in base.sustained.items()}
    return replace(to, sustained=sustained, projected_from=base.name, projection_sigma=max(to.projection_sigma, SIGMA)), rows


def save(card: DeviceCard, rows: list[Row], path: Path) -> tuple[Path, Path]:
    """Write card and table side by side; return both paths. The card can be used in run files as `compute: {device: {use: PATH}}`."""
    table = path.with_suffix(".csv")
    parts = [file.with_name(file.name + ".part") for file in (path, table)]
    try:
        parts[0].write_text(_yaml(replace(card, tables=(str(table),))))
        tables.write(parts[1], rows)
        parts[0].replace(path)
        parts[1].replace(table)
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
    return path, table


def _yaml(card: DeviceCard) -> str:
    lines = [f"# projected from {card.projected_from} by `device project`"]
    times, rates, rows = ("launch", "host", "gap"), ("hbm", "nvlink"), ("peak", "sustained")
    for name, value in vars(card).items():
        if name in rows:
            lines += [f"{name}:"] + [f"  {dtype}: {rate / 1e12:g} TFLOPS" for dtype, rate in value.items()] if value else []
        elif name == "memory_efficiency":
            lines += [f"{name}:"] + [f"  {kind}: {share:g}" for kind, share in value.items()] if value else []
        elif name == "tables":
            lines.append(f"tables: [{', '.join(value)}]")
        elif name in times:
            lines.append(f"{name}: {value / 1e6:g} us")
        elif name in rates:
            lines.append(f"{name}: {value / 1e9:g} GB/s")
        else:
            lines.append(f"{name}: {value}")
    return "\n".join(lines) + "\n"
