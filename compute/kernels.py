"""Kernels: what a GPU executes, the floating-point operations and bytes that it takes, and its shortest possible time.

The ideal time of a kernel is max(operations / peak, bytes / bandwidth) + the duration of an empty kernel, of several where the groups of
a grouped GEMM are launched one by one. Everything measured is kept and interpolated as log(time / ideal time), which is smooth where time
itself spans five orders of magnitude.

filled = share of SM time that a grid of tiles can keep busy, between 0 and 1 (wave and tile quantisation):

    gemm, grouped_gemm   m n / (waves * SMs * tile) with 128 x 256 output tiles dealt to the SMs in waves, the better of both orientations
    attention            query-key pairs of all heads / (SMs * pairs of the longest tile): a tile is 256 rows of queries (128 rows of keys
                         in backward) against the whole sequence, and no kernel ends before its longest tile

For GEMMs, whose libraries choose among many tiles and split k, it is a coordinate of interpolation (compute/families.py). The tiles of an
attention follow from the algorithm: its operations take sqrt(filled) of the peak, as clocks are higher where SMs idle and tiles differ in
length; leave-one-out over all attention tables prefers the square root to no dependence and to the first power.
"""

from math import ceil, sqrt
from typing import NamedTuple

from netsim.config.compute import DeviceCard
from netsim.units import PS_PER_S

GEMM_KINDS = ("gemm", "grouped_gemm")
DTYPE_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp8_blockwise": 1.03, "mxfp8": 1.03, "nvfp4": 0.56, "fp32": 4.0}
"""Bytes of an operand element, block scales included (1 fp32 per 128, 1 byte per 32, 1 byte per 16)."""
WIDER = {"nvfp4": "mxfp8", "mxfp8": "fp8", "fp8_blockwise": "fp8", "fp8": "bf16", "fp16": "bf16"}
"""The precision whose tensor-core rate stands in where a GPU lacks one."""


