"""The seam between kernel times and everything above: describe kernels, ask how long they take.

device = load_device(run.compute)
answer = times(device, kernels)                # t_ps, sigma, source of each
missed = report(device.card, kernels, answer, counts)     # what rests on measurements, and an interval for the sum
"""

from compute.device import Device, load_device
from compute.kernels import INNER, MODULE, Kernel, flops, launches, peak_of
from compute.lookup import EXACT, INTERPOLATED, ROOFLINE, Times, times
from compute.report import MissReport, report

__all__ = [
    "EXACT",
    "INNER",
    "INTERPOLATED",
    "MODULE",
    "ROOFLINE",
    "Device",
    "Kernel",
    "MissReport",
    "Times",
    "flops",
    "launches",
    "load_device",
    "peak_flops",
    "report",
    "times",
]


def peak_flops(device: Device, dtype: str) -> float:
    """Dense peak of a precision in FLOP/s; one that the GPU lacks runs at the next wider one it has."""
    return peak_of(device.card, dtype)
