"""Memory-bound kernels of every layer, in sizes that move the stated bytes: 16-bit rows of up to 4,096 features.

Where Megatron lets torch.compile fuse a function (`jit_fuser`), so does the first way here: one kernel that reads its inputs and writes
its outputs once. Without a compiler the same function runs operation by operation, moves more, and the row says so. Backward functions
are the formulas of the gradients, as Megatron writes them. Bytes per element stand beside each function. Sources: Megatron-Core
`fusions/` (bias-swiglu, bias-gelu), `models/common/embeddings/rope_utils.py`, TransformerEngine `context_parallel.py` (merging of partial
outputs).
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from compute.kernels import Kernel
from compute.ways import LeftOut, Way

aten = torch.ops.aten
WIDTH, ROWS = 4096, 64
"""Features of a row, halved until there are so many rows."""


def shape(nbytes: float, per_element: float) -> tuple[int, int]:
    """Rows and features of an operation that moves `per_element` bytes per element."""
    elements, width = nbytes / per_element, WIDTH
    while width > 16 and elements < ROWS * width:
        width //= 2
    return max(1, round(elements / width)), width


def fused(machine: Any, function: Callable[..., Any], *inputs: Any) -> Iterator[Way]:
    """One kernel by torch.compile, else operation by operation."""
    yield Way("torch.compile", machine.compiled(function), inputs)
    yield Way("PyTorch operation by operation", function, inputs)


def norm(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """RMSNorm, or LayerNorm where PyTorch has no kernel for that: 4 forward; 6 backward, the gradient of the weight included."""
    backward = kernel.direction == "bwd"
    rows, width = shape(kernel.nbytes, 6 if backward else 4)
    x, weight = machine.random(rows, width), machine.random(width)
    if backward:
        return _norm_back(machine.random(rows, width), x, weight)
    return iter(
        (
            Way("RMSNorm", lambda x, weight: aten._fused_rms_norm(x, [width], weight, 1e-5)[0], (x, weight)),
            Way("LayerNorm", lambda x, weight: functional.layer_norm(x, (width,), weight, weight), (x, weight)),
        )
    )


def _norm_back(gradient: Any, x: Any, weight: Any) -> Iterator[Way]:
    size = [x.shape[1]]
    scale = (x.float().pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()
    yield Way(
        "RMSNorm",
        lambda gradient, x, scale, weight: aten._fused_rms_norm_backward(gradient, x, size, scale, weight, [True] * 2),
        (gradient, x, scale, weight),
    )
    _, mean, scale = aten.native_layer_norm(x, size, weight, weight, 1e-5)
    yield Way(
        "LayerNorm",
        lambda gradient, x, mean, scale, w: aten.native_layer_norm_backward(gradient, x, size, mean, scale, w, w, [True] * 3),
        (gradient, x, mean, scale, weight),
    )


def swiglu(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """Swish of one half times the other: 6 forward, 10 backward."""
    backward = kernel.direction == "bwd"
    rows, width = shape(kernel.nbytes, 10 if backward else 6)
    x = machine.random(rows, 2 * width)
    return fused(machine, swiglu_back, machine.random(rows, width), x) if backward else fused(machine, swiglu_of, x)


def swiglu_of(x: Any) -> Any:
    """silu(a) b of x = (a, b)."""
    a, b = x.chunk(2, -1)
    return functional.silu(a) * b


def swiglu_back(gradient: Any, x: Any) -> Any:
    """Gradient of `swiglu_of`."""
    a, b = x.chunk(2, -1)
    gate = torch.sigmoid(a)
    return torch.cat((gradient * gate * (1 + a * (1 - gate)) * b, gradient * functional.silu(a)), -1)


def gelu(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """GELU by tanh: 4 forward, 6 backward."""
    backward = kernel.direction == "bwd"
    rows, width = shape(kernel.nbytes, 6 if backward else 4)
    x = machine.random(rows, width)
    if backward:
        yield Way("gelu", lambda gradient, x: aten.gelu_backward(gradient, x, approximate="tanh"), (machine.random(rows, width), x))
    else:
        yield Way("gelu", lambda x: functional.gelu(x, approximate="tanh"), (x,))


def rope(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """Rotary embedding of 32 heads: 4 both ways, and 1 in 32 for the cosines and sines; backward rotates the other way."""
    heads = 32
    rows, width = shape(kernel.nbytes, 4 + 4 / heads)
    dim = max(2, width // heads)
    x = machine.random(rows, width // dim, dim)
    angle = torch.rand(rows, 1, dim // 2, device=machine.device).repeat(1, 1, 2)
    sign = -1.0 if kernel.direction == "bwd" else 1.0
    return fused(machine, rotated, x, angle.cos().to(x.dtype), (sign * angle.sin()).to(x.dtype))


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """Pairs (first half, second half) of features turned by an angle."""
    one, two = x.chunk(2, -1)
    return x * cos + torch.cat((-two, one), -1) * sin


def residual(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """Sum of two tensors, forward the streams and backward their gradients: 6."""
    size = shape(kernel.nbytes, 6)
    yield Way("torch.add", torch.add, (machine.random(*size), machine.random(*size)))


def bias(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """Add a bias to every row: 4; backward the sum over rows: 2."""
    backward = kernel.direction == "bwd"
    rows, width = shape(kernel.nbytes, 2 if backward else 4)
    x = machine.random(rows, width)
    if backward:
        yield Way("torch.sum", lambda x: x.sum(0), (x,))
    else:
        yield Way("torch.add", torch.add, (x, machine.random(width)))


def softmax(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """Softmax over rows in 16 bits: 4 forward, 6 backward."""
    backward = kernel.direction == "bwd"
    x = machine.random(*shape(kernel.nbytes, 6 if backward else 4))
    if backward:
        yield Way(
            "softmax", lambda gradient, y: aten._softmax_backward_data(gradient, y, -1, y.dtype), (torch.randn_like(x), x.softmax(-1))
        )
    else:
        yield Way("softmax", lambda x: x.softmax(-1), (x,))


def merge(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """Ring attention adds a partial output, scaled by the log-sum-exps of both; backward gradients are added: 6."""
    if kernel.direction == "bwd":
        return residual(machine, kernel)
    rows, width = shape(kernel.nbytes, 6)
    sums = (torch.rand(rows, 1, device=machine.device) for _ in range(2))
    return fused(machine, merged, machine.random(rows, width), machine.random(rows, width), *sums)


def merged(out: Any, part: Any, total: Any, own: Any) -> Any:
    """Add `part`, whose log-sum-exp is `own`, to `out`."""
    return out.add_(part * torch.exp(own - total))


def cast(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """fp32 to 16 bits: 6. To 8 bits, row-wise and column-wise copies of 16-bit values: 4, expert by expert."""
    if kernel.dtype in ("bf16", "fp16"):
        x = machine.random(*shape(kernel.nbytes, 6), dtype="fp32")
        yield Way("to", lambda x: x.to(torch.bfloat16), (x,))
        return
    if kernel.dtype not in ("fp8", "fp8_blockwise", "mxfp8"):
        raise LeftOut(f"PyTorch has no conversion to {kernel.dtype}")
    unit, elements = {"fp8": 1, "fp8_blockwise": 128, "mxfp8": 32}[kernel.dtype], kernel.nbytes / 4 / kernel.groups
    rows = max(1, round(shape(elements, 1)[0] / unit)) * unit
    width = max(1, round(elements / rows / unit)) * unit
    scale, each = torch.ones((), device=machine.device), tuple(machine.random(rows, width) for _ in range(kernel.groups))
    one: Callable[..., Any] = (lambda x: to_fp8(x, scale)) if kernel.dtype == "fp8" else (lambda x: to_blocks(x, unit))
    for way in fused(machine, one, each[0]):
        yield Way(way.how, lambda *each, call=way.call: [call(x) for x in each], each)


def to_fp8(x: Any, scale: Any) -> tuple[Any, Any]:
    """e4m3 with one scale known beforehand, and its transpose."""
    y = (x * scale).to(torch.float8_e4m3fn)
    return y, y.t().contiguous()


def to_blocks(x: Any, block: int) -> tuple[Any, ...]:
    """e4m3 divided by a power of two for every `block` values of a row, and of a column for the transpose; exponents of both, plus 127."""
    rows, width = x.shape
    y, scale = _scaled(x.view(rows, width // block, block), -1)
    z, other = _scaled(x.view(rows // block, block, width), 1)
    return y.view(rows, width), z.view(rows, width).t().contiguous(), scale, other


def _scaled(x: Any, dim: int) -> tuple[Any, Any]:
    """The largest value of a block comes to lie between 224 and 448, the largest of e4m3."""
    exponent = torch.ceil(torch.log2(x.abs().amax(dim, keepdim=True).float().clamp(min=1e-12) / 448))
    return (x * torch.exp2(-exponent)).to(torch.float8_e4m3fn), (exponent + 127).to(torch.uint8)


def copy(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """A contiguous copy: 4. Zeroing, scaling, sums and dropout of kind 'memory' are streams like it."""
    yield Way("torch.clone", torch.clone, (machine.random(*shape(kernel.nbytes, 4)),))


def adam(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """AdamW on fp32 gradient, weight and moments: reads four, writes three, 28."""
    size = shape(kernel.nbytes, 28)
    tensors = tuple(machine.random(*size, dtype="fp32") for _ in range(4))
    tensors[3].abs_()
    step = torch.ones((), device=machine.device)

    def call(gradient: Any, weight: Any, first: Any, second: Any) -> tuple[Any, ...]:
        torch._fused_adamw_(
            [weight], [gradient], [first], [second], [], [step],
            lr=1e-4, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip
        return weight, first, second

    yield Way("fused AdamW", call, tensors)
