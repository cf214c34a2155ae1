"""A multi-token-prediction module: norms of the hidden state and of the next token's embedding, a projection of both, a layer, the shared
head.

Source: DeepSeek-V3, arXiv 2412.19437, section 2.2; Megatron-Core `transformer/multi_token_prediction.py`.
"""

from workload.blocks import embedding, head, layer
from workload.linear import column, column_backward
from workload.ops import norm
from workload.params import Param, of_linear, of_norm
from workload.shape import Shape
from workload.tape import Tape


def params(s: Shape, index: int) -> list[Param]:
    """Parameters in order of registration."""
    h = s.model.hidden
    return of_norm(s, "mtp", h) * 2 + of_linear(s, "mtp", h // s.lay.tp, 2 * h) + layer.params(s, index) + of_norm(s, "mtp_norm", h)


def forward(tape: Tape, s: Shape, index: int) -> None:
    """Record the forward pass."""
    embedding.forward(tape, s)
    h = s.model.hidden
    tape.compute(norm(s, h, s.shard), norm(s, h, s.shard), keep=4 * s.shard_bytes, label="mtp")
    column(tape, s, "mtp", h // s.lay.tp, 2 * h, normed=False)
    tape.comm("tp", "all_gather", s.full_bytes, "tp.all_gather.mtp_output")
    layer.forward(tape, s, index)
    normed, logits = head.saved(s)
    tape.compute(norm(s, h, s.shard), keep=normed, label="mtp")
    tape.mark("mtp_norm")
    head.project(tape, s, logits)


def backward(tape: Tape, s: Shape, index: int) -> None:
    """Record the backward pass."""
    normed, logits = head.saved(s)
    h = s.model.hidden
    head.project_backward(tape, s, logits)
    tape.compute(norm(s, h, s.shard, "bwd"), free=normed, temp=s.shard_bytes, label="mtp")
    tape.mark("mtp_norm")
    layer.backward(tape, s, index)
    column_backward(tape, s, "mtp", h // s.lay.tp, 2 * h)
    tape.compute(norm(s, h, s.shard, "bwd"), norm(s, h, s.shard, "bwd"), free=4 * s.shard_bytes, temp=s.shard_bytes, label="mtp")
    embedding.backward(tape, s)
