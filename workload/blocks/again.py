"""Selective recomputation: which modules run again in the backward pass. Source: Megatron-Core `recompute_modules`.

core_attn, mlp and moe are checkpointed regions: their inputs are kept. layernorm, mla_up_proj and moe_act discard their output after its
consumer's forward and restore it just before the consumer's backward.
"""

from workload.ops import norm
from workload.shape import Shape
from workload.tape import Tape


def recomputed(s: Shape, module: str) -> bool:
    """Return whether a module is recomputed selectively."""
    return s.training.recompute.granularity == "selective" and module in s.training.recompute.modules


def norm_bytes(s: Shape) -> int:
    """Bytes that a norm in front of a linear layer keeps: its input, its output as the GEMM takes it, and statistics."""
    output = 0 if recomputed(s, "layernorm") else s.gemm_input(s.shard * s.model.hidden)
    return s.shard_bytes + output + 4 * s.shard


def renorm(tape: Tape, s: Shape) -> None:
    """Restore a discarded norm output."""
    if recomputed(s, "layernorm"):
        tape.again(lambda: tape.compute(norm(s, s.model.hidden, s.shard), temp=s.shard_bytes))
