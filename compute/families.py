"""Families: which kernels are compared with each other, and along which coordinates.

A family holds the rows of one kind, direction and precision. Coordinates are logarithms of what matters for efficiency:

    gemm, grouped_gemm   m, n, k, share of the GPU that its tiles fill (2), groups (0.5)
    attention            batch * heads, sequence, batch * kv heads (0.3), head dims of scores and values (5), batch (0.3), queries per key
    memory-bound         bytes

Weights are in brackets where they are not 1. Another head dim is another kernel: a row of the same one counts, far as it may be in length,
for more than rows of a neighbouring one, and leave-one-out improves in every attention table as the weight grows.
"""

from math import log, sqrt

from compute.kernels import GEMM_KINDS, Kernel, filled
from netsim.config.compute import DeviceCard

WEIGHT_FILLED, WEIGHT_GROUPS, WEIGHT_KV, WEIGHT_DIMS, WEIGHT_BATCH = 2.0, 0.5, 0.3, 5.0, 0.3
"""How far a factor e in each counts, against 1 for the sizes themselves; the same for all devices and shapes."""


def family_of(kernel: Kernel) -> str:
    """Name of the family, e.g. 'gemm/wgrad/bf16/fp32_grad', 'attention/fwd/bf16/causal', 'swiglu/fwd', 'cast/fwd/fp8'."""
    dtype = "bf16" if kernel.dtype == "fp16" else kernel.dtype
    if kernel.kind in GEMM_KINDS:
        return f"{kernel.kind}/{kernel.direction}/{dtype}" + ("/fp32_grad" if kernel.accumulate else "")
    if kernel.kind == "attention":
        return f"attention/{kernel.direction}/{dtype}/{'causal' if kernel.causal else 'full'}"
    return f"{kernel.kind}/{kernel.direction}" + (f"/{dtype}" if dtype != "bf16" else "")


def coordinates(card: DeviceCard, kernel: Kernel) -> tuple[float, ...]:
    """Position of a kernel within its family."""
    if kernel.kind in GEMM_KINDS:
        fill = WEIGHT_FILLED * log(filled(card, kernel))
        return log(kernel.m), log(kernel.n), log(kernel.k), fill, WEIGHT_GROUPS * log(kernel.groups), 0.0
    if kernel.kind == "attention":
        head_dim_v = kernel.head_dim_v or kernel.head_dim
        dims = WEIGHT_DIMS * (log((kernel.head_dim + head_dim_v) / 256) + 0.1 * log(kernel.head_dim / head_dim_v))
        sequence, skew = log(sqrt(kernel.seq_q * kernel.seq_kv)), log(kernel.seq_q / kernel.seq_kv)
        keys, batch = WEIGHT_KV * log(kernel.batch * kernel.kv_heads), WEIGHT_BATCH * log(kernel.batch)
        return log(kernel.batch * kernel.heads), sequence, keys, dims, batch, skew
    return log(max(kernel.nbytes, 1)), 0.0, 0.0, 0.0, 0.0, 0.0
