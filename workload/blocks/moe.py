"""The mixture-of-experts half of a layer: norm, router, dispatch, routed experts, combine, shared experts, residual.

A dispatcher (workload/dispatchers/<name>.py) moves tokens to experts and back. Shared experts run before the router, or beside dispatch
(up projection) and combine (down projection). The busiest rank sets the pace of both compute and exchange, so `experts.imbalance` scales
the rows of every rank. Source: Megatron-Core `transformer/moe`.
"""

import math
from contextlib import nullcontext
from types import ModuleType

from compute.api import Kernel
from workload.blocks.again import norm_bytes, recomputed, renorm
from workload.blocks.mlp import up
from workload.found import found
from workload.linear import column, column_backward, row, row_backward
from workload.ops import ELEMENT, activation, bias_grad, casts, expert_bias, experts_gemm, gate, gemm, moved, norm, residual, wgrad
from workload.params import Param, of_linear, of_norm
from workload.shape import Shape
from workload.tape import Tape


def dispatcher(s: Shape) -> ModuleType:
    """The module that moves tokens."""
    return found("dispatchers", s.training.experts.dispatcher)


def params(s: Shape) -> list[Param]:
    """Parameters in order of registration; every expert's matrix is a parameter of its own."""
    m = s.model
    out = [*of_norm(s, "router", m.hidden), Param("router", m.experts * m.hidden, replicated=True)]
    for module, numel in (("experts_fc1", up(s) * s.expert_ffn * m.hidden), ("experts_fc2", s.expert_ffn * m.hidden)):
        out += [Param(module, numel, expert=True)] * s.local_experts
    if m.shared_ffn:
        width = m.shared_ffn // s.lay.tp
        out += of_linear(s, "shared_fc1", up(s) * width, m.hidden) + of_linear(s, "shared_fc2", m.hidden, width)
    return out


def load(s: Shape, layer: int) -> float:
    """Load of the busiest expert rank in this layer over the mean: lognormal around `experts.imbalance`, by a hash of the layer."""
    sigma = s.training.experts.imbalance_sigma
    if not sigma:
        return 1.0
    uniform = ((layer + 1) * 0x9E3779B97F4A7C15 % 2**64 + 1) / (2**64 + 2)
    deviate = math.sqrt(2) * _inverse_erf(2 * uniform - 1)
    return max(1.0 / s.training.experts.imbalance, math.exp(sigma * deviate))


def _inverse_erf(x: float) -> float:
    """Winitzki's approximation, within 2e-3."""
    a, log = 0.147, math.log(1 - x * x)
    half = 2 / (math.pi * a) + log / 2
    return math.copysign(math.sqrt(math.sqrt(half * half - log / a) - half), x)


class _Saved:
    """Bytes kept for backward, by what holds them."""

    def __init__(self, s: Shape, layer: int) -> None:
        m, half = s.model, ELEMENT
        self.rows = round(s.expert_rows * load(s, layer))
        self.normed = norm_bytes(s)
        self.router = 8 * s.expert_shard * m.experts
        self.permuted = s.gemm_input(self.rows * m.hidden)
        self.inner = half * up(s) * self.rows * s.expert_ffn
        self.active = s.gemm_input(self.rows * s.expert_ffn)
        self.shared = half * (up(s) + 1) * s.tokens * m.shared_ffn // s.lay.tp
        self.mask = s.shard * m.hidden if m.dropout else 0


def forward(tape: Tape, s: Shape, layer: int) -> None:
    """Record the forward pass."""
    if recomputed(s, "moe"):
        tape.forget(lambda: _inside(tape, s, layer), keep=s.shard_bytes)
    else:
        _inside(tape, s, layer)
    tape.compute(residual(s), keep=_Saved(s, layer).mask, label="mlp residual")


def _inside(tape: Tape, s: Shape, layer: int) -> None:
    m, kept, way = s.model, _Saved(s, layer), dispatcher(s)
    tape.compute(norm(s, m.hidden, s.shard), keep=kept.normed, label="moe norm")
    beside = bool(m.shared_ffn) and s.training.experts.shared_overlap
    if m.shared_ffn and not beside:
        shared_up(tape, s)
        shared_down(tape, s)
        tape.compute(keep=kept.shared)
    with tape.at_cost(1) if s.training.kernels.graphs in ("router", "layers") else nullcontext():
        route(tape, s, kept.router)
    if not (s.training.experts.pad_to_capacity and s.training.experts.capacity_factor):
        tape.read()  # how many tokens each expert gets decides the sizes of what follows
    way.dispatch(tape, s, kept.rows, (lambda: shared_up(tape, s)) if beside else None)
    experts(tape, s, kept)
    way.combine(tape, s, kept.rows, (lambda: shared_down(tape, s)) if beside else None)
    tape.compute(*([moved("residual", 3 * s.shard_bytes)] if m.shared_ffn else []), keep=kept.shared if beside else 0)


def route(tape: Tape, s: Shape, keep: int) -> None:
    """Router logits, probabilities and choice, and the counters of the balancing loss."""
    m, tokens = s.model, s.expert_shard
    tape.compute(gemm(tokens, m.experts, m.hidden, s.plain_dtype), moved("router", 12 * tokens * m.experts), keep=keep, label="router")
    tape.mark("router")
    if s.training.experts.aux_loss:
        tape.comm("tp_cp", "all_reduce", 4 * m.experts, "tp.all_reduce.router_counts")


