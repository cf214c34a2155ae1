"""One self-contained HTML page about a run: data, style and script are in it, nothing is fetched.

Layout, style and script are files of `page/`; this module makes the data. Long arrays travel as base64 of little-endian numbers in
gzipped JSON.
"""

import base64
import gzip
import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from netsim.kernels.structs import CATEGORIES, Array
from netsim.report import data, heat, links, notes
from netsim.report.data import COLOURS, LABELS, PARTS, TIER_COLOURS
from netsim.report.loaders import worded
from netsim.report.spans import TIMERS, Operations, Spans, operations, spans
from netsim.telemetry.read import RunFile
from netsim.telemetry.write import whole
from netsim.units import format_size, format_time

SPANS = 1500
"""Columns of the heat map."""
TICKS = 1 << 32
"""Parts of the run's time in which operations are placed."""
MOST = 400_000
"""Operations that a page holds; of more, each GPU shows its compute stream only."""

LINK_COLUMNS = {
    "link": ("link", "text"),
    "tier": ("tier", "text"),
    "rail": ("rail", "count"),
    "alike": ("such links", "count"),
    "bytes": ("bytes", "size"),
    "utilisation": ("utilisation", "percent"),
    "peak": ("peak", "percent"),
    "peak_at_s": ("peak at", "time"),
    "queue_max": ("queue", "size"),
    "queue_mean": ("mean queue", "size"),
    "ecn": ("ECN marks", "count"),
    "pause_ps": ("paused (ps)", "count"),
    "drops": ("drops", "count"),
}
"""Columns of the table of links: heading and kind of each."""


def write_page(run: RunFile, out: Path) -> None:
    """Write the page about a run."""
    folder = resources.files("netsim.report") / "page"
    page = {name: (folder / f"page.{name}").read_text(encoding="utf-8") for name in ("html", "css", "js")}
    packed = base64.b64encode(gzip.compress(json.dumps(content(run)).encode(), 6, mtime=0)).decode()
    parts = {"title": html.escape(run.name), "style": page["css"], "script": page["js"], "data": packed}
    text = page["html"]
    for name, value in parts.items():
        text = text.replace("{{" + name + "}}", value)
    with whole(out) as part:
        part.write_text(text, encoding="utf-8")


def content(run: RunFile) -> dict[str, Any]:
    """Everything the page shows."""
    return {
        "name": run.name,
        "subtitle": _subtitle(run),
        "notes": notes.of(run),
        "tiles": _tiles(run),
        "end_s": run.end_ps * 1e-12,
        "config": run.config,
        "categories": list(CATEGORIES),
        "colours": [COLOURS[c] for c in CATEGORIES],
        "ticks": TICKS,
        **_timeline(run),
        "heat": _heat(run),
        "memory": [{"stage": s, "t": _numbers(t, "float32"), "bytes": _numbers(b, "float32")} for s, t, b in data.memory(run)],
        "breakdown": _breakdown(run),
        "completion": _curves(data.completion_cdf(run), COLOURS),
        "queue": _curves(data.queue_cdf(run), TIER_COLOURS),
        "used": _curves(heat.utilisation_cdf(run), TIER_COLOURS),
        "tables": [_links(run), _stages(run), _operations(run)],
    }


def _numbers(values: Array, kind: str) -> dict[str, str]:
    return {"type": kind, "b64": base64.b64encode(np.ascontiguousarray(values, np.dtype(kind).newbyteorder("<")).tobytes()).decode()}


def _subtitle(run: RunFile) -> str:
    s = run.summary
    where = f"{s['gpus']:,} GPUs, " if "gpus" in s else ""
    return f"{where}{run.attributes['engine']} engine, {format_time(run.end_ps)} simulated; netsim {s.get('version', '')}".rstrip()


def _tiles(run: RunFile) -> list[tuple[str, str]]:
    s, made = run.summary, []
    known = (
        ("iteration time", "iteration_time_s", lambda v: format_time(v * 1e12)),
        ("tokens per second", "tokens_per_s", lambda v: f"{v:,.0f}"),
        ("TFLOP/s per GPU", "tflops_per_gpu", lambda v: f"{v:.1f}"),
        ("model FLOP utilisation", "mfu", lambda v: f"{100 * v:.1f} %"),
        ("peak memory per GPU", "peak_memory_gib", lambda v: f"{v:.1f} GiB"),
        ("over NICs", "network_bytes", format_size),
        ("over scale-up links", "scale_up_bytes", format_size),
    )
    for label, name, shown in known:
        if name in s:
            made.append((label, shown(s[name])))
    return made


