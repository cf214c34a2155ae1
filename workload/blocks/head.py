"""Final norm, output layer and vocabulary-parallel cross entropy on the last chunk. Source: Megatron-Core
`tensor_parallel/cross_entropy.py`.

Bytes per logit of the loss: unfused 38 forward and 14 backward (cast, max, subtract, exp, sum, divide as separate kernels),
TransformerEngine's fused kernel 4 and 4, Megatron's fused one 26 and 14 (its pointwise chains merged). The loss needs three small
all-reduces (maximum, target logit, sum of exponentials), fused two, the second of double size. Without TransformerEngine's kernel the
loss works in place on a 32-bit copy of the logits. The fused weight gradient of the output layer allocates a dummy of the weight's size
while it runs.
"""

from workload.linear import column_backward
from workload.ops import ELEMENT, gemm, moved, norm
from workload.params import Param, of_norm
from workload.shape import Shape
from workload.tape import Tape

LOGIT_BYTES = {"unfused": (38, 14), "fused": (26, 14), "te": (4, 4)}


def params(s: Shape, own: bool, tied: bool = False) -> list[Param]:
    """Parameters in order of registration; `own`: no other matrix of the stage serves as output layer; `tied`: it is a copy."""
    return of_norm(s, "final_norm", s.model.hidden) + ([Param("head", s.vocab // s.lay.tp * s.model.hidden, tied=tied)] if own else [])


def _logits(s: Shape) -> int:
    return s.tokens * s.vocab // s.lay.tp


def saved(s: Shape) -> tuple[int, int]:
    """Bytes kept: final norm input and output, and logits (16 bits with TransformerEngine's loss, else 32)."""
    return 2 * s.shard_bytes + 4 * s.shard, _logits(s) * (2 if s.training.kernels.cross_entropy == "te" else 4)


def forward(tape: Tape, s: Shape) -> None:
    """Record the forward pass with the loss."""
    normed, logits = saved(s)
    if s.training.kernels.broadcast_inputs:
        for name, size in (("labels", 8), ("loss_mask", 4)):
            tape.comm("tp", "broadcast", size * s.inputs, f"tp.broadcast.{name}")
    tape.compute(norm(s, s.model.hidden, s.shard), keep=normed, label="final norm")
    tape.mark("final_norm")
    project(tape, s, logits)


def project(tape: Tape, s: Shape, logits: int) -> None:
    """Output layer and loss."""
    how = s.training.kernels.cross_entropy
    if s.sp:
        tape.comm("tp", "all_gather", s.full_bytes, "tp.all_gather.head")
    product = gemm(s.tokens, s.vocab // s.lay.tp, s.model.hidden, s.plain_dtype)
    tape.compute(product, keep=logits, temp=s.full_bytes if s.sp else 0, label="head")
    tape.mark("head")
    sums = [("maximum", 4), ("target_and_sum", 8)] if how == "fused" else [("maximum", 4), ("target", 4), ("sum", 4)]
    part = LOGIT_BYTES[how][0] * _logits(s) // len(sums)
    for name, size in sums:
        tape.compute(moved("cross_entropy", part), temp=0 if how == "te" else ELEMENT * _logits(s), label="loss")
        tape.comm("tp", "all_reduce", size * s.tokens, f"tp.all_reduce.loss_{name}")
    tape.compute(moved("memory", 16 * s.tokens), label="loss")


def backward(tape: Tape, s: Shape) -> None:
    """Record the backward pass from the loss."""
    normed, logits = saved(s)
    project_backward(tape, s, logits)
    tape.compute(norm(s, s.model.hidden, s.shard, "bwd"), free=normed, temp=s.shard_bytes, label="final norm")
    tape.mark("final_norm")


def project_backward(tape: Tape, s: Shape, logits: int) -> None:
    """Backward of loss and output layer."""
    how = s.training.kernels.cross_entropy
    gradient = ELEMENT * _logits(s)
    matrix = ELEMENT * s.vocab // s.lay.tp * s.model.hidden
    loss = moved("cross_entropy", LOGIT_BYTES[how][1] * _logits(s), "bwd")
    tape.compute(loss, temp=0 if how == "te" else gradient, free=logits - gradient, label="loss")
    sizes = s.vocab // s.lay.tp, s.model.hidden
    column_backward(tape, s, "head", *sizes, s.plain_dtype, free=gradient, temp=s.full_bytes, wgrad_temp=matrix)
