"""Hold the kernel tables against themselves and write docs/compute.md: python -m compute.evaluate [--out docs/compute.md]

Leave-one-out predicts every measured row from the others of its family; the share of errors within 1 and 1.645 sigma says whether the
stated uncertainty is right (68 and 90 percent if errors were normal). Other campaigns on the same GPU show what a table shares and
interpolation cannot see; projection between GPUs that were measured shows what to expect of one that was not.
"""

import argparse
import csv
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from compute import cards, tables
from compute.device import Device, build
from compute.families import family_of
from compute.kernels import flops, ideal_s
from compute.kriging import estimate
from compute.lookup import leave_one_out, quantise_s, roofline_s, times
from compute.project import project_row

PROJECTIONS = (("a100_sxm", "h100"), ("h100", "h200"), ("h100", "b200"), ("b200", "gb300"))
AIMS = {"gemm": (0.04, 0.12), "attention": (0.05, None)}
"""Median and 90th percentile that are wanted."""
BURSTS_MS, BOOSTED = (0, 10, 30, 50, 70, 100, 200, 500), 1.13
"""Classes of bursts, and how far above its sustained rate a GEMM of them must be to be called unthrottled."""
UNUSED = (
    ("one kernel on 592 GPUs", "minimum, percentiles and maximum over a cluster: `spread` of GPUs, not another shape"),
    ("attention", "forward and backward in one figure, or no sizes: ratio `attention.bwd` of Hopper comes from the charts of H100"),
    ("MoE layer", "a whole layer with its exchanges"),
    ("step breakdown", "sums over steps, communication among them"),
    ("in-situ", "averages over the shapes of a step, printed to 10 us"),
    ("gemm grouped-masked", "decoding: most rows of a group are padding"),
    ("gemm (best of shape search)", "the fastest of a search over shapes: an upper bound"),
    ("gemm sustained", "no shape: `sustained` of GB200 and B200"),
    ("HBM", "bandwidth by itself: `memory_efficiency` of A100, H100, H200"),
)
"""Entries by how their name starts, and why no table holds them."""
Table = list[tuple[str, ...]]


def device_of(name: str) -> Device:
    """A shipped device."""
    card = cards.card(name)
    return build(card, [tables.read(table) for table in card.tables])


def markdown(head: tuple[str, ...], rows: Table) -> str:
    """A table in Markdown, numbers to the right."""
    rule = tuple("---" if i == 0 else "--:" for i in range(len(head)))
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows))


def quantiles(log_error: np.ndarray) -> tuple[float, float]:
    """Median and 90th percentile of the absolute relative error."""
    error = np.abs(np.expm1(log_error))
    return float(np.median(error)), float(np.percentile(error, 90))


def table_names() -> list[str]:
    """Devices that have a table of their own."""
    return sorted(path.stem for path in tables.FOLDER.glob("*.csv") if (cards.FOLDER / path.name).with_suffix(".yaml").exists())


def self_test() -> tuple[Table, list[str]]:
    """Leave-one-out by device and family, and what misses its aim, over the tables of their own."""
    rows: Table = []
    missed = []
    for name in table_names():
        device = device_of(name)
        error, sigma, apart = leave_one_out(device)
        for family, f in sorted(device.family[0].items()):
            part = np.flatnonzero(apart[device.ptr[f] : device.ptr[f + 1]]) + device.ptr[f]
            if len(part) < 4:
                continue
            median, p90 = quantiles(error[part])
            z = np.abs(error[part]) / sigma[part]
            rows.append((name, family, str(len(part)), f"{median:.1%}", f"{p90:.1%}", f"{np.mean(z < 1):.0%}", f"{np.mean(z < 1.645):.0%}"))
            goal = AIMS.get(family.split("/")[0])
            if goal and (median > goal[0] or (goal[1] and p90 > goal[1])):
                missed.append(f"{name} {family}: median {median:.1%}, p90 {p90:.1%} over {len(part)} rows")
    return rows, missed


def cross_check() -> Table:
    """Other campaigns on the same GPU: signed median and spread of prediction over measurement, power limit not applied."""
    rows: Table = []
    sources = tables.sources()
    for path in sorted((tables.FOLDER / "cross_check").glob("*.csv")):
        device = device_of(path.stem)
        groups: dict[tuple[str, str], list[tables.Row]] = defaultdict(list)
        for row in tables.read(str(path)):
            groups[sources[row.source].split(" ")[0], f"{family_of(row.kernel)} {row.library}".strip()].append(row)
        for (source, family), group in sorted(groups.items()):
            predicted = times(device, [row.kernel for row in group], sustained=False).t_ps / 1e6
            gap = np.log(predicted / [row.time_us for row in group])
            if len(group) >= 4:
                rows.append((path.stem, source, family, str(len(group)), f"{np.expm1(np.median(gap)):+.1%}", f"{quantiles(gap)[1]:.1%}"))
    return rows