def _timeline(run: RunFile) -> dict[str, Any]:
    """Operations of the first recorded GPU of every stage, stream by stream."""
    if "operations/end" not in run:
        return {"gpus": [], "names": [], "seen": []}
    found = operations(run, data.first_of_stages(run))
    in_full = sum(len(ops.name) for ops in found) <= MOST
    names: dict[str, int] = {}
    for ops in found:
        names |= {name: len(names) + i for i, name in enumerate(n for n in dict.fromkeys(ops.name) if n not in names)}
    seen = np.bincount(np.concatenate([ops.category for ops in found]), minlength=len(CATEGORIES)) if found else np.zeros(0)
    coarse = [spans(ops) for ops in found]
    names |= {name: len(names) + i for i, name in enumerate(n for n in dict.fromkeys(TIMERS.values()) if n not in names)}
    gpus = [
        {"gpu": o.gpu, "stage": o.program, "streams": _streams(run, o, names, in_full), "coarse": _coarse(run, s, names)}
        for o, s in zip(found, coarse, strict=True)
    ]
    return {"gpus": [g for g in gpus if g["streams"]], "names": list(names), "seen": (seen > 0).tolist()}


def _coarse(run: RunFile, found: Spans, names: dict[str, int]) -> dict[str, Any]:
    """What timers cover on the compute stream, for a view in which single operations could not be seen."""
    category = np.array([CATEGORIES.index(next(c for c, timer in TIMERS.items() if timer == name)) for name in found.name], np.int64)
    return _placed(run, "compute", found.start, found.end, category, found.microbatch, [names[n] for n in found.name])


def _placed(run: RunFile, name: str, start: Array, end: Array, category: Array, microbatch: Array, name_of: list[int]) -> dict[str, Any]:
    a, b = (np.minimum(t * (TICKS / run.end_ps), TICKS - 1) for t in (start, end))
    numbers = {"category": (category, "uint8"), "microbatch": (microbatch, "int16"), "name_of": (np.array(name_of, np.int64), "uint16")}
    shown = {"start": (a, "uint32"), "length": (b - a, "uint32")} | numbers
    return {"name": name} | {key: _numbers(values, kind) for key, (values, kind) in shown.items()}


def _streams(run: RunFile, ops: Operations, names: dict[str, int], in_full: bool) -> list[dict[str, Any]]:
    out = []
    for number, stream in enumerate(run.names("streams")):
        rows = np.flatnonzero(ops.stream == number)
        if not len(rows) or (number and not in_full):
            continue
        numbers = [names[n] for n in ops.name[rows]]
        out.append(_placed(run, stream, ops.start[rows], ops.end[rows], ops.category[rows], ops.microbatch[rows], numbers))
    return out


def _heat(run: RunFile) -> dict[str, Any] | None:
    if "series/bytes" not in run or not run.shape("series/bytes")[0]:
        return None
    h = heat.heat(run, SPANS)
    mean, highest = (_numbers(np.clip(np.rint(255 * v), 0, 255), "uint8") for v in (h.mean, h.highest))
    return {"edges": h.t_s.tolist(), "tier": h.tier, "rail": h.rail, "links": h.links, "mean": mean, "highest": highest}


def _breakdown(run: RunFile) -> dict[str, Any] | None:
    if "gpus/busy" not in run:
        return None
    stages, seconds = data.breakdown(run)
    parts, colours = [LABELS.get(p, p) for p in PARTS], [COLOURS[p] for p in PARTS]
    return {"stages": stages, "parts": parts, "colours": colours, "seconds": seconds.tolist()}


def _curves(curves: dict[str, tuple[Array, Array]], colours: dict[str, str]) -> list[dict[str, Any]]:
    return [{"name": k, "x": x.tolist(), "y": y.tolist(), "colour": colours.get(k, COLOURS["forward"])} for k, (x, y) in curves.items()]


def _links(run: RunFile) -> dict[str, Any]:
    rows = links.busiest(run, links.Selection(), 200)
    used = [name for name in LINK_COLUMNS if any(name in row for row in rows)]
    load = ["; ".join(f"{100 * one['share']:.0f} % {worded(one)}" for one in row.get("operations", [])[:3]) for row in rows]
    columns = [LINK_COLUMNS[name] for name in used]
    cells = [[row.get(name) for name in used] + [text] for row, text in zip(rows, load, strict=True)]
    return {"id": "links", "columns": [*columns, ("loaded by", "text")], "rows": cells}


def _stages(run: RunFile) -> dict[str, Any]:
    if "gpus/busy" not in run:
        return {"id": "stages", "columns": [], "rows": []}
    stages, seconds = data.breakdown(run)
    kept = [p for p in range(len(PARTS)) if seconds[:, p].any()]
    columns = [("stage", "count"), *((LABELS.get(PARTS[p], PARTS[p]), "time") for p in kept)]
    return {"id": "stages", "columns": columns, "rows": [[s, *(float(v[p]) for p in kept)] for s, v in zip(stages, seconds, strict=True)]}


def _operations(run: RunFile) -> dict[str, Any]:
    columns = [("operation", "text"), ("category", "text"), ("count", "count"), ("total", "time"), ("mean", "time")]
    rows = [[r["name"], r["category"], r["count"], r["total_s"], r["mean_s"]] for r in data.by_name(run)]
    return {"id": "operations", "columns": columns, "rows": rows}
