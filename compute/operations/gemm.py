"""Matrix products in the layouts of training: x w' forward, dy w for dgrad, dy' x for wgrad.

* 16 and 32 bits: cuBLAS takes all three layouts. A wgrad that accumulates is one GEMM with beta = 1 into the fp32 gradient, as Megatron's
  fused one (`torch.addmm` with out_dtype on CUDA, in releases that take a 32-bit sum); where that is missing a second kernel adds the
  product, and the row says so.
* 8 bits and less: Hopper multiplies only rows of the first operand with rows of the second (TN), so all directions are that GEMM of
  operands that were transposed when they were cast, as TransformerEngine does. Gradients are e5m2 with one scale per tensor (recipe
  "hybrid") and e4m3 with block scales; wgrads are written in fp32, but `scaled_mm` cannot add to what is there. Split accumulation
  backward, fast forward.
* Block scales as TransformerEngine lays them out: fp8_blockwise 1x128 for activations and gradients, 128x128 for weights (Hopper, CUDA
  12.9); mxfp8 1x32, nvfp4 1x16 and one per tensor, both in the order of the tensor cores (Blackwell).

Sources: Megatron-Core `tensor_parallel/layers.py`; TransformerEngine `module/base.py` and `common/recipe`; PyTorch
`torch.nn.functional.scaled_mm`, `torch.nn.functional.grouped_mm`.
"""

from collections.abc import Iterator
from typing import Any

import torch

from compute.kernels import Kernel
from compute.ways import LeftOut, Way

TRANSPOSED = {"fwd": (False, True), "dgrad": (False, False), "wgrad": (True, False)}
"""Which operands are stored transposed."""


def gemm(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """One product of `kernel.m` x `kernel.n` over `kernel.k`."""
    if kernel.dtype == "fp8":
        return _tensor_scaled(machine, kernel)
    if kernel.dtype in ("fp8_blockwise", "mxfp8", "nvfp4"):
        return _block_scaled(machine, kernel)
    return _plain(machine, kernel)


def _plain(machine: Any, kernel: Kernel) -> Iterator[Way]:
    first, second = TRANSPOSED[kernel.direction]
    m, n, k = kernel.m, kernel.n, kernel.k
    a = machine.random(*((k, m) if first else (m, k)), dtype=kernel.dtype)
    b = machine.random(*((n, k) if second else (k, n)), dtype=kernel.dtype)

    def laid(a: Any, b: Any) -> tuple[Any, Any]:
        return a.t() if first else a, b.t() if second else b

    if not kernel.accumulate:
        yield Way("torch.mm", lambda a, b: torch.mm(*laid(a, b)), (a, b))
        return
    total = machine.random(m, n, dtype="fp32")
    if kernel.dtype == "fp32":
        yield Way("torch.addmm", lambda a, b, total: total.addmm_(*laid(a, b)), (a, b, total))
        return
    yield Way(
        "torch.addmm into fp32",
        lambda a, b, total: torch.addmm(total, *laid(a, b), out_dtype=torch.float32, out=total),
        (a, b, total),
    )
    yield Way("torch.mm, added to fp32 by a kernel of its own", lambda a, b, total: total.add_(torch.mm(*laid(a, b))), (a, b, total))


def _tensor_scaled(machine: Any, kernel: Kernel) -> Iterator[Way]:
    backward = kernel.direction != "fwd"
    a = machine.random(kernel.m, kernel.k).to(torch.float8_e5m2 if backward else torch.float8_e4m3fn)
    b = machine.random(kernel.n, kernel.k).to(torch.float8_e4m3fn)
    one = torch.ones((), device=machine.device)
    out = torch.float32 if kernel.direction == "wgrad" else torch.bfloat16
    how = "torch._scaled_mm" + (", written in fp32, not added" if kernel.accumulate else "")
    yield Way(
        how,
        lambda a, b: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=out, use_fast_accum=not backward),
        (a, b),
    )


