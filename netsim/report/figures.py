"""Figures of a run (matplotlib): each function draws on a fresh figure; `save_all` writes those that the run has data for.

Colours are apart for people with any common colour vision; heat maps use cividis. At a thousand GPUs groups of links (tier and rail)
and one GPU per stage stand for what single lines could not show.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from netsim.errors import InputError
from netsim.report import data, heat
from netsim.report.data import COLOURS, LABELS, PARTS, TIER_COLOURS
from netsim.telemetry.read import RunFile
from netsim.telemetry.write import written
from netsim.units import format_time

Figure = Any
SPANS = 600
"""Columns of a heat map."""
TIMER_PARTS = {"forward-compute": "forward", "backward-compute": "backward", "optimizer": "optimizer"}


def save_all(run: RunFile, folder: Path, form: str = "png") -> list[Path]:
    """Write every figure that the run has data for; returns the files."""
    import_matplotlib()
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return [path for name in FIGURES if (path := save(run, name, folder / f"{name}.{form}")) is not None]


def save(run: RunFile, name: str, path: Path) -> Path | None:
    """Write one figure; None where the run has no data for it."""
    figure = FIGURES[name](run)
    if figure is None:
        return None
    with written(path):
        figure.savefig(path, dpi=130)
    return path


def import_matplotlib() -> Any:
    """matplotlib without a display; InputError where it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("figures: expected matplotlib; pip install 'netsim-llm[plots]'") from None
    return Figure


