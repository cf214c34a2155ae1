"""Multi-head latent attention: queries and keys with values are projected down to latents, normalised, and up again.

The down projections are held by every tensor-parallel rank and work on its own tokens; the normed latents are gathered for the up
projections, the rotary part of the key separately. Source: DeepSeek-V2, arXiv 2405.04434; Megatron-Core
`transformer/multi_latent_attention.py`.
"""

from workload.blocks import core
from workload.blocks.again import norm_bytes, recomputed, renorm
from workload.linear import row, row_backward
from workload.ops import ELEMENT, casts, gemm, moved, norm, residual, rope, wgrad
from workload.params import Param, of_linear, of_norm
from workload.shape import Shape
from workload.tape import Tape


def _widths(s: Shape) -> tuple[int, int]:
    """Columns of the up projections of queries, and of keys (without rotary part) and values."""
    return s.heads * s.model.dim, s.heads * (s.model.nope_dim + s.model.v_dim)


def params(s: Shape) -> list[Param]:
    """Parameters in order of registration."""
    m = s.model
    q_up, kv_up = _widths(s)
    out = of_norm(s, "down", m.hidden) + of_linear(s, "proj", m.hidden, s.heads * m.v_dim)
    if m.q_rank:
        out += [Param("down", m.q_rank * m.hidden, replicated=True), *of_norm(s, "up", m.q_rank), Param("up", q_up * m.q_rank)]
    else:
        out += [Param("up", q_up * m.hidden)]
    out += [
        Param("down", (m.kv_rank + m.rope_dim) * m.hidden, replicated=True),
        *of_norm(s, "up", m.kv_rank),
        Param("up", kv_up * m.kv_rank),
    ]
    return out


def _down(s: Shape, *directions: str) -> list:
    m = s.model
    widths = ([m.q_rank] if m.q_rank else []) + [m.kv_rank + m.rope_dim]
    return [gemm(s.shard, n, m.hidden, s.gemm_dtype, d) for n in widths for d in directions]


def _up(s: Shape, *directions: str) -> list:
    q_up, kv_up = _widths(s)
    m = s.model
    pairs = [(q_up, m.q_rank or m.hidden), (kv_up, m.kv_rank)]
    return [gemm(s.tokens, n, k, s.gemm_dtype, d) for n, k in pairs for d in directions]


def _latents(s: Shape, direction: str) -> list:
    ranks = ([s.model.q_rank] if s.model.q_rank else []) + [s.model.kv_rank]
    return [norm(s, r, s.shard, direction) for r in ranks]


def _rope(s: Shape, direction: str) -> list:
    """Rotate the rotary parts and put queries and keys together."""
    width = s.heads * s.model.rope_dim + s.model.rope_dim
    rotated = rope(s.tokens * width, s.training.kernels.rope == "fused", direction, interleaved=True)
    return [rotated, moved("memory", 4 * s.tokens * s.heads * s.model.dim, direction)]


def _gathers(tape: Tape, s: Shape, op: str, suffix: str) -> None:
    """Move latents and the rotary key between sequence shards and the whole sequence."""
    if s.sp:
        sizes = {"q_latent": s.model.q_rank or s.model.hidden, "kv_latent": s.model.kv_rank, "k_rope": s.model.rope_dim}
        for name, width in sizes.items():
            tape.comm("tp", op, ELEMENT * s.tokens * width, f"tp.{op}.{name}{suffix}")


def _saved(s: Shape) -> tuple[int, int, int]:
    """Bytes kept: norm input and output, latents before and after their norms, masks."""
    m = s.model
    latents = ELEMENT * s.shard * (m.q_rank + m.kv_rank + m.rope_dim) + s.gemm_input(s.shard * (m.q_rank + m.kv_rank))
    return norm_bytes(s), latents, s.shard * m.hidden if m.dropout else 0


def _project(tape: Tape, s: Shape) -> None:
    tape.compute(*casts(s, s.tokens * (s.model.q_rank + s.model.kv_rank), s.gemm_dtype), *_up(s, "fwd"), *_rope(s, "fwd"), label="up")
    tape.mark("up")


def forward(tape: Tape, s: Shape, layer: int) -> None:
    """Record the forward pass."""
    m = s.model
    normed, latents, mask = _saved(s)
    tape.compute(norm(s, m.hidden, s.shard), keep=normed, label="attention norm")
    tape.compute(*casts(s, s.shard * m.hidden, s.gemm_dtype), *_down(s, "fwd"), *_latents(s, "fwd"), keep=latents, label="down")
    tape.mark("down")
    _gathers(tape, s, "all_gather", "")
    _project(tape, s)
    if recomputed(s, "core_attn"):
        tape.forget(lambda: core.forward(tape, s, layer), keep=core.inputs(s))
    elif recomputed(s, "mla_up_proj"):
        tape.forget(lambda: core.forward(tape, s, layer), keep=core.saved(s) - core.inputs(s))
    else:
        core.forward(tape, s, layer)
    row(tape, s, "proj", m.hidden, s.heads * m.v_dim)
    tape.compute(residual(s), keep=mask, label="attention residual")


def backward(tape: Tape, s: Shape, layer: int) -> None:
    """Record the backward pass."""
    m = s.model
    normed, latents, mask = _saved(s)
    out = ELEMENT * s.tokens * s.heads * m.v_dim
    tape.compute(temp=s.shard_bytes, free=mask)
    row_backward(tape, s, "proj", m.hidden, s.heads * m.v_dim, temp=s.shard_bytes + out)
    if recomputed(s, "core_attn"):
        tape.again(lambda: core.forward(tape, s, layer), free=core.inputs(s))
    elif recomputed(s, "mla_up_proj"):
        tape.again(lambda: _project(tape, s))
        tape.compute(keep=core.inputs(s))
    core.backward(tape, s, layer, temp=s.shard_bytes + out)
    tape.compute(*_rope(s, "bwd"), *_up(s, "dgrad"), temp=s.shard_bytes + 2 * core.inputs(s), label="up")
    tape.weights("up", *wgrad(s, *_up(s, "wgrad")))
    _gathers(tape, s, "reduce_scatter", "_grad")
    renorm(tape, s)
    tape.compute(*_latents(s, "bwd"), *_down(s, "dgrad"), temp=2 * s.shard_bytes, label="down")
    tape.weights("down", *wgrad(s, *_down(s, "wgrad")), free=latents)
    tape.compute(norm(s, m.hidden, s.shard, "bwd"), residual(s, "bwd"), free=normed, temp=2 * s.shard_bytes, label="attention norm")


def shapes(s: Shape) -> list[tuple[int, int]]:
    """(outputs, inputs) of the linear weights."""
    m = s.model
    q_up, kv_up = _widths(s)
    query = [(m.q_rank, m.hidden), (q_up, m.q_rank)] if m.q_rank else [(q_up, m.hidden)]
    return [*query, (m.kv_rank + m.rope_dim, m.hidden), (kv_up, m.kv_rank), (m.hidden, s.heads * m.v_dim)]
