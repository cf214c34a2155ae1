"""Fits the physical figures of a GPU generation to all measurements of it at once: `python -m netsim.collectives.calibrate hopper`.

Minimises the mean over tables of the median and mean absolute logarithmic error (so that no table weighs by its length) by changing one
figure at a time by a factor, until no factor helps. It prints the figures, rounded, to be copied into `figures.py` by hand. Tables timed
from Python count from 1 MiB up only: below, they measure the host. `FIXED` figures have a source of their own and are not fitted.
"""

import sys
from pathlib import Path

import numpy as np

from netsim.collectives.evaluate import Row, idle, read
from netsim.collectives.figures import FIGURES, Figures
from netsim.collectives.plan import plan

FIXED = ("nic_efficiency", "wire_us", "nvls_net_hop_us")
FROM_PYTHON = ("stas", "azure", "symphony")
FACTORS = (0.6, 0.85, 0.95, 1.05, 1.18, 1.6)


def loss(rows: list[Row]) -> float:
    """Mean over tables of median + mean / 2 of the absolute logarithmic error."""
    plan.cache_clear()
    errors: dict[str, list[float]] = {}
    for row in rows:
        errors.setdefault(row.table, []).append(abs(float(np.log(idle(row) / row.measured_us))))
    return float(np.mean([np.median(e) + 0.5 * np.mean(e) for e in errors.values()]))


def moved(figures: Figures, name: str, part: int, factor: float) -> Figures:
    """Return the figures with one number changed."""
    values = figures._asdict()
    value = values[name]
    values[name] = value * factor if part < 0 else tuple(v * factor if i == part else v for i, v in enumerate(value))
    return Figures(**values)


def fit(arch: str, rows: list[Row], sweeps: int = 3) -> Figures:
    """Return the fitted figures of a generation."""
    best = loss(rows)
    for sweep in range(sweeps):
        before = best
        for name in Figures._fields:
            if name in FIXED:
                continue
            value = getattr(FIGURES[arch], name)
            for part in range(3) if isinstance(value, tuple) else (-1,):
                for factor in FACTORS:
                    kept = FIGURES[arch]
                    FIGURES[arch] = moved(kept, name, part, factor)
                    tried = loss(rows) if FIGURES[arch].nvlink_efficiency <= 1 else best
                    if tried < best - 1e-5:
                        best = tried
                    else:
                        FIGURES[arch] = kept
        sys.stdout.write(f"{arch}: sweep {sweep}: {best:.4f}\n")
        sys.stdout.flush()
        if before - best < 1e-3:
            break
    return FIGURES[arch]


def main() -> int:
    """Fit and print."""
    rows = [r for r in read(Path("docs/data/collectives.csv"))[0] if r.nbytes >= 1 << 20 or not r.table.startswith(FROM_PYTHON)]
    for arch in sys.argv[1:]:
        fitted = fit(arch, [r for r in rows if r.platform.arch == arch and r.comm.size <= 128])
        for name, value in fitted._asdict().items():
            shown = tuple(float(f"{v:.3g}") for v in value) if isinstance(value, tuple) else float(f"{value:.3g}")
            sys.stdout.write(f"{arch}: {name} = {shown}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
