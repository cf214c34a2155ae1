"""The kernels that a layer is made of, with the bytes that memory-bound ones move.

Bytes are those of fused kernels with 16-bit activations: a kernel reads its inputs and writes its outputs once. Sizes are of one GPU.
GEMMs are M tokens x N out x K in; dgrad is (M, K, N), wgrad (N, K, M) and adds to the main gradient.
"""

from functools import cache

from compute.api import Kernel
from compute.kernels import DTYPE_BYTES
from netsim.config.model import Model
from workload.launch import EARLIER
from workload.shape import ELEMENT, Shape

CASTS = {
    "fp8": (4.0,),
    "tensorwise": (2.0, 4.0),
    "fp8_blockwise": (2 + 2 * (1 + 4 / 128),),
    "mxfp8": (2 + 2 * (1 + 1 / 32),),
    "nvfp4": (2.0, 2 + 0.5 + 1 / 16, 2 + 0.5 + 1 / 16),
}
"""Bytes per element that each kernel of a cast moves: every one reads 16 bits; one with delayed scales or scales per block writes a
row-wise and a column-wise copy. Scales of the tensor itself take a pass for its maximum first. NVFP4 looks for the maxima of the tensor
and of its Hadamard transform, then casts it row-wise, then transforms and casts it column-wise. Source: TransformerEngine
`pytorch/csrc/quantizer.cpp`.
"""
FUSED_INTO_NORM = ("fp8", "mxfp8")
"""Casts that TransformerEngine's norms do themselves: delayed scaling, and MXFP8 with cuDNN's norms (`NVTE_NORM_FWD_USE_CUDNN`, which
NVIDIA's performance recipes set). Source: TransformerEngine `pytorch/csrc/extensions/normalization.cpp`.
"""


def limited(m: Model, layer: int) -> int:
    """Attention span of a layer; 0 where it is not limited."""
    full = m.window_every > 1 and layer % m.window_every == m.window_every - 1
    return 0 if full else m.window


@cache
def moved(kind: str, nbytes: int, direction: str = "fwd") -> Kernel:
    """A memory-bound kernel that moves `nbytes`; kinds are those of `compute.kernels`."""
    return Kernel(kind, direction, nbytes=nbytes)


@cache
def gemm(m: int, n: int, k: int, dtype: str, direction: str = "fwd") -> Kernel:
    """The forward GEMM (m, n, k) of a linear layer, or its dgrad or wgrad."""
    if direction == "dgrad":
        n, k = k, n
    elif direction == "wgrad":
        m, n, k = n, k, m
    return Kernel("gemm", direction, dtype, m, n, k, accumulate=direction == "wgrad")


def wgrad(s: Shape, *gemms: Kernel) -> tuple[Kernel, ...]:
    """Weight gradients, added to those of earlier microbatches by their GEMMs, or else by a kernel behind each."""
    if s.training.kernels.gradient_accumulation_fusion:
        return gemms
    size = ELEMENT + 2 * DTYPE_BYTES[s.training.data_parallel.grad_dtype]
    pairs = ((one._replace(accumulate=False), moved("memory", round(size * one.m * one.n * one.groups), "bwd")) for one in gemms)
    return tuple(kernel for pair in pairs for kernel in pair)


