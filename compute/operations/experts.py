"""Around the experts of a mixture: router, permutation, clamping, bias. Chains of plain PyTorch operations, as Megatron-Core runs them.

What a chain moves beyond the stated bytes (index tensors, zeroed results) is part of its time. Sources: Megatron-Core
`transformer/moe/moe_utils.py`, `fusions/fused_bias_geglu.py`, `TEGroupedMLP._apply_bias`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from compute.kernels import Kernel
from compute.operations.elementwise import shape
from compute.ways import Way

TOP_K, EXPERTS = 8, 128
"""Experts of a token, and experts to choose from (as in Qwen3; a kernel holds only the bytes)."""
LIMIT = 7.0
"""Where gpt-oss clamps."""


def backward_of(forward: Callable[..., Any], *inputs: Any, wanted: tuple[int, ...] = (0,)) -> Callable[..., Any]:
    """Gradients of the inputs `wanted`, from the gradient of the output alone: the graph of one forward pass is kept."""
    leaves = tuple(x.detach().requires_grad_() if i in wanted else x for i, x in enumerate(inputs))
    out = forward(*leaves)
    return lambda gradient, *_: torch.autograd.grad(out, tuple(leaves[i] for i in wanted), gradient, retain_graph=True)


def router(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """Probabilities, choice and counts of tokens: 12 bytes per token and expert."""
    tokens = max(1, round(kernel.nbytes / (12 * EXPERTS)))
    logits = machine.random(tokens, EXPERTS)
    if kernel.direction == "bwd":
        call = backward_of(lambda x: routed(x)[0], logits)
        yield Way("PyTorch operation by operation", call, (machine.random(tokens, EXPERTS, dtype="fp32"), logits))
    else:
        yield Way("PyTorch operation by operation", routed, (logits,))


def routed(logits: Any) -> tuple[Any, Any, Any]:
    """Probabilities of the chosen experts, 0 elsewhere; which were chosen; how many tokens each expert has."""
    scores = torch.softmax(logits, -1, dtype=torch.float32)
    top, chosen = scores.topk(TOP_K, -1)
    kept = torch.zeros_like(scores).scatter(1, chosen, top)
    where = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, chosen, True)
    return kept, where, where.sum(0)


def permute(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """Rows in another order: 4 both ways, for the way back is a permutation too."""
    rows, width = shape(kernel.nbytes, 4)
    order = torch.randperm(rows, device=machine.device)
    yield Way("index_select", lambda x, order: x.index_select(0, order), (machine.random(rows, width), order))


def unpermute(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """Rows times their probabilities, added up by token: 6 per row and 2 per token both ways."""
    rows, width = shape(kernel.nbytes, 6 + 2 / TOP_K)
    tokens = max(1, rows // TOP_K)
    token = torch.randperm(rows, device=machine.device) % tokens
    x, probs = machine.random(rows, width), torch.rand(rows, 1, device=machine.device).to(torch.bfloat16)
    if kernel.direction == "bwd":
        call = backward_of(lambda x, probs: summed(x, probs, token, tokens), x, probs, wanted=(0, 1))
        yield Way("PyTorch operation by operation", call, (machine.random(tokens, width), x, probs, token))
    else:
        yield Way("PyTorch operation by operation", lambda x, probs, token: summed(x, probs, token, tokens), (x, probs, token))


def summed(x: Any, probs: Any, token: Any, tokens: int) -> Any:
    """Weighted rows, added up by token."""
    return x.new_zeros(tokens, x.shape[1]).index_add(0, token, x * probs)


def clamp(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """Both halves clamped and put together: 16 forward, 20 backward."""
    backward = kernel.direction == "bwd"
    rows, width = shape(kernel.nbytes, 20 if backward else 16)
    x = machine.random(rows, 2 * width)
    if backward:
        yield Way("PyTorch operation by operation", backward_of(clamped, x), (machine.random(rows, 2 * width), x))
    else:
        yield Way("PyTorch operation by operation", clamped, (x,))


def clamped(x: Any) -> Any:
    """The gate from above, the other half from both sides."""
    a, b = x.chunk(2, -1)
    return torch.cat((a.clamp(max=LIMIT), b.clamp(min=-LIMIT, max=LIMIT)), -1)


def expert_bias(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """Bias times probability added expert by expert in 32 bits, joined and cast: 20 forward, 36 backward."""
    backward = kernel.direction == "bwd"
    rows, width = shape(kernel.nbytes / kernel.groups, 36 if backward else 20)
    x, probs = machine.random(kernel.groups * rows, width), torch.rand(kernel.groups * rows, 1, device=machine.device)
    biases = machine.random(kernel.groups, width)
    if backward:
        call = backward_of(biased, x, probs, biases, wanted=(0, 1, 2))
        yield Way("PyTorch operation by operation", call, (torch.randn_like(x), x, probs, biases))
    else:
        yield Way("PyTorch operation by operation", biased, (x, probs, biases))


def biased(x: Any, probs: Any, biases: Any) -> Any:
    """Rows of all experts, in equal shares."""
    parts = zip(x.chunk(len(biases)), probs.chunk(len(biases)), biases, strict=True)
    return torch.cat([rows + own * probability for rows, probability, own in parts]).to(x.dtype)