def projections() -> Table:
    """Rows that both GPUs measured: projected from the first, against the second."""
    rows: Table = []
    for base_name, to_name in PROJECTIONS:
        base, to = device_of(base_name), device_of(to_name)
        measured = {(row.kernel, row.library): row for row in tables.read(f"{to_name}.csv")}
        gaps = defaultdict(list)
        for row in tables.read(f"{base_name}.csv"):
            other = measured.get((row.kernel, row.library))
            if other is None or row.library == "cudnn":
                continue
            spent_us = quantise_s(to, other.kernel) * 1e6 if other.fused else 0.0
            alone_us = max(other.time_us - spent_us, ideal_s(to.card, other.kernel) * 1e6)
            gaps[family_of(row.kernel)].append(np.log(project_row(base, to.card, row._replace(library="")).time_us / alone_us))
        for family, gap in sorted(gaps.items()):
            low, mid, high = np.expm1(np.percentile(gap, [10, 50, 90]))
            rows.append(
                (
                    f"{base_name} -> {to_name}",
                    family,
                    str(len(gap)),
                    f"{low:+.0%}",
                    f"{mid:+.0%}",
                    f"{high:+.0%}",
                    f"{quantiles(np.array(gap))[0]:.0%}",
                )
            )
    return rows


def rooflines() -> Table:
    """What the answers would be without a table."""
    rows: Table = []
    for name in table_names():
        device, gaps = device_of(name), defaultdict(list)
        for row in tables.read(f"{name}.csv"):
            if not row.fused:
                gaps[row.kernel.kind].append(np.log(roofline_s(device, row.kernel) * 1e6 / row.time_us))
        rows += [
            (name, kind, str(len(gap)), f"{np.expm1(np.median(gap)):+.0%}", f"{quantiles(np.array(gap))[1]:.0%}")
            for kind, gap in sorted(gaps.items())
            if len(gap) >= 4
        ]
    return rows


def states() -> Table:
    """Dense GEMMs of SimuMax's B200 node by the time that their 100 calls took."""
    rows = [row for name in ("b200_simumax.csv", "cross_check/b200_simumax.csv") for row in tables.read(name)]
    burst_ms = np.array([row.time_us / 10 for row in rows])
    rate = np.array([flops(row.kernel) / row.time_us / 1e6 for row in rows])
    limit = cards.card("b200_simumax").sustained["bf16"] / 1e12
    found: Table = []
    for low, high in zip(BURSTS_MS, (*BURSTS_MS[1:], np.inf), strict=True):
        part = rate[(low <= burst_ms) & (burst_ms < high)]
        found.append(
            (
                f"{low} to {high:g}" if high < np.inf else f"{low} and more",
                str(len(part)),
                *(f"{q:,.0f}" for q in np.percentile(part, [5, 50, 95])),
                f"{np.mean(part > BOOSTED * limit):.0%}",
            )
        )
    return found


def unused() -> Table:
    """Published entries that no table holds, and why."""
    with (tables.FOLDER / "fused.csv").open(newline="") as file:
        names = [UNUSED[0][0] if "distribution" in entry["notes"] else entry["kernel"] for entry in csv.DictReader(file)]
    kind = [next(start for start, _ in UNUSED if name.startswith(start)) for name in names]
    return [(start, str(kind.count(start)), why) for start, why in UNUSED]


def held() -> str:
    """How many rows there are where, in words."""
    files = [path for path in tables.FOLDER.glob("*.csv") if path.stem not in ("sources", "ratios", "fused")]
    own, checks = (sum(len(tables.read(str(p))) for p in paths) for paths in (files, tables.FOLDER.glob("cross_check/*.csv")))
    return f"{own:,} in the tables, {checks:,} in cross_check (repeats of a shape count once)"


def lookup_us(batch: int = 300, repeats: int = 1000) -> float:
    """Microseconds of a lookup in a compiled batch over the h100 table; the best of many short ones, as programs disturb long ones."""
    device = device_of("h100")
    rows = np.arange(batch) * 7 % len(device.y)
    query = np.ascontiguousarray(device.x[rows] + 0.07)
    family = np.repeat(np.arange(len(device.ptr) - 1), np.diff(device.ptr))[rows]
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        estimate(query, family, device.ptr, device.x, device.y)
        best = min(best, time.perf_counter() - start)
    return best / batch * 1e6


def document() -> str:
    """The text of docs/compute.md."""
    own, missed = self_test()
    ratios: Table = [
        (n, s, f"{r.value:.3g}", f"{r.sigma:.2f}", str(r.rows), r.source) for (n, s), r in sorted(tables.read_ratios().items())
    ]
    text = (Path(__file__).parent.parent / "docs" / "compute.md.in").read_text()
    parts = {
        "leave_one_out": markdown(("table", "family", "rows", "median", "p90", "within 1 sigma", "within 1.645"), own),
        "missed": "\n".join(f"* {line}" for line in missed) or "* none",
        "cross_check": markdown(
            ("table", "other campaign", "family", "rows", "prediction - measurement, median", "p90 of the absolute error"), cross_check()
        ),
        "projection": markdown(("projection", "family", "rows", "10 %", "median", "90 %", "median of the absolute error"), projections()),
        "roofline": markdown(("table", "kind", "rows", "median", "p90 of the absolute error"), rooflines()),
        "ratios": markdown(("ratio", "scope", "value", "sigma", "rows", "source"), ratios),
        "lookup_us": f"{lookup_us():.1f}",
        "states": markdown(("100 calls, ms", "rows", "5 %", "median", "95 %", f"above {BOOSTED:.2f} of the sustained rate"), states()),
        "unused": markdown(("entry", "rows", "why"), unused()),
        "held": held(),
    }
    for name, part in parts.items():
        text = text.replace("{{" + name + "}}", part)
    return text


def main() -> None:
    """Print the document and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/compute.md"))
    options = parser.parse_args()
    text = document()
    print(text)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text)


if __name__ == "__main__":
    main()