@cache
def grouped(rows: int, n: int, k: int, groups: int, dtype: str, direction: str = "fwd") -> Kernel:
    """The GEMMs of `groups` experts with `rows` rows in all."""
    each = max(1, -(-rows // groups))
    one = gemm(each, n, k, dtype, direction)
    return one._replace(kind="grouped_gemm" if groups > 1 else "gemm", groups=groups)


def experts_gemm(s: Shape, rows: int, n: int, k: int, direction: str = "fwd") -> Kernel:
    """The GEMMs of a GPU's experts: one launch where they are fused."""
    many = grouped(rows, n, k, s.local_experts, s.gemm_dtype, direction)
    return many._replace(batch=1) if s.training.kernels.fused_experts else many


def scaling(s: Shape, dtype: str) -> str:
    """How a GEMM in `dtype` gets its scales: a key of `CASTS`, or "" in 16 bits and more."""
    narrow = "tensorwise" if dtype == "fp8" and s.training.precision.fp8_recipe == "tensorwise" else dtype
    return narrow if narrow in CASTS else ""


def casts(s: Shape, elements: int, dtype: str, groups: int = 1) -> tuple[Kernel, ...]:
    """Cast to the precision of a GEMM, expert by expert in a grouped one; nothing where it is that of the activations."""
    sizes = CASTS.get(scaling(s, dtype), ())
    return tuple(moved("cast", round(nbytes * elements))._replace(groups=groups, dtype=dtype) for nbytes in sizes)


def casts_normed(s: Shape, elements: int, dtype: str) -> tuple[Kernel, ...]:
    """Cast the output of a norm, where the norm does not write it in the precision of the GEMM."""
    return () if scaling(s, dtype) in FUSED_INTO_NORM else casts(s, elements, dtype)


def transposed(s: Shape, elements: int, dtype: str) -> tuple[Kernel, ...]:
    """Transpose a gathered 8-bit input for its weight gradient.

    Tensor cores before Blackwell take both operands along the summed dimension. Source: TransformerEngine
    `module/layernorm_linear.py`, `is_non_tn_fp8_gemm_supported`.
    """
    return (moved("cast", 2 * elements, "bwd")._replace(dtype=dtype),) if dtype == "fp8" and s.arch in EARLIER else ()


def norm(s: Shape, width: int, tokens: int, direction: str = "fwd") -> Kernel:
    """A norm over `width` features: read and write forward; read input and gradient, write gradient backward."""
    return moved("norm", (4 if direction == "fwd" else 6) * tokens * width, direction)


def residual(s: Shape, direction: str = "fwd") -> Kernel:
    """Add to the residual stream, with bias and dropout where the model has them; backward adds the gradients of the two branches."""
    masks = 1 if s.model.dropout else 0
    return moved("residual", (6 + (masks if direction == "fwd" else 4 * masks)) * s.shard * s.model.hidden, direction)


def rope(elements: int, fused: bool, direction: str = "fwd", interleaved: bool = False) -> Kernel:
    """Rotate `elements` features of queries and keys: read and write them once, or as PyTorch's separate kernels.

    Bytes of these: times cosine 4, other half negated and joined 6, times sine 4, sum 6, joined with what is not rotated 4; backward two
    products 4 each, halves apart 6, sum 6, slice 6. Features in pairs (latent attention) are put in order first: 4, backward 12.
    Source: Megatron-Core `models/common/embeddings/rope_utils.py`.
    """
    if fused:
        return moved("rope", 4 * elements, direction)
    apart = (24, 4) if direction == "fwd" else (26, 12)
    return moved("rope", (apart[0] + apart[1] * interleaved) * elements, direction)


def activation(s: Shape, rows: int, width: int, direction: str = "fwd") -> Kernel:
    """The MLP's activation over `rows` x `width` outputs."""
    gated = s.model.gated
    per_element = {("fwd", True): 6, ("bwd", True): 10, ("fwd", False): 4, ("bwd", False): 6}[direction, gated]
    return moved("swiglu" if gated else "gelu", per_element * rows * width, direction)


def gate(s: Shape, rows: int, direction: str = "fwd") -> tuple[Kernel, ...]:
    """From the up to the down projection of the experts: clamping of both halves and putting them together where the model has it, and the
    activation; nothing where the GEMMs do it. Source: Megatron-Core `fusions/fused_bias_geglu.py`.
    """
    if s.training.kernels.fused_experts:
        return ()
    width, one = s.expert_ffn, activation(s, rows, s.expert_ffn, direction)
    if s.model.activation != "clamped_swiglu":
        return (one,)
    clamp = moved("clamp", (16 if direction == "fwd" else 20) * rows * width, direction)
    return (clamp, one) if direction == "fwd" else (one, clamp)


def expert_bias(s: Shape, rows: int, direction: str = "fwd") -> tuple[Kernel, ...]:
    """The bias of the down projection times the router's probability, in 32 bits, added expert by expert, joined and cast; backward its
    gradients and those of the probabilities. Source: Megatron-Core `TEGroupedMLP._apply_bias`.

    Bytes per output forward: product 4, sum 2 + 4 + 4, joining 8, cast 6; backward: cast 6, gradient of the sum 6 and joining its parts 4,
    two products 8 each and two sums 4 each.
    """
    if not s.model.bias or s.training.kernels.fused_experts:
        return ()
    return (moved("expert_bias", (28 if direction == "fwd" else 40) * rows * s.model.hidden, direction)._replace(groups=s.local_experts),)


def bias_grad(tokens: int, width: int) -> Kernel:
    """Sum a gradient over tokens."""
    return moved("memory", ELEMENT * tokens * width, "bwd")


@cache
def attention(
    batch: int, seq_q: int, seq_kv: int, heads: int, kv_heads: int, dim: int, dim_v: int, causal: bool, direction: str = "fwd"
) -> Kernel:
    """Flash attention over one block of queries and keys."""
    return Kernel(
        "attention",
        direction,
        batch=batch,
        seq_q=seq_q,
        seq_kv=seq_kv,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        head_dim_v=dim_v,
        causal=causal,
    )


def self_attention(
    s: Shape, seq_q: int, seq_kv: int, heads: int, kv_heads: int, causal: bool, window: int, direction: str
) -> tuple[Kernel, ...]:
    """Attention of the model over one block, flash or unfused; a window turns it into blocks of window x window."""
    m, batch = s.model, s.training.micro_batch
    if window and causal and window < seq_kv:
        batch, seq_q, seq_kv, causal = batch * -(-seq_q // window), window, window, False
    if s.training.kernels.attention == "flash":
        return (attention(batch, seq_q, seq_kv, heads, kv_heads, m.dim, m.dim_v, causal, direction),)
    return _unfused(s, batch, seq_q, seq_kv, heads, direction)


def _unfused(s: Shape, batch: int, seq_q: int, seq_kv: int, heads: int, direction: str) -> tuple[Kernel, ...]:
    """Scores, softmax with mask, dropout, and values as separate kernels over the full square."""
    scores = batch * heads * seq_q * seq_kv
    many = batch * heads
    drop = (moved("memory", 5 * scores, direction),) if s.model.dropout else ()
    one = grouped(many * seq_q, seq_kv, s.model.dim, many, "bf16")._replace(batch=many)
    two = grouped(many * seq_q, s.model.dim_v, seq_kv, many, "bf16")._replace(batch=many)
    if direction == "fwd":
        return (one, moved("softmax", 4 * scores), *drop, two)
    back = [
        k._replace(direction=d, m=g.m, n=g.n, k=g.k)
        for k in (two, one)
        for d in ("dgrad", "wgrad")
        for g in (gemm(k.m, k.n, k.k, "bf16", d),)
    ]
    return (*back[:2], *drop, moved("softmax", 6 * scores, "bwd"), *back[2:])
