"""The kernels that a layer is made of, with the bytes that memory-bound ones move.

Bytes are those of fused kernels with 16-bit activations: a kernel reads its inputs and writes its outputs once. Sizes are of one GPU.
GEMMs are M tokens x N out x K in; dgrad is (M, K, N), wgrad (N, K, M) and adds to the main gradient.
"""

from functools import cache

from compute.api import Kernel
from netsim.config.model import Model
from workload.shape import ELEMENT, Shape

CAST_BYTES = 4
"""Bytes per element of a cast to 8 bits: read 2, write a row-wise and a column-wise copy."""


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


def casts(elements: int, dtype: str, groups: int = 1) -> tuple[Kernel, ...]:
    """Cast to the precision of a GEMM, expert by expert in a grouped one; nothing where it is that of the activations."""
    return () if dtype in ("bf16", "fp16", "fp32") else (moved("cast", CAST_BYTES * elements)._replace(groups=groups, dtype=dtype),)


def norm(s: Shape, width: int, tokens: int, direction: str = "fwd") -> Kernel:
    """A norm over `width` features: read and write forward; read input and gradient, write gradient backward."""
    return moved("norm", (4 if direction == "fwd" else 6) * tokens * width, direction)


def residual(s: Shape, direction: str = "fwd") -> Kernel:
    """Add to the residual stream, with bias and dropout where the model has them; backward adds the gradients of the two branches."""
    masks = 1 if s.model.dropout else 0
    return moved("residual", (6 + (masks if direction == "fwd" else 4 * masks)) * s.shard * s.model.hidden, direction)


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
    """
    if not s.model.bias or s.training.kernels.fused_experts:
        return ()
    return (moved("expert_bias", (20 if direction == "fwd" else 36) * rows * s.model.hidden, direction)._replace(groups=s.local_experts),)


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