def _block_scaled(machine: Any, kernel: Kernel) -> Iterator[Way]:
    functional = torch.nn.functional
    if not hasattr(functional, "scaled_mm"):
        raise LeftOut(f"PyTorch {torch.__version__} has no torch.nn.functional.scaled_mm")
    kinds, swizzles = functional.ScalingType, functional.SwizzleType
    weights = kernel.direction != "wgrad"
    a, b = (_narrow(machine, rows, kernel.k, kernel.dtype) for rows in (kernel.m, kernel.n))
    scale_a, scale_b = (_scales(machine, rows, kernel, of_weight) for rows, of_weight in ((kernel.m, False), (kernel.n, weights)))
    if kernel.dtype == "fp8_blockwise":
        recipe_a, recipe_b = kinds.BlockWise1x128, kinds.BlockWise128x128 if weights else kinds.BlockWise1x128
    elif kernel.dtype == "mxfp8":
        recipe_a = recipe_b = kinds.BlockWise1x32
    else:
        recipe_a = recipe_b = [kinds.BlockWise1x16, kinds.TensorWise]
    order = swizzles.NO_SWIZZLE if kernel.dtype == "fp8_blockwise" else swizzles.SWIZZLE_32_4_4
    swizzle = [order, swizzles.NO_SWIZZLE] if kernel.dtype == "nvfp4" else order
    out = torch.bfloat16 if weights else torch.float32

    def call(a: Any, b: Any) -> Any:
        return functional.scaled_mm(
            a, b.t(), scale_a, recipe_a, scale_b, recipe_b, swizzle_a=swizzle, swizzle_b=swizzle, output_dtype=out, use_fast_accum=weights
        )

    yield Way("torch.nn.functional.scaled_mm" + (", written in fp32, not added" if kernel.accumulate else ""), call, (a, b))


def _narrow(machine: Any, rows: int, k: int, dtype: str) -> Any:
    """Operand in 8 bits, or in 4 bits packed in pairs."""
    if dtype == "nvfp4":
        return torch.randint(0, 256, (rows, k // 2), dtype=torch.uint8, device=machine.device).view(torch.float4_e2m1fn_x2)
    return machine.random(rows, k).to(torch.float8_e4m3fn)


def _scales(machine: Any, rows: int, kernel: Kernel, of_weight: bool) -> Any:
    """Scales of one operand, all 1, in the shape and order that cuBLAS asks for."""

    def ones(*shape: int) -> Any:
        return torch.ones(*shape, device=machine.device)

    def padded(size: int, to: int) -> int:
        return -(-size // to) * to

    if kernel.dtype == "fp8_blockwise":
        blocks = -(-kernel.k // 128)
        return ones(-(-rows // 128), padded(blocks, 4)).t() if of_weight else ones(blocks, rows).t()
    block = 32 if kernel.dtype == "mxfp8" else 16
    flat = ones(padded(rows, 128) * padded(-(-kernel.k // block), 4))
    return flat.to(torch.float8_e8m0fnu) if block == 32 else [flat.to(torch.float8_e4m3fn), ones(1)]


def grouped(machine: Any, kernel: Kernel) -> Iterator[Way]:
    """`kernel.groups` products of one shape: batched as in unfused attention, else by a grouped kernel, else one by one."""
    if kernel.batch > 1:
        yield _batched(machine, kernel)
        return
    if kernel.dtype in ("bf16", "fp16") and not kernel.accumulate and hasattr(torch, "_grouped_mm"):
        yield _one_launch(machine, kernel)
    for ways in zip(*(gemm(machine, kernel._replace(kind="gemm", groups=1)) for _ in range(kernel.groups)), strict=True):
        yield Way(
            f"one by one, {ways[0].how}",
            lambda *_, ways=ways: [way.call(*way.inputs) for way in ways],
            tuple(x for way in ways for x in way.inputs),
        )


def _batched(machine: Any, kernel: Kernel) -> Way:
    first, second = TRANSPOSED[kernel.direction]
    m, n, k, many = kernel.m, kernel.n, kernel.k, kernel.groups
    a = machine.random(many, *((k, m) if first else (m, k)), dtype=kernel.dtype)
    b = machine.random(many, *((n, k) if second else (k, n)), dtype=kernel.dtype)
    return Way("torch.bmm", lambda a, b: torch.bmm(a.mT if first else a, b.mT if second else b), (a, b))


def _one_launch(machine: Any, kernel: Kernel) -> Way:
    m, n, k, many = kernel.m, kernel.n, kernel.k, kernel.groups
    first, second = TRANSPOSED[kernel.direction]
    rows = k if first else m
    ends = torch.arange(1, many + 1, dtype=torch.int32, device=machine.device) * rows
    a = machine.random(many * rows, m if first else k, dtype=kernel.dtype)
    b = machine.random(*((many * k, n) if first else (many, n, k) if second else (many, k, n)), dtype=kernel.dtype)
    return Way("torch._grouped_mm", lambda a, b: torch._grouped_mm(a.t() if first else a, b.mT if second else b, offs=ends), (a, b))