def _figure(title: str, run: RunFile, height: float = 4.5, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    figure = import_matplotlib()(figsize=(10, height), layout="constrained")
    figure.suptitle(f"{run.name}: {title}" + ("" if run.complete else " (INCOMPLETE run)"), fontsize=11)
    return figure, figure.subplots(rows, columns, squeeze=False)


def utilisation(run: RunFile) -> Figure | None:
    """Heat map of links by time, grouped by tier and rail: the mean of a group, and the highest of any of its links."""
    if "series/bytes" not in run or not run.shape("series/bytes")[0]:
        return None
    h, names = heat.merged(heat.heat(run, SPANS))
    figure, axes = _figure("utilisation of links by tier and rail (links in the group)", run, 2.2 + 0.3 * len(names), columns=2)
    unit, scale = _unit(h.t_s[-1])
    titles = ("mean over the group", f"highest of any link in {format_time(run.interval_ps)}")
    for ax, values, title in zip(axes[0], (h.mean, h.highest), titles, strict=True):
        y = np.arange(len(names) + 1) - 0.5
        image = ax.pcolormesh(h.t_s * scale, y, 100 * values, cmap="cividis", vmin=0, vmax=100, rasterized=True)
        ax.set(xlabel=f"time ({unit})", title=title)
        for edge in np.flatnonzero(np.array(h.tier[1:]) != np.array(h.tier[:-1])):
            ax.axhline(edge + 0.5, color="white", linewidth=1)
        ax.set_yticks(range(len(names)), names if ax is axes[0, 0] else [""] * len(names), fontsize=8)
        ax.invert_yaxis()
    figure.colorbar(image, ax=axes, label="utilisation (%)", pad=0.01)
    return figure


def timeline(run: RunFile) -> Figure | None:
    """What the compute stream of one GPU per stage does: forward and backward of each microbatch, and the step."""
    lanes = data.lanes(run)
    if not lanes:
        return None
    figure, axes = _figure("pipeline timeline, one GPU per stage", run, 1.6 + 0.45 * len(lanes))
    ax, shown = axes[0, 0], set()
    unit, scale = _unit(max((lane.end_s.max(initial=0) for lane in lanes), default=1))
    for at, lane in enumerate(lanes):
        for name, part in TIMER_PARTS.items():
            mine = np.array(lane.name, dtype=object) == name
            bars = np.stack([lane.start_s[mine], lane.end_s[mine] - lane.start_s[mine]], axis=1) * scale
            label = None if part in shown or not len(bars) else name
            shown |= {part} if len(bars) else set()
            edge = {"edgecolor": "white", "linewidth": 0.3} if len(bars) < 400 else {}
            ax.broken_barh(bars.tolist(), (at - 0.4, 0.8), facecolors=COLOURS[part], label=label, **edge)
    ax.set_yticks(range(len(lanes)), [f"stage {lane.stage}" for lane in lanes])
    ax.set(xlabel=f"time ({unit})", xlim=(0, None))
    ax.invert_yaxis()
    _legend(ax, "lower center", (0.5, 1.0), 4)
    return figure


def breakdown(run: RunFile) -> Figure | None:
    """Time of an iteration by stage, stacked."""
    if "gpus/busy" not in run:
        return None
    stages, seconds = data.breakdown(run)
    unit, scale = _unit(seconds.sum(axis=1).max())
    figure, axes = _figure("an iteration by pipeline stage (mean over the GPUs of a stage)", run, 1.8 + 0.4 * len(stages))
    ax, left = axes[0, 0], np.zeros(len(stages))
    for part, name in enumerate(PARTS):
        if seconds[:, part].max() > 0.0005 * seconds.sum(axis=1).max():
            ax.barh(range(len(stages)), seconds[:, part] * scale, left=left, color=COLOURS[name], label=LABELS.get(name, name))
        left += seconds[:, part] * scale
    ax.set_yticks(range(len(stages)), [f"stage {s}" for s in stages])
    ax.set(xlabel=f"time per iteration ({unit})")
    ax.invert_yaxis()
    _legend(ax, "lower center", (0.5, 1.0), 6)
    return figure


def completion(run: RunFile) -> Figure | None:
    """CDF of completion times of calls or messages, and of queues where the packet engine ran."""
    fct, queue = data.completion_cdf(run), data.queue_cdf(run)
    if not fct:
        return None
    figure, axes = _figure("completion times" + (" and queues" if queue else ""), run, columns=2 if queue else 1)
    for kind, (x, share) in fct.items():
        axes[0, 0].step(np.r_[x[0], x] * 1e6, 100 * np.r_[0, share], where="post", color=COLOURS.get(kind, COLOURS["forward"]), label=kind)
    axes[0, 0].set(xscale="log", xlabel="completion time (us)", ylabel="share at or below (%)", ylim=(0, 101))
    _legend(axes[0, 0], "best")
    if queue:
        for tier, (x, share) in queue.items():
            axes[0, 1].step(x / 1024, 100 * share, where="post", color=TIER_COLOURS[tier], label=f"{tier}, highest")
        for tier, (x, share) in data.queue_cdf(run, "queue_mean").items():
            axes[0, 1].step(x / 1024, 100 * share, where="post", color=TIER_COLOURS[tier], label=f"{tier}, mean", linestyle="--")
        axes[0, 1].set(xlabel="fill of a queue in an interval (KiB)", ylabel="share of link intervals (%)", ylim=(0, 101))
        _legend(axes[0, 1], "lower right")
    for ax in axes.flat:
        ax.grid(alpha=0.3)
    return figure


def utilisation_cdf(run: RunFile) -> Figure | None:
    """CDF over links of their mean utilisation, by tier."""
    curves = heat.utilisation_cdf(run)
    if not curves:
        return None
    figure, axes = _figure("mean utilisation of links over the run, by tier", run)
    ax = axes[0, 0]
    for tier, (used, share) in curves.items():
        ax.step(100 * np.r_[0, used], 100 * np.r_[0, share], where="post", color=TIER_COLOURS[tier], label=tier)
    ax.set(xlabel="utilisation (%)", ylabel="share of links at or below (%)", xlim=(0, None), ylim=(0, 101))
    ax.grid(alpha=0.3)
    _legend(ax, "lower right")
    return figure


def memory(run: RunFile) -> Figure | None:
    """Memory allocated on one GPU per stage over time."""
    curves = data.memory(run)
    if not curves:
        return None
    figure, axes = _figure("memory allocated, one GPU per stage", run)
    ax = axes[0, 0]
    unit, scale = _unit(max(t.max(initial=0) for _, t, _ in curves))
    shades = import_colours()(np.linspace(0.05, 0.95, len(curves)))
    for (stage, t, held), shade in zip(curves, shades, strict=True):
        ax.step(t * scale, held / 2**30, where="post", color=shade, label=f"stage {stage}", linewidth=0.9)
    ax.set(xlabel=f"time ({unit})", ylabel="allocated (GiB)", ylim=(0, None), xlim=(0, None))
    ax.grid(alpha=0.3)
    _legend(ax, "center left", (1.0, 0.5))
    return figure


def import_colours() -> Any:
    """The colour map in which stages are ordered."""
    from matplotlib import colormaps

    return colormaps["viridis"]


def _legend(ax: Any, where: str, anchor: tuple[float, float] | None = None, columns: int = 1) -> None:
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc=where, bbox_to_anchor=anchor, ncols=columns, frameon=False, fontsize=8)


def _unit(seconds: float) -> tuple[str, float]:
    """The unit in which a time reads well, and the factor from seconds."""
    return ("s", 1.0) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)


FIGURES: dict[str, Callable[[RunFile], Figure | None]] = {
    "utilisation": utilisation,
    "timeline": timeline,
    "breakdown": breakdown,
    "completion": completion,
    "utilisation_cdf": utilisation_cdf,
    "memory": memory,
}