class Kernel(NamedTuple):
    """One GPU kernel (or fused group) as executed; hashable, so that equal kernels are looked up once.

    kind: 'gemm', 'grouped_gemm', 'attention', or a memory-bound one: 'norm', 'swiglu', 'gelu', 'rope', 'residual', 'softmax', 'router',
    'permute', 'unpermute', 'cross_entropy', 'embedding', 'adam', 'cast', 'bias', 'copy', 'memory' or any other name (they
    differ in rows and in shares of bandwidth only).
    direction: 'fwd', 'dgrad', 'wgrad' for GEMMs; 'fwd', 'bwd' for the others.
    m, n, k: of the GEMM call itself (already permuted for dgrad and wgrad), of each of `groups` groups (of a cast too: one launch each).
    batch, seq_q, seq_kv, heads, kv_heads, head_dim (queries and keys), head_dim_v (values; 0: the same), causal: of attention;
    `batch` of a grouped GEMM says that one launch does all groups.
    nbytes: bytes moved, for memory-bound kinds (the dtype of a cast is what it leads to).
    accumulate: a wgrad that adds into an fp32 gradient.
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


def flops(kernel: Kernel) -> float:
    """Floating-point operations that the kernel executes (attention backward recomputes scores: 2.5 times its forward)."""
    if kernel.kind in GEMM_KINDS:
        return 2.0 * kernel.m * kernel.n * kernel.k * kernel.groups
    if kernel.kind != "attention":
        return 0.0
    forward = 2.0 * kernel.batch * kernel.heads * attended_pairs(kernel) * (kernel.head_dim + (kernel.head_dim_v or kernel.head_dim))
    return forward * (1.0 if kernel.direction == "fwd" else 2.5)


def attended_pairs(kernel: Kernel) -> float:
    """Query-key pairs of one head; the causal mask aligns the ends of both sequences."""
    q, kv = float(kernel.seq_q), float(kernel.seq_kv)
    if not kernel.causal:
        return q * kv
    return q * kv - q * (q - 1) / 2 if q <= kv else kv * (kv + 1) / 2


SCALED = ("mxfp8", "nvfp4")
"""Precisions whose block scales are brought into the order of the tensor cores by a kernel of their own for each operand."""
MODULE, INNER = 3.0, 0.5
"""What a GEMM inside a module of TransformerEngine costs the host, in forwards of PyTorch's Linear (2.7: TransformerEngine issue 2053), and
what a kernel costs that is launched from its C++ code (half of a small PyTorch operation: TransformerEngine pull request 1016)."""
LAUNCHES = {"router": 20.0, "permute": 5.0, "unpermute": 4.0, "clamp": 5.0, "expert_bias": 5.0}
"""PyTorch operations behind one entry: the router's softmax, top-k, scatters, sums and balancing loss; sort, masks and index arithmetic of
a permutation. Counted in Megatron-Core `transformer/moe`."""


def launches(kernel: Kernel) -> float:
    """What the host does for a kernel, in small PyTorch operations; GEMMs and casts of experts go one by one unless they are one batch."""
    if kernel.kind == "gemm":
        return MODULE
    if kernel.kind == "grouped_gemm":
        return 1.0 if kernel.batch else MODULE + INNER * (3 if kernel.dtype in SCALED else 1) * kernel.groups
    if kernel.kind == "cast" and kernel.groups > 1:
        return INNER * kernel.groups
    return kernel.groups * LAUNCHES.get(kernel.kind, 1.0)


def moved_bytes(kernel: Kernel) -> float:
    """Bytes that must cross the memory bus once."""
    if kernel.kind in GEMM_KINDS:
        size = DTYPE_BYTES[kernel.dtype]
        output = 8.0 if kernel.accumulate else 4.0 if kernel.direction == "wgrad" else 2.0
        return kernel.groups * (size * kernel.k * (kernel.m + kernel.n) + output * kernel.m * kernel.n)
    if kernel.kind == "attention":
        head_dim_v = kernel.head_dim_v or kernel.head_dim
        queries = kernel.seq_q * kernel.heads * (kernel.head_dim + head_dim_v)
        keys = kernel.seq_kv * kernel.kv_heads * (kernel.head_dim + head_dim_v)
        return DTYPE_BYTES["bf16"] * kernel.batch * (queries + keys) * (1.0 if kernel.direction == "fwd" else 2.0)
    return float(kernel.nbytes)


TILES = ((128, 256), (256, 128))
ATTENTION_TILE = {"fwd": 256, "bwd": 128}
"""Rows that an SM works on at a time: of queries in forward (two tiles of 128, FlashAttention-3 and -4, cuDNN), of keys in backward."""

STREAMS = 4
"""Among which TransformerEngine deals the groups of a grouped GEMM (`multi_stream_cublas`)."""


def filled(card: DeviceCard, kernel: Kernel) -> float:
    """Share of SM time that the tiles of a GEMM or an attention can keep busy, above 0 and at most 1."""
    if kernel.kind in GEMM_KINDS:
        outputs = kernel.m * kernel.n * kernel.groups
        waves = {(a, b): ceil(ceil(kernel.m / a) * ceil(kernel.n / b) * kernel.groups / card.sms) for a, b in TILES}
        return max(outputs / (count * card.sms * a * b) for (a, b), count in waves.items())
    if kernel.kind == "attention":
        longest = ATTENTION_TILE[kernel.direction] * kernel.seq_kv
        return min(1.0, kernel.batch * kernel.heads * attended_pairs(kernel) / (card.sms * longest))
    return 1.0


def compute_s(card: DeviceCard, kernel: Kernel) -> float:
    """Seconds of a kernel's operations at peak; of an attention's, on the part of the GPU that it fills."""
    return flops(kernel) / (peak_of(card, kernel.dtype) * (sqrt(filled(card, kernel)) if kernel.kind == "attention" else 1.0))


def empty_s(card: DeviceCard, kernel: Kernel) -> float:
    """Seconds of the empty kernels behind one entry: groups that are no batch are kernels of their own, dealt to streams."""
    return card.launch / PS_PER_S * (ceil(kernel.groups / STREAMS) if kernel.kind == "grouped_gemm" and not kernel.batch else 1)


def peak_of(card: DeviceCard, dtype: str) -> float:
    """Dense peak of a precision in FLOP/s; one that the GPU lacks runs at the next wider one it has."""
    while dtype not in card.peak and dtype in WIDER:
        dtype = WIDER[dtype]
    return card.peak.get(dtype, card.peak["bf16"])


def ideal_s(card: DeviceCard, kernel: Kernel) -> float:
    """Shortest time to expect, in seconds: roofline at peak rates, plus the empty kernel."""
    return max(compute_s(card, kernel), moved_bytes(kernel) / card.hbm) + empty_s(card, kernel)
