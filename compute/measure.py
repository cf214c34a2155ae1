"""Measure your own: time the kernels of a run on the GPU at hand and keep them as a table.

Each kernel is built once, run until warm, then timed `repeats` times between two CUDA events; the median counts. Inputs are random normal,
for power and hence clocks depend on the data. Memory-bound kernels are timed by the plain PyTorch operation of their kind, with as many
elements as move the stated bytes. Kinds without such an operation are left out and named.
"""

import statistics
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from compute.kernels import GEMM_KINDS, Kernel
from compute.tables import Row
from netsim.errors import InputError

Call = Callable[[], object]


class Timer(Protocol):
    """A machine that can run kernels."""

    name: str

    def prepare(self, kernel: Kernel) -> Call | None:
        """A call that executes the kernel once; None where this machine has no such operation or not the memory for it."""

    def seconds(self, call: Call) -> float:
        """Duration of one call on the device."""


class Measured(NamedTuple):
    """What came of it: rows, and the kernels that were left out."""

    rows: list[Row]
    left_out: list[Kernel]


def measure(
    kernels: Iterable[Kernel], timer: Timer, warmup: int = 5, repeats: int = 20, tell: Callable[[str], None] = lambda line: None
) -> Measured:
    """Time every distinct kernel once it is warm; the median of `repeats` runs."""
    rows, left_out = [], []
    for kernel in dict.fromkeys(kernels):
        call = timer.prepare(kernel)
        if call is None:
            left_out.append(kernel)
            continue
        for _ in range(warmup):
            timer.seconds(call)
        time_us = statistics.median(timer.seconds(call) for _ in range(repeats)) * 1e6
        rows.append(Row(kernel, time_us, source=f"measured on {timer.name}"))
        tell(f"{kernel.kind} {kernel.direction} {kernel.dtype}: {time_us:.1f} us")
    return Measured(rows, left_out)


class Torch:
    """PyTorch on the first CUDA device; `InputError` in one line where there is none."""

    def __init__(self) -> None:
        try:
            import torch
        except ImportError:
            raise InputError("device measure: expected PyTorch with CUDA; got no module named torch") from None
        if not torch.cuda.is_available():
            raise InputError(f"device measure: expected a CUDA device; got none (torch {torch.__version__})")
        self.torch: Any = torch
        self.name = f"{torch.cuda.get_device_name()} (torch {torch.__version__})"

    def seconds(self, call: Call) -> float:
        """Time between two CUDA events around the call."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        self.torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def prepare(self, kernel: Kernel) -> Call | None:
        """Allocate inputs and return the call; None for kinds and precisions that PyTorch has no kernel for, and for what does not fit."""
        self.torch.cuda.empty_cache()
        try:
            if kernel.kind in GEMM_KINDS:
                return self._gemm(kernel)
            return self._attention(kernel) if kernel.kind == "attention" else self._memory(kernel)
        except self.torch.cuda.OutOfMemoryError:
            return None

    def _random(self, *shape: int, dtype: str = "bf16") -> Any:
        return self.torch.randn(
            *shape, device="cuda", dtype={"bf16": self.torch.bfloat16, "fp16": self.torch.float16, "fp32": self.torch.float32}[dtype]
        )

    def _gemm(self, kernel: Kernel) -> Call | None:
        """Layouts of training: x w' forward, dy w for dgrad, dy' x for wgrad (added to an fp32 gradient where asked)."""
        if kernel.dtype == "fp8":
            return self._gemm_fp8(kernel) if kernel.kind == "gemm" and kernel.direction == "fwd" else None
        if kernel.dtype not in ("bf16", "fp16", "fp32"):
            return None
        transposed_a, transposed_b = {"fwd": (False, True), "dgrad": (False, False), "wgrad": (True, False)}[kernel.direction]
        pairs = []
        for _ in range(kernel.groups):
            a = self._random(*((kernel.k, kernel.m) if transposed_a else (kernel.m, kernel.k)), dtype=kernel.dtype)
            b = self._random(*((kernel.n, kernel.k) if transposed_b else (kernel.k, kernel.n)), dtype=kernel.dtype)
            pairs.append((a.t() if transposed_a else a, b.t() if transposed_b else b))
        if kernel.accumulate:
            gradients = [self._random(kernel.m, kernel.n, dtype="fp32") for _ in pairs]
            return lambda: [gradient.add_(a @ b) for gradient, (a, b) in zip(gradients, pairs, strict=True)]
        return lambda: [a @ b for a, b in pairs]

    def _gemm_fp8(self, kernel: Kernel) -> Call | None:
        if not hasattr(self.torch, "_scaled_mm") or self.torch.cuda.get_device_capability() < (8, 9):
            return None
        a = self._random(kernel.m, kernel.k).to(self.torch.float8_e4m3fn)
        b = self._random(kernel.n, kernel.k).to(self.torch.float8_e4m3fn).t()
        one = self.torch.ones((), device="cuda")
        return lambda: self.torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=self.torch.bfloat16)

    def _attention(self, kernel: Kernel) -> Call | None:
        """flash-attn where it can be imported, else scaled_dot_product_attention; backward alone, through a kept graph."""
        head_dim_v = kernel.head_dim_v or kernel.head_dim
        q = self._random(kernel.batch, kernel.seq_q, kernel.heads, kernel.head_dim).requires_grad_()
        k = self._random(kernel.batch, kernel.seq_kv, kernel.kv_heads, kernel.head_dim).requires_grad_()
        v = self._random(kernel.batch, kernel.seq_kv, kernel.kv_heads, head_dim_v).requires_grad_()
        try:
            from flash_attn import flash_attn_func  # type: ignore[import-not-found]
        except ImportError:
            attend = self.torch.nn.functional.scaled_dot_product_attention
            swapped = [x.transpose(1, 2) for x in (q, k, v)]
            forward: Call = lambda: attend(*swapped, is_causal=kernel.causal, enable_gqa=kernel.heads != kernel.kv_heads)  # noqa: E731
        else:
            forward = lambda: flash_attn_func(q, k, v, causal=kernel.causal)  # noqa: E731
        if kernel.direction == "fwd":
            return forward
        out: Any = forward()
        seed = self.torch.randn_like(out)
        return lambda: self.torch.autograd.grad(out, (q, k, v), seed, retain_graph=True)

    def _memory(self, kernel: Kernel) -> Call | None:
        """The PyTorch operation of a kind; passes are how often its main tensor of 2-byte elements crosses the bus."""
        functional = self.torch.nn.functional
        width, passes = 4096, {"residual": 3, "norm": 2, "softmax": 2, "gelu": 2, "memory": 2, "copy": 2, "cast": 3}.get(kernel.kind, 0)
        if not passes or kernel.direction != "fwd":
            return None
        x = self._random(max(kernel.nbytes // (2 * passes * width), 1), width)
        scale = self._random(width)
        other = x.clone() if kernel.kind == "residual" else x
        norm = getattr(functional, "rms_norm", None) or (lambda t, shape, weight: functional.layer_norm(t, shape, weight))
        calls: dict[str, Call] = {
            "residual": lambda: x + other,
            "norm": lambda: norm(x, (width,), scale),
            "softmax": lambda: x.softmax(-1),
            "gelu": lambda: functional.gelu(x),
            "memory": x.clone,
            "copy": x.clone,
            "cast": lambda: x.float(),
        }
        return calls[kernel.kind]
