"""Word and position embedding on the first chunk. Source: Megatron-Core `models/common/embeddings`.

Vocabulary-parallel lookups give partial sums: reduce-scattered where positions are rotary and sequence parallelism is on, all-reduced
otherwise (learned positions are added to the whole sequence before it is scattered).
"""

from workload.ops import ELEMENT, moved
from workload.params import Param
from workload.shape import Shape
from workload.tape import Tape


def params(s: Shape, tied: bool, positions: bool = True) -> list[Param]:
    """Parameters in order of registration."""
    m = s.model
    out = [Param("embedding", s.vocab // s.lay.tp * m.hidden, tied=tied)]
    if m.position == "learned" and positions:
        out.append(Param("embedding", (m.positions or s.training.sequence) * m.hidden))
    return out


def _mask(s: Shape) -> int:
    return s.shard * s.model.hidden if s.model.dropout else 0


def forward(tape: Tape, s: Shape) -> None:
    """Record the forward pass."""
    learned = s.model.position == "learned"
    if s.training.kernels.broadcast_inputs:
        for name in ("tokens", "positions"):
            tape.comm("tp", "broadcast", 8 * s.inputs, f"tp.broadcast.{name}")
    tape.compute(moved("embedding", 2 * s.full_bytes), keep=8 * s.tokens, temp=s.full_bytes, label="embedding")
    tape.mark("embedding")
    op = "reduce_scatter" if s.sp and not learned else "all_reduce"
    tape.comm("tp", op, s.full_bytes, f"tp.{op}.embedding")
    adds = [moved("residual", 3 * s.full_bytes)] if learned else []
    drops = [moved("memory", 5 * s.shard * s.model.hidden)] if s.model.dropout else []
    tape.compute(*adds, *drops, keep=_mask(s), label="embedding")


def backward(tape: Tape, s: Shape) -> None:
    """Record the backward pass: gather the gradient, add the touched rows to the main gradient."""
    drops = [moved("memory", 5 * s.shard * s.model.hidden, "bwd")] if s.model.dropout else []
    tape.compute(*drops, free=_mask(s) + 8 * s.tokens)
    if s.sp:
        tape.comm("tp", "all_gather", s.full_bytes, "tp.all_gather.embedding_grad")
    positions = [moved("embedding", 3 * s.full_bytes, "bwd")] if s.model.position == "learned" else []
    size = 4 * ELEMENT * s.tokens * s.model.hidden
    tape.compute(moved("embedding", size, "bwd"), *positions, temp=s.full_bytes, label="embedding")
    tape.mark("embedding")
