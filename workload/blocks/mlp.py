"""The dense MLP half of a layer: norm, up projection, activation, down projection, residual. Source: Megatron-Core `transformer/mlp.py`."""

from workload.blocks.again import norm_bytes, recomputed, renorm
from workload.linear import column, column_backward, row, row_backward
from workload.ops import ELEMENT, activation, norm, residual
from workload.params import Param, of_linear, of_norm
from workload.shape import Shape
from workload.tape import Tape


def up(s: Shape) -> int:
    """Columns of the up projection over the width of the MLP."""
    return 2 if s.model.gated else 1


def params(s: Shape) -> list[Param]:
    """Parameters in order of registration."""
    m = s.model
    first = of_norm(s, "fc1", m.hidden) + of_linear(s, "fc1", up(s) * s.ffn, m.hidden, m.bias)
    return first + of_linear(s, "fc2", m.hidden, s.ffn, m.bias, replicated_bias=True)


def _saved(s: Shape) -> tuple[int, int, int, int]:
    """Bytes kept: norm input and output, result of the up projection, result of the activation, dropout mask."""
    half = ELEMENT * s.tokens * s.ffn
    return norm_bytes(s), up(s) * half, s.gemm_input(s.tokens * s.ffn), s.shard * s.model.hidden if s.model.dropout else 0


def forward(tape: Tape, s: Shape, layer: int) -> None:
    """Record the forward pass."""
    if recomputed(s, "mlp"):
        tape.forget(lambda: _inside(tape, s), keep=s.shard_bytes)
    else:
        _inside(tape, s)
    tape.compute(residual(s), keep=_saved(s)[3], label="mlp residual")


def _inside(tape: Tape, s: Shape) -> None:
    m = s.model
    normed, inner, active, _ = _saved(s)
    tape.compute(norm(s, m.hidden, s.shard), keep=normed, label="mlp norm")
    column(tape, s, "fc1", up(s) * s.ffn, m.hidden, keep=inner)
    tape.compute(activation(s, s.tokens, s.ffn), keep=active)
    row(tape, s, "fc2", m.hidden, s.ffn)


def backward(tape: Tape, s: Shape, layer: int) -> None:
    """Record the backward pass."""
    m, half = s.model, ELEMENT * s.tokens * s.ffn
    normed, inner, active, mask = _saved(s)
    tape.compute(free=mask, temp=s.shard_bytes)
    if recomputed(s, "mlp"):
        tape.again(lambda: _inside(tape, s), free=s.shard_bytes)
    row_backward(tape, s, "fc2", m.hidden, s.ffn, free=active, temp=s.shard_bytes + half)
    tape.compute(activation(s, s.tokens, s.ffn, "bwd"), temp=s.shard_bytes + half + inner)
    renorm(tape, s)
    column_backward(tape, s, "fc1", up(s) * s.ffn, m.hidden, free=inner, temp=s.shard_bytes + inner)
    tape.compute(norm(s, m.hidden, s.shard, "bwd"), residual(s, "bwd"), free=normed, temp=2 * s.shard_bytes, label="mlp norm")


def shapes(s: Shape) -> list[tuple[int, int]]:
    """(outputs, inputs) of the linear weights."""
    return [(up(s) * s.ffn, s.model.hidden), (s.model.hidden, s.ffn)]