def experts(tape: Tape, s: Shape, kept: _Saved) -> None:
    """Grouped up projection, weighted activation, grouped down projection."""
    m, rows = s.model, kept.rows
    active = 0 if recomputed(s, "moe_act") else kept.active
    tape.compute(
        *_casts(s, rows * m.hidden),
        experts_gemm(s, rows, up(s) * s.expert_ffn, m.hidden),
        keep=kept.permuted + kept.inner,
        label="experts",
    )
    tape.mark("experts_fc1")
    inside = () if s.training.kernels.fused_experts else _casts(s, rows * s.expert_ffn)
    _offset(tape, s)
    tape.compute(*gate(s, rows), *inside, keep=active, temp=kept.active - active)
    tape.compute(experts_gemm(s, rows, m.hidden, s.expert_ffn), *expert_bias(s, rows), temp=kept.permuted, label="experts")
    tape.mark("experts_fc2")


def _offset(tape: Tape, s: Shape) -> None:
    """Let the host wait for the GPU where the activation copies its offset from the host's memory, which blocks until the copy is done.

    Source: Megatron-Core `fusions/fused_bias_geglu.py`, `weighted_bias_quick_geglu_impl`: `torch.tensor(linear_offset, device=...)`.
    """
    if s.model.activation == "clamped_swiglu" and not s.training.kernels.fused_experts:
        tape.read()


def _casts(s: Shape, elements: int) -> tuple[Kernel, ...]:
    """Casts of what all experts of a GPU take: one by one unless fused."""
    return casts(s, elements, s.gemm_dtype, 1 if s.training.kernels.fused_experts else s.local_experts)


def experts_backward(tape: Tape, s: Shape, kept: _Saved) -> None:
    """Backward of the experts, last to first."""
    m, rows = s.model, kept.rows
    active = 0 if recomputed(s, "moe_act") else kept.active
    if not active:
        _offset(tape, s)
        tape.again(lambda: tape.compute(*gate(s, rows), temp=kept.active + kept.permuted))
    one, two = (up(s) * s.expert_ffn, m.hidden), (m.hidden, s.expert_ffn)
    tape.compute(
        *expert_bias(s, rows, "bwd"),
        *_casts(s, rows * m.hidden),
        experts_gemm(s, rows, *two, "dgrad"),
        temp=kept.permuted + kept.active,
        label="experts",
    )
    tape.weights("experts_fc2", *wgrad(s, experts_gemm(s, rows, *two, "wgrad")), free=active, temp=kept.permuted + kept.active)
    tape.compute(*gate(s, rows, "bwd"), temp=kept.active + kept.inner)
    inside = () if s.training.kernels.fused_experts else _casts(s, rows * up(s) * s.expert_ffn)
    biases = (bias_grad(rows, up(s) * s.expert_ffn),) if m.bias and not s.training.kernels.fused_experts else ()
    tape.compute(*inside, *biases, experts_gemm(s, rows, *one, "dgrad"), temp=kept.inner + kept.permuted, label="experts")
    first = wgrad(s, experts_gemm(s, rows, *one, "wgrad"))
    tape.weights("experts_fc1", *first, free=kept.permuted + kept.inner, temp=kept.inner + kept.permuted)


def backward(tape: Tape, s: Shape, layer: int) -> None:
    """Record the backward pass."""
    m, kept, way = s.model, _Saved(s, layer), dispatcher(s)
    tape.compute(free=kept.mask, temp=s.shard_bytes)
    if recomputed(s, "moe"):
        tape.again(lambda: _inside(tape, s, layer), free=s.shard_bytes)
    beside = bool(m.shared_ffn) and s.training.experts.shared_overlap
    way.combine_backward(tape, s, kept.rows, (lambda: shared_down_backward(tape, s)) if beside else None)
    experts_backward(tape, s, kept)
    way.dispatch_backward(tape, s, kept.rows, (lambda: shared_up_backward(tape, s)) if beside else None)
    tokens = s.expert_shard
    tape.compute(moved("router", 12 * tokens * m.experts, "bwd"), gemm(tokens, m.experts, m.hidden, s.plain_dtype, "dgrad"), label="router")
    tape.weights("router", *wgrad(s, gemm(tokens, m.experts, m.hidden, s.plain_dtype, "wgrad")), free=kept.router)
    renorm(tape, s)
    if m.shared_ffn and not beside:
        shared_down_backward(tape, s)
        shared_up_backward(tape, s)
    tape.compute(
        norm(s, m.hidden, s.shard, "bwd"), residual(s, "bwd"), free=kept.normed + kept.shared, temp=2 * s.shard_bytes, label="moe norm"
    )


def shared_up(tape: Tape, s: Shape) -> None:
    """Up projection and activation of the shared experts."""
    width = s.model.shared_ffn // s.lay.tp
    column(tape, s, "shared_fc1", up(s) * width, s.model.hidden, normed=False)
    tape.compute(activation(s, s.tokens, width))


def shared_down(tape: Tape, s: Shape) -> None:
    """Down projection of the shared experts."""
    row(tape, s, "shared_fc2", s.model.hidden, s.model.shared_ffn // s.lay.tp)


def shared_down_backward(tape: Tape, s: Shape) -> None:
    """Backward of `shared_down`."""
    row_backward(tape, s, "shared_fc2", s.model.hidden, s.model.shared_ffn // s.lay.tp)


def shared_up_backward(tape: Tape, s: Shape) -> None:
    """Backward of `shared_up`."""
    width = s.model.shared_ffn // s.lay.tp
    tape.compute(activation(s, s.tokens, width, "bwd"))
    column_backward(tape, s, "shared_fc1", up(s) * width, s.model.hidden)


def shapes(s: Shape) -> list[tuple[int, int]]:
    """(outputs, inputs) of the linear weights."""
    h, width = s.model.hidden, s.model.shared_ffn // s.lay.tp
    shared = [(up(s) * width, h), (h, width)] if width else []
    return [(up(s) * s.expert_ffn, h), (h, s.expert_ffn), *shared]
