"""The summary of a run on the terminal."""

import io
from typing import Any

from netsim.units import format_size, format_time


def render(summary: dict[str, Any]) -> str:
    """Lay out what `summary.json` holds for a person."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=118, highlight=False)
    for part in (_head(summary), _stages(summary), _links(summary)):
        console.print(part)
    return console.file.getvalue().rstrip()  # type: ignore[attr-defined, no-any-return]


def _head(s: dict[str, Any]) -> str:
    lines = [
        f"[bold]{s['name']}[/]  {s['gpus']:,} GPUs, {s['engine']} engine"
        + ("" if s["complete"] else "  [bold red]INCOMPLETE: stopped before the end[/]"),
        f"  iteration time    {_time(s['iteration_time_s'])}",
        f"  throughput        {s['tokens_per_s']:,.0f} tokens/s",
        f"  per GPU           {s['tflops_per_gpu']:.1f} TFLOP/s, MFU {100 * s['mfu']:.1f} % of {s['peak_tflops']:,.0f} TFLOP/s",
        f"  peak memory       {s['peak_memory_gib']:.1f} GiB per GPU",
        f"  simulated         {format_size(s['network_bytes'])} over NICs, {format_size(s['scale_up_bytes'])} over scale-up links",
        f"  wall time         {s['wall_s']:.2f} s on {s['ranks']} rank{'s' if s['ranks'] > 1 else ''}, {s['gpus_simulated']:,} GPUs played",
    ]
    return "\n".join(lines)


def _stages(s: dict[str, Any]) -> Any:
    from rich.table import Table

    kinds = [k for k in s["exposed_s"] if any(stage["exposed_s"][k] > 0 for stage in s["stages"])]
    table = Table(title="an iteration, by pipeline stage (mean over its GPUs)", title_justify="left", box=None, pad_edge=False)
    for name in ("stage", "forward", "backward", "recompute", *(f"exposed {k}" for k in kinds), "bubble", "optimizer"):
        table.add_column(name, justify="right")
    for stage in s["stages"]:
        exposed = [_time(stage["exposed_s"][k]) for k in kinds]
        kernels = [_time(stage[f"{k}_s"]) for k in ("forward", "backward", "recompute")]
        table.add_row(str(stage["program"]), *kernels, *exposed, _time(stage["bubble_s"]), _time(stage["optimizer_s"]))
    return table


def _links(s: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(title="busiest links", title_justify="left", box=None, pad_edge=False)
    for name, justify in (("link", "left"), ("tier", "left"), ("such links", "right"), ("bytes", "right"), ("utilisation", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for link in s["busiest_links"]:
        table.add_row(link["link"], link["tier"], f"{link['alike']:,}", format_size(link["bytes"]), f"{100 * link['utilisation']:.1f} %")
    return table


def _time(seconds: float) -> str:
    return format_time(seconds * 1e12) if seconds else "-"
