"""Attention, forward and backward alone, by the library that TransformerEngine picks on the architecture where it can be had.

From Hopper on that is cuDNN, before it FlashAttention 2; PyTorch holds both behind `scaled_dot_product_attention`, and the flash-attn
package goes before its own copy. A causal mask aligns the ends of queries and keys (with fewer queries than keys: the last chunks of a
sequence cut over a context-parallel group). flash-attn does so by itself; `is_causal` of PyTorch aligns the starts, so there the mask is
`causal_lower_right`, which FlashAttention and the memory-efficient kernel know and cuDNN's is not asked for. No way writes the scores to
memory. Backward runs through a kept graph. Sources: TransformerEngine `attention/dot_product_attention/utils.py`, PyTorch
`torch.nn.attention.bias`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from compute.kernels import Kernel
from compute.ways import Way

Forward = Callable[[Any, Any, Any], Any]
"""From queries, keys and values (batch, sequence, heads, head dim) to the output in the same order."""


def attention(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """Attention over `kernel.seq_q` queries and `kernel.seq_kv` keys, with grouped heads and values of another width where it has them."""
    shapes = (
        (kernel.seq_q, kernel.heads, kernel.head_dim),
        (kernel.seq_kv, kernel.kv_heads, kernel.head_dim),
        (kernel.seq_kv, kernel.kv_heads, kernel.head_dim_v or kernel.head_dim),
    )
    inputs = tuple(machine.random(kernel.batch, *shape) for shape in shapes)
    for how, library, forward in _forwards(machine, kernel):
        if kernel.direction == "fwd":
            yield Way(how, forward, inputs, library)
        else:
            yield Way(how, Backward(forward), (*inputs, machine.random(kernel.batch, *shapes[0][:2], shapes[2][2])), library)


class Backward:
    """Gradients of queries, keys and values; the first call runs the forward pass, whose graph is kept."""

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        self.out: Any = None

    def __call__(self, q: Any, k: Any, v: Any, gradient: Any) -> tuple[Any, ...]:
        if self.out is None:
            self.inputs = tuple(x.detach().requires_grad_() for x in (q, k, v))
            self.out = self.forward(*self.inputs)
        return torch.autograd.grad(self.out, self.inputs, gradient, retain_graph=True)


def _forwards(machine: Any, kernel: Kernel) -> Iterator[tuple[str, str, Forward]]:
    if machine.device == "cpu":
        yield "scaled_dot_product_attention", "", _sdpa(kernel, None)
        return
    cudnn = "scaled_dot_product_attention, cuDNN", "cudnn", _sdpa(kernel, SDPBackend.CUDNN_ATTENTION)
    own_corner = kernel.causal and kernel.seq_q != kernel.seq_kv
    if machine.capability >= (9, 0) and not own_corner:
        yield cudnn
    try:
        from flash_attn import flash_attn_func  # type: ignore[import-not-found]
    except ImportError:
        pass
    else:
        yield "flash-attn", "flash-attn 2", lambda q, k, v: flash_attn_func(q, k, v, causal=kernel.causal)
    yield "scaled_dot_product_attention, FlashAttention", "flash-attn 2", _sdpa(kernel, SDPBackend.FLASH_ATTENTION)
    if machine.capability < (9, 0) and not own_corner:
        yield cudnn
    yield "scaled_dot_product_attention, memory-efficient", "memory-efficient", _sdpa(kernel, SDPBackend.EFFICIENT_ATTENTION)


def _sdpa(kernel: Kernel, backend: Any) -> Forward:
    """PyTorch's attention, with one of its backends or whichever it picks."""
    attend = torch.nn.functional.scaled_dot_product_attention
    how: dict[str, Any] = {"enable_gqa": kernel.heads != kernel.kv_heads, "is_causal": kernel.causal}
    if kernel.causal and kernel.seq_q != kernel.seq_kv:
        how |= {"is_causal": False, "attn_mask": causal_lower_right(kernel.seq_q, kernel.seq_kv)}

    def forward(q: Any, k: Any, v: Any) -> Any:
        swapped = (x.transpose(1, 2) for x in (q, k, v))
        if backend is None:
            return attend(*swapped, **how).transpose(1, 2)
        with sdpa_kernel(backend):
            return attend(*swapped, **how).transpose(1, 2)

    return forward
