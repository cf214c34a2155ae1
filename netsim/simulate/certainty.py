"""How far an iteration time can be trusted as far as kernel times go: where they come from, and the interval that follows."""

from typing import Any

import numpy as np

from compute.report import report
from netsim.kernels.structs import COMPUTE, Array
from netsim.simulate.model import Model


def certainty(model: Model, compute_s: float, iteration_s: float) -> dict[str, Any]:
    """Figures for the summary: an interval for the iteration, shares of kernel time by origin, and the heaviest unmeasured shapes.

    The interval scales the compute part of the iteration (`compute_s`, mean over GPUs) by the bounds of the sum of kernel times, nine
    cases in ten; communication and bubble stay as they are.
    """
    segments = model.work.segments
    found = report(model.device.card, segments.kernels, segments.answer, _runs(model).tolist())
    total = max(found.total_ps, 1)
    return {
        "iteration_time_s_low": iteration_s - compute_s * (1 - found.low_ps / total),
        "iteration_time_s_high": iteration_s + compute_s * (found.high_ps / total - 1),
        "kernel_times": {
            "exact": found.exact,
            "interpolated": found.interpolated,
            "roofline": found.roofline,
            "missed": [_described(entry) for entry in found.missed],
        },
    }


def _runs(model: Model) -> Array:
    """How often each kernel runs in an iteration, over all GPUs."""
    programs, segments = model.work.programs, model.work.segments
    gpus = np.bincount(model.work.gpu_program, minlength=programs.n_programs)
    rows = np.flatnonzero(programs.kind == COMPUTE)
    program = np.searchsorted(programs.stream_ptr[:: programs.n_streams], rows, side="right") - 1
    of_segment = np.bincount(programs.call[rows], weights=gpus[program], minlength=len(segments.ptr) - 1)
    return np.bincount(segments.idx, weights=np.repeat(of_segment, np.diff(segments.ptr)), minlength=len(segments.kernels))


def _described(entry: Any) -> dict[str, Any]:
    usual = entry.kernel._field_defaults
    kernel = {name: value for name, value in entry.kernel._asdict().items() if value != usual.get(name)}
    figures = {"share": float(entry.share), "sigma": float(entry.sigma), "microseconds": entry.t_ps / 1e6, "runs": entry.runs}
    return {"kernel": kernel, **figures}
