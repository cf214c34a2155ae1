"""Kernels as PyTorch operations, found by kind. A new kind is one function that yields ways to execute a kernel, best first.

Only with PyTorch: modules of this package import it.
"""

from compute.operations import attention, elementwise, experts, gemm, loss
from compute.ways import Operation

KINDS: dict[str, Operation] = {
    "gemm": gemm.gemm,
    "grouped_gemm": gemm.grouped,
    "attention": attention.attention,
    "norm": elementwise.norm,
    "swiglu": elementwise.swiglu,
    "gelu": elementwise.gelu,
    "rope": elementwise.rope,
    "residual": elementwise.residual,
    "bias": elementwise.bias,
    "softmax": elementwise.softmax,
    "merge": elementwise.merge,
    "cast": elementwise.cast,
    "copy": elementwise.copy,
    "memory": elementwise.copy,
    "adam": elementwise.adam,
    "embedding": loss.embedding,
    "cross_entropy": loss.cross_entropy,
    "router": experts.router,
    "permute": experts.permute,
    "unpermute": experts.unpermute,
    "clamp": experts.clamp,
    "expert_bias": experts.expert_bias,
}
COMPILED = ("swiglu", "rope", "merge", "cast", "embedding")
"""Kinds whose first way is compiled, which takes its time."""
