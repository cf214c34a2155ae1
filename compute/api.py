"""The seam between kernel times and everything above: describe kernels, ask how long they take.

    device = load_device(run.compute)
    answer = times(device, kernels)          # t_ps, sigma, source of each
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from netsim.config.compute import Compute, DeviceCard
from netsim.units import PS_PER_S

EXACT, INTERPOLATED, ROOFLINE = 0, 1, 2
"""Where an answer comes from: a measured row of this shape, measured neighbours, or roofline with the device's efficiency."""

MATRIX_KINDS = ("gemm", "grouped_gemm", "attention")
DTYPE_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp8_blockwise": 1.03, "mxfp8": 1.03, "nvfp4": 0.56, "fp32": 4.0}


class Kernel(NamedTuple):
    """One GPU kernel (or fused group) as executed; hashable, so that equal kernels are looked up once.

    gemm: m, n, k of the call itself (already permuted for dgrad and wgrad); FLOPs 2 m n k times groups.
    grouped_gemm: the same, m rows in each of `groups` groups.
    attention: batch x heads x seq_q x seq_kv; head_dim of queries and keys, head_dim_v of values (0: the same).
    all other kinds: memory-bound, `nbytes` moved.
    """

    kind: str
    direction: str = "fwd"
    dtype: str = "bf16"
    m: int = 0
    n: int = 0
    k: int = 0
    groups: int = 1
    batch: int = 0
    seq_q: int = 0
    seq_kv: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    head_dim_v: int = 0
    causal: bool = True
    nbytes: int = 0
    accumulate: bool = False


class Times(NamedTuple):
    """Durations of K kernels."""

    t_ps: np.ndarray  # int64[K]
    sigma: np.ndarray  # float64[K] relative standard deviation
    source: np.ndarray  # int8[K] EXACT, INTERPOLATED or ROOFLINE


class Device(NamedTuple):
    """A GPU ready for lookups."""

    card: DeviceCard


def load_device(config: Compute) -> Device:
    """Read the tables of the configured GPU; `InputError` where one is missing or malformed."""
    return Device(config.device)


def flops(kernel: Kernel) -> float:
    """Floating-point operations that the kernel executes (attention backward recomputes scores: 2.5 times its forward)."""
    if kernel.kind in ("gemm", "grouped_gemm"):
        return 2.0 * kernel.m * kernel.n * kernel.k * kernel.groups
    if kernel.kind != "attention":
        return 0.0
    pairs = float(kernel.seq_q) * kernel.seq_kv
    if kernel.causal:
        pairs = kernel.seq_q * (kernel.seq_kv - (kernel.seq_q - 1) / 2) if kernel.seq_kv >= kernel.seq_q else kernel.seq_kv * (kernel.seq_kv + 1) / 2
    forward = 2.0 * kernel.batch * kernel.heads * pairs * (kernel.head_dim + (kernel.head_dim_v or kernel.head_dim))
    return forward * (1.0 if kernel.direction == "fwd" else 2.5)


def peak_flops(device: Device, dtype: str) -> float:
    """Dense peak of a precision in FLOP/s; a precision that the GPU lacks runs at the next wider one it has."""
    wider = {"nvfp4": "mxfp8", "mxfp8": "fp8", "fp8_blockwise": "fp8", "fp8": "bf16", "fp16": "bf16"}
    while dtype not in device.card.peak:
        dtype = wider[dtype]
    return device.card.peak[dtype]


def times(device: Device, kernels: Sequence[Kernel]) -> Times:
    """Return the duration of every kernel, how sure it is, and where it comes from."""
    t_ps = np.array([_roofline_ps(device, kernel) for kernel in kernels], dtype=np.int64)
    return Times(t_ps, np.full(len(kernels), 0.3), np.full(len(kernels), ROOFLINE, dtype=np.int8))


def _roofline_ps(device: Device, kernel: Kernel) -> int:
    card = device.card
    efficiency = card.attention_efficiency if kernel.kind == "attention" else card.gemm_efficiency
    compute_s = flops(kernel) / (peak_flops(device, kernel.dtype) * efficiency)
    size = DTYPE_BYTES[kernel.dtype]
    moved = kernel.nbytes or kernel.groups * (size * kernel.m * kernel.k + size * kernel.k * kernel.n + 2 * kernel.m * kernel.n)
    memory_s = moved / (card.hbm * card.memory_efficiency.get(kernel.kind, card.hbm_efficiency))
    return round(max(compute_s, memory_s) * PS_PER_S) + card.launch
