"""Families: which kernels are compared with each other, and along which coordinates.

A family holds the rows of one kind, direction and precision. Coordinates are logarithms of what matters for efficiency:

    gemm, grouped_gemm   m, n, k, tile-and-wave utilisation (twice), groups (half)
    attention            batch * heads, sequence, batch * kv heads (0.3), head dims of scores and values, batch (0.3), queries per key
    memory-bound         bytes

Utilisation is that of 128 x 256 output tiles dealt to the SMs in waves: m n / (waves * SMs * tile), the better of both orientations. cuBLAS
knows more tiles and splits k, but this one explains most of the step-like loss at small outputs.
"""

from math import ceil, log, sqrt

from compute.kernels import GEMM_KINDS, Kernel
from netsim.config.compute import DeviceCard

WEIGHT_UTILISATION, WEIGHT_GROUPS, WEIGHT_KV, WEIGHT_BATCH = 2.0, 0.5, 0.3, 0.3
"""How far a factor e in each counts, against 1 for the sizes themselves; the same for all devices and shapes."""


def family_of(kernel: Kernel) -> str:
    """Name of the family, e.g. 'gemm/wgrad/bf16/fp32_grad', 'attention/fwd/bf16/causal', 'swiglu/fwd'."""
    dtype = "bf16" if kernel.dtype == "fp16" else kernel.dtype
    if kernel.kind in GEMM_KINDS:
        return f"{kernel.kind}/{kernel.direction}/{dtype}" + ("/fp32_grad" if kernel.accumulate else "")
    if kernel.kind == "attention":
        return f"attention/{kernel.direction}/{dtype}/{'causal' if kernel.causal else 'full'}"
    return f"{kernel.kind}/{kernel.direction}"


def coordinates(card: DeviceCard, kernel: Kernel) -> tuple[float, ...]:
    """Position of a kernel within its family."""
    if kernel.kind in GEMM_KINDS:
        fill = WEIGHT_UTILISATION * log(utilisation(kernel.m, kernel.n, kernel.groups, card.sms))
        return log(kernel.m), log(kernel.n), log(kernel.k), fill, WEIGHT_GROUPS * log(kernel.groups), 0.0
    if kernel.kind == "attention":
        head_dim_v = kernel.head_dim_v or kernel.head_dim
        dims = log((kernel.head_dim + head_dim_v) / 256) + 0.1 * log(kernel.head_dim / head_dim_v)
        sequence, skew = log(sqrt(kernel.seq_q * kernel.seq_kv)), log(kernel.seq_q / kernel.seq_kv)
        keys, batch = WEIGHT_KV * log(kernel.batch * kernel.kv_heads), WEIGHT_BATCH * log(kernel.batch)
        return log(kernel.batch * kernel.heads), sequence, keys, dims, batch, skew
    return log(max(kernel.nbytes, 1)), 0.0, 0.0, 0.0, 0.0, 0.0


def utilisation(m: int, n: int, groups: int, sms: int) -> float:
    """Share of tile slots that hold wanted outputs, over all waves: between 0 and 1."""
    best = 0.0
    for tile_m, tile_n in ((128, 256), (256, 128)):
        tiles = ceil(m / tile_m) * ceil(n / tile_n) * groups
        best = max(best, m * n * groups / (ceil(tiles / sms) * sms * tile_m * tile_n))
    return best
