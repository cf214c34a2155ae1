"""Both ends of a model: word embedding, and the vocabulary-parallel loss in the variant that the run takes.

Every kernel of the loss in a run stands for an equal share of its bytes (its parts lie between all-reduces), so each is timed as that
share of the logits going through all parts. Sources: Megatron-Core `tensor_parallel/cross_entropy.py`, `fusions/fused_cross_entropy.py`.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from compute.kernels import Kernel
from compute.operations.elementwise import fused, shape
from compute.ways import LeftOut, Way

UNFUSED, FUSED, BACK = 38, 26, 14
"""Bytes per logit of the loss: operation by operation, with its pointwise chains merged, and backward of either."""


def embedding(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """Rows looked up: 4. Backward adds the gradient to the touched rows of the fp32 gradient of the table: 8, and 2 to read it."""
    backward = kernel.direction == "bwd"
    rows, width = shape(kernel.nbytes, 8 if backward else 4)
    words = torch.randint(0, 4 * rows, (rows,), device=machine.device)
    if backward:
        return fused(machine, add_rows, machine.random(4 * rows, width, dtype="fp32"), words, machine.random(rows, width))
    return iter([Way("embedding", functional.embedding, (words, machine.random(4 * rows, width)))])


def add_rows(table: Any, words: Any, gradient: Any) -> Any:
    """Add 16-bit rows to an fp32 table."""
    return table.index_add_(0, words, gradient.to(table.dtype))


def cross_entropy(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """The loss over a share of the logits."""
    if machine.loss == "te":
        raise LeftOut("the loss of kernels.cross_entropy: te is a Triton kernel of TransformerEngine")
    backward, merged = kernel.direction == "bwd", machine.loss == "fused"
    tokens, vocabulary = shape(kernel.nbytes, BACK if backward else FUSED if merged else UNFUSED)
    target = torch.randint(0, vocabulary, (tokens,), device=machine.device)
    inputs: tuple[Any, ...] = machine.random(tokens, vocabulary), target
    if backward:
        inputs = inputs[0].float().softmax(-1), target, torch.ones(tokens, device=machine.device)
    if merged:
        compiled = [machine.compiled(part) for part in ((steps_back,) if backward else (maximum, exponentials, share))]
        how = compiled[0] if backward else lambda logits, target: loss_of(logits, target, *compiled)
        yield Way("fused loss, torch.compile", how, inputs)
    yield Way(f"{machine.loss} loss, PyTorch operation by operation", steps_back if backward else steps, inputs)


def steps(logits: Any, target: Any) -> tuple[Any, Any]:
    """Loss and softmax: cast 6, maximum 4, subtract 8, exponential 8, sum 4, divide 8 bytes per logit."""
    return loss_of(logits, target, maximum, exponentials, share)


def loss_of(logits: Any, target: Any, first: Any, second: Any, third: Any) -> tuple[Any, Any]:
    """The three parts of the loss, between which the tensor-parallel group sums up; the softmax is left for backward."""
    wide, top = first(logits)
    wanted, exponential, total = second(wide, top, target)
    return total.log() - wanted, third(exponential, total)


def maximum(logits: Any) -> tuple[Any, Any]:
    """Logits in 32 bits and the largest of every row."""
    wide = logits.float()
    return wide, wide.amax(-1)


def exponentials(wide: Any, top: Any, target: Any) -> tuple[Any, Any, Any]:
    """Logit of the target, exponentials in place, and their sum; relative to the largest logit."""
    wide.sub_(top[:, None])
    wanted = wide.gather(1, target[:, None])[:, 0].clone()
    wide.exp_()
    return wanted, wide, wide.sum(-1)


def share(exponential: Any, total: Any) -> Any:
    """Softmax in place."""
    return exponential.div_(total[:, None])


def steps_back(softmax: Any, target: Any, gradient: Any) -> Any:
    """Gradient of the logits in 16 bits: the softmax less one at the target, scaled (8) and cast (6)."""
    softmax[torch.arange(len(target), device=target.device), target] -= 1
    return softmax.mul_(gradient[:, None]).to(torch.bfloat16)
