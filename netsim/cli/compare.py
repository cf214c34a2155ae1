"""`netsim compare A B [C...]`: what changed between runs."""

import argparse
import contextlib
import json
from typing import Any

from netsim.units import PS_PER_S, format_size, format_time

HELP = "what changed between runs: configuration, time by category, links"
SHOWN = {
    "iteration_time_s": ("iteration time", "time"),
    "end_s": ("end", "time"),
    "tokens_per_s": ("tokens/s", "number"),
    "tflops_per_gpu": ("TFLOP/s per GPU", "number"),
    "mfu": ("MFU", "share"),
    "peak_memory_gib": ("peak memory (GiB)", "number"),
    "network_bytes": ("bytes over NICs", "size"),
    "scale_up_bytes": ("bytes over scale-up", "size"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help="folders of runs, or result files; others are held against the first")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON document in the last line")


def run(args: argparse.Namespace) -> int:
    """Read the runs and print what differs."""
    from netsim.errors import InputError
    from netsim.report import notes
    from netsim.report.compare import compare
    from netsim.telemetry.read import open_run

    if len(args.runs) < 2:
        raise InputError("netsim compare: expected two runs or more; got 1")
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(open_run(path)) for path in args.runs]
        found = compare(opened)
        said = [f"{path}: {note}" for path, one in zip(args.runs, opened, strict=True) for note in notes.of(one)]
    print(json.dumps(found) if args.json else "\n".join([*said, *([""] if said else []), _render(found, args.runs)]))
    return 0


def _render(found: dict[str, Any], paths: list[str]) -> str:
    from netsim.report.table import text_table

    names = found["runs"] if len(set(found["runs"])) == len(paths) else paths
    parts = [] if found["config"] else ["configuration: no difference"]
    if found["config"]:
        rows = [(name, *(_plain(value) for value in values)) for name, values in found["config"]]
        parts.append(text_table("configuration", [("field", *names), *rows]))
    head = [(SHOWN[name][0], *_against(values, SHOWN[name][1])) for name, values in found["headlines"]]
    parts.append(text_table("results", [("", *names), *head]))
    if found["time_s"]:
        rows = [(part, *_against(values, "time")) for part, values in found["time_s"]]
        parts.append(text_table("an iteration, mean over GPUs", [("", *names), *rows]))
    rows = [(tier, *(_tier(one) for one in each)) for tier, each in found["tiers"]]
    parts.append(text_table("links by tier: mean utilisation (most of any link), bytes", [("tier", *names), *rows]))
    if found["links"]:
        rows = [(link, *_against(values, "size")) for link, values in found["links"]]
        parts.append(text_table("links that changed most (one for all of a tier that changed alike)", [("link", *names), *rows]))
    return "\n\n".join(parts)


def _plain(value: Any) -> str:
    text = "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 48 else text[:45] + "..."


def _against(values: list[float | None], kind: str) -> list[str]:
    """Values, the second and later with their change from the first."""
    out = []
    for i, value in enumerate(values):
        text = "-" if value is None else _shown(value, kind)
        if i and value is not None and values[0]:
            text += f" ({100 * (value / values[0] - 1):+.1f} %)"
        out.append(text)
    return out


def _shown(value: float, kind: str) -> str:
    if kind == "time":
        return format_time(value * PS_PER_S)
    return format_size(value) if kind == "size" else f"{100 * value:.1f} %" if kind == "share" else f"{value:,.1f}"


def _tier(one: dict[str, float] | None) -> str:
    return "-" if one is None else f"{100 * one['mean']:.1f} % ({100 * one['most']:.1f} %), {format_size(one['bytes'])}"
