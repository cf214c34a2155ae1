"""The attention half of a layer: norm, projection of queries, keys and values, rotary embedding, core attention, output projection,
residual.

Multi-head, grouped-query and multi-query attention; latent attention is in mla.py. Source: Megatron-Core `transformer/attention.py`.
"""

from workload.blocks import core
from workload.blocks.again import norm_bytes, recomputed, renorm
from workload.linear import column, column_backward, row, row_backward
from workload.ops import ELEMENT, norm, residual, rope
from workload.params import Param, of_linear, of_norm
from workload.shape import Shape
from workload.tape import Tape


def params(s: Shape) -> list[Param]:
    """Parameters in order of registration."""
    m = s.model
    out = of_linear(s, "proj", m.hidden, s.heads * m.dim_v, m.bias, replicated_bias=True)
    out += of_norm(s, "qkv", m.hidden) + of_linear(s, "qkv", s.qkv_width, m.hidden, m.bias or m.qkv_bias)
    return out + ([Param("qkv", m.dim, replicated=True)] * 2 if m.qk_norm else [])


def _rope(s: Shape, direction: str) -> list:
    width, how = (s.heads + s.kv_heads) * s.model.dim, s.model.position
    fused = how == "rope" and s.training.kernels.rope == "fused"
    kernels = [rope(s.tokens * width, fused, direction)] if how in ("rope", "yarn") else []
    return kernels + ([norm(s, width, s.tokens, direction)] if s.model.qk_norm else [])


def _saved_masks(s: Shape) -> int:
    return s.shard * s.model.hidden if s.model.dropout else 0


def _saved_qk_norm(s: Shape) -> int:
    return ELEMENT * s.tokens * (s.heads + s.kv_heads) * s.model.dim if s.model.qk_norm else 0


def forward(tape: Tape, s: Shape, layer: int) -> None:
    """Record the forward pass."""
    m = s.model
    tape.compute(norm(s, m.hidden, s.shard), keep=norm_bytes(s), label="attention norm")
    column(tape, s, "qkv", s.qkv_width, m.hidden)
    tape.compute(*_rope(s, "fwd"), keep=_saved_qk_norm(s), temp=2 * ELEMENT * s.tokens * s.qkv_width)
    if recomputed(s, "core_attn"):
        tape.forget(lambda: core.forward(tape, s, layer), keep=core.inputs(s))
    else:
        core.forward(tape, s, layer)
    row(tape, s, "proj", m.hidden, s.heads * m.dim_v)
    tape.compute(residual(s), keep=_saved_masks(s), label="attention residual")


def backward(tape: Tape, s: Shape, layer: int) -> None:
    """Record the backward pass."""
    m, width = s.model, ELEMENT * s.tokens * s.qkv_width
    tape.compute(temp=s.shard_bytes, free=_saved_masks(s))
    row_backward(tape, s, "proj", m.hidden, s.heads * m.dim_v, temp=s.shard_bytes + ELEMENT * s.tokens * s.heads * m.dim_v)
    if recomputed(s, "core_attn"):
        tape.again(lambda: core.forward(tape, s, layer), free=core.inputs(s))
    core.backward(tape, s, layer, temp=s.shard_bytes + ELEMENT * s.tokens * s.heads * m.dim_v)
    tape.compute(*_rope(s, "bwd"), temp=s.shard_bytes + 2 * width, free=_saved_qk_norm(s))
    renorm(tape, s)
    column_backward(tape, s, "qkv", s.qkv_width, m.hidden, temp=s.shard_bytes + width)
    tape.compute(norm(s, m.hidden, s.shard, "bwd"), residual(s, "bwd"), free=norm_bytes(s), temp=2 * s.shard_bytes, label="attention norm")


def shapes(s: Shape) -> list[tuple[int, int]]:
    """(outputs, inputs) of the linear weights."""
    return [(s.qkv_width, s.model.hidden), (s.model.hidden, s.heads * s.model.dim_v)]
