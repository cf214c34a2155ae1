"""The summary of a run on the terminal."""

import io
from typing import Any

from netsim.units import format_size, format_time


def render(summary: dict[str, Any]) -> str:
    """Lay out what `summary.json` holds for a person."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=118, highlight=False)
    parts = (_traffic(summary),) if "flows" in summary else (_head(summary), _stages(summary), _timers(summary), _links(summary))
    for part in parts:
        console.print(part)
    return console.file.getvalue().rstrip()  # type: ignore[attr-defined]


def _head(s: dict[str, Any]) -> str:
    lines = [
        f"[bold]{s['name']}[/]  {s['gpus']:,} GPUs, {s['engine']} engine"
        + ("" if s["complete"] else "  [bold red]INCOMPLETE: stopped before the end[/]"),
        f"  iteration time    {_time(s['iteration_time_s'])}",
        *_interval(s),
        f"  throughput        {s['tokens_per_s']:,.0f} tokens/s",
        f"  per GPU           {s['tflops_per_gpu']:.1f} TFLOP/s, MFU {100 * s['mfu']:.1f} % of {s['peak_tflops']:,.0f} TFLOP/s",
        f"  peak memory       {s['peak_memory_gib']:.1f} GiB per GPU" + _too_much(s),
        f"  simulated         {format_size(s['network_bytes'])} over NICs, {format_size(s['scale_up_bytes'])} over scale-up links",
    ]
    if "packet_hops" in s:
        lines[-1] += f", {s['packet_hops']:,} packet-hops"
    if "wall_s" in s:  # not in the result file, which says the same wherever it was made
        ranks = f"{s['ranks']} rank{'s' if s['ranks'] > 1 else ''}"
        lines.append(f"  wall time         {s['wall_s']:.2f} s on {ranks}, {s['gpus_simulated']:,} GPUs played")
    return "\n".join(lines)


def _too_much(s: dict[str, Any]) -> str:
    """Warn where a GPU has less memory than that."""
    if s["peak_memory_gib"] <= s.get("memory_gib", float("inf")):
        return ""
    return f"  [bold red]OUT OF MEMORY: the GPU has {s['memory_gib']:.1f} GiB; peak in {s['peak_memory_where']}[/]"


def _interval(s: dict[str, Any]) -> list[str]:
    """Where kernel times come from, and what that makes of the iteration time."""
    if "kernel_times" not in s:
        return []
    low, high, origin = s["iteration_time_s_low"], s["iteration_time_s_high"], s["kernel_times"]
    shares = ", ".join(f"{100 * origin[name]:.0f} % {name}" for name in ("exact", "interpolated", "roofline"))
    return [f"    9 in 10 within  {_time(low)} to {_time(high)} (kernel times: {shares})"]


def _traffic(s: dict[str, Any]) -> str:
    fct = ", ".join(f"{name} {value:.3f}" for name, value in s["fct_us"].items()) if "fct_us" in s else "none ended"
    ended = f"all done after    {_time(s['end_s'])}" if s["complete"] else f"ended by then     {s['flows_done']:,} ({_time(s['end_s'])})"
    lines = [
        f"[bold]{s['name']}[/]  {s['flows']:,} flows between {s['nics']:,} NICs, {s['engine']} engine"
        + ("" if s["complete"] else "  [bold red]INCOMPLETE: stopped before the end[/]"),
        f"  {ended}",
        f"  completion (us)   {fct}",
        f"  simulated         {format_size(s['network_bytes'])} over NICs",
    ]
    if "packet_hops" in s:
        lines[-1] += f", {s['packet_hops']:,} packet-hops"
        marks = f"{s['ecn']:,.0f} marks, {s['drops']:,.0f} drops, {s['resent']:,} sent again, {s['reordered']:,.0f} reordered"
        lines.append(f"  switches          {marks}, paused for {format_time(s['pause_ps'])} (sum over links)")
    if "wall_s" in s:
        lines.append(f"  wall time         {s['wall_s']:.2f} s")
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


def _timers(s: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(title="Megatron's timers, an iteration", title_justify="left", box=None, pad_edge=False)
    for name, justify in (("timer", "left"), ("min over GPUs", "right"), ("max over GPUs", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name, over in s.get("timers", {}).items():
        table.add_row(name, _time(over["min_s"]), _time(over["max_s"]))
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
