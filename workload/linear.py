"""Linear layers cut over the tensor-parallel group, with the communication that this takes.

Column-parallel: every GPU has some outputs and needs all inputs. Row-parallel: every GPU has some inputs and a share of the sum. With
sequence parallelism inputs are gathered and sums scattered over the sequence; without it sums are all-reduced, in backward beside wgrad
or, without `async_allreduce`, behind it.

| | column | row |
|---|---|---|
| forward | AG of the input | RS (AR) of the output |
| backward | AG of the saved input beside dgrad; RS (AR) of its result beside wgrad | AG of the gradient |

In 8 bits, norms write the inputs of column-parallel layers in the precision of the GEMM where they can (`ops.FUSED_INTO_NORM`); other
inputs and gradients are cast. What is gathered for a GEMM in 8 bits travels in 8 bits, sums travel in 16. With userbuffer overlap
(`tp_comm_overlap`) a gather becomes tp - 1 ring steps between pieces of its GEMM, and a scatter is done in four parts, each beside the
next part of its GEMM (of backward ones with `tp_comm_overlap_rs_dgrad` only). Source: Megatron-Core `tensor_parallel/layers.py`,
TransformerEngine `module/base.py` (quantised gathers, default userbuffer methods).
"""

from compute.api import INNER, MODULE
from workload.ops import bias_grad, casts, casts_normed, gemm, transposed, wgrad
from workload.shape import Shape
from workload.tape import Tape

SPLITS = 4
"""Parts of a pipelined GEMM with reduce-scatter."""


def _ring(s: Shape, name: str) -> bool:
    """Whether userbuffers serve this layer."""
    par = s.training.parallel
    on = {"qkv": not par.tp_comm_overlap_disable_qkv, "proj": True, "fc1": not par.tp_comm_overlap_disable_fc1, "fc2": True}
    return par.tp_comm_overlap and s.sp and on.get(name, False)


def _gathered(tape: Tape, s: Shape, name: str, m: int, n: int, k: int, dtype: str, direction: str) -> None:
    """GEMM of an input that is gathered piece by piece around the ring: own piece first, then each one as it arrives."""
    t = s.lay.tp
    arrived: tuple = tape.last()
    with tape.at_cost(MODULE + 2 * INNER * t):
        for piece in range(t):
            if piece:
                tape.wait(arrived)
            tape.compute(gemm(m // t, n, k, dtype, direction), label=name)
            if piece < t - 1:
                size = s.gathered_bytes(dtype) // t
                arrived = tape.start("tp", "tp", "ring_shift", size, f"tp.ring_shift.{name}", after=arrived, urgent=True)


def _scattered(tape: Tape, s: Shape, name: str, m: int, n: int, k: int, dtype: str, direction: str = "fwd", what: str = "") -> None:
    """GEMM in parts, the reduce-scatter of each beside the next."""
    handles = []
    with tape.at_cost(MODULE + 2 * INNER * SPLITS):
        for _ in range(SPLITS):
            tape.compute(gemm(m // SPLITS, n, k, dtype, direction), label=name)
            handles.append(tape.start("tp", "tp", "reduce_scatter", s.tp_bytes // SPLITS, f"tp.reduce_scatter.{name}{what}", urgent=True))
    tape.wait(*handles)


def column(tape: Tape, s: Shape, name: str, n: int, k: int, dtype: str = "", keep: int = 0, normed: bool = True) -> None:
    """Forward of a column-parallel layer with n outputs on this GPU; `keep` bytes of its output stay for backward.

    `normed`: its input comes from a norm of its own, which may write it in the precision of the GEMM.
    """
    dtype = dtype or s.gemm_dtype
    tape.compute(*(casts_normed if normed else casts)(s, s.shard * k, dtype))
    temp = s.full_bytes if s.sp else 0
    if _ring(s, name):
        _gathered(tape, s, name, s.tokens, n, k, dtype, "fwd")
        tape.compute(keep=keep, temp=temp)
    else:
        if s.sp:
            tape.comm("tp", "all_gather", s.gathered_bytes(dtype), f"tp.all_gather.{name}")
        tape.compute(gemm(s.tokens, n, k, dtype), keep=keep, temp=temp, label=name)
    tape.mark(name)


def row(tape: Tape, s: Shape, name: str, n: int, k: int, dtype: str = "") -> None:
    """Forward of a row-parallel layer with k inputs on this GPU."""
    dtype = dtype or s.gemm_dtype
    tape.compute(*casts(s, s.tokens * k, dtype), temp=s.full_bytes if s.lay.tp > 1 else 0)
    if _ring(s, name):
        _scattered(tape, s, name, s.tokens, n, k, dtype)
        tape.mark(name)
        return
    tape.compute(gemm(s.tokens, n, k, dtype), label=name)
    tape.mark(name)
    reduce_output(tape, s, name)


def reduce_output(tape: Tape, s: Shape, name: str) -> None:
    """Sum partial results over the tensor-parallel group."""
    op = "reduce_scatter" if s.sp else "all_reduce"
    tape.comm("tp", op, s.tp_bytes if s.sp else s.full_bytes, f"tp.{op}.{name}")


def row_backward(tape: Tape, s: Shape, name: str, n: int, k: int, dtype: str = "", free: int = 0, temp: int = 0) -> None:
    """Backward of a row-parallel layer: gather the gradient, dgrad, wgrad; `free` bytes of its input go afterwards."""
    dtype = dtype or s.gemm_dtype
    bias = (bias_grad(s.shard, n),) if s.model.bias else ()
    if tape.deferred:
        if s.sp:
            tape.comm("tp", "all_gather", s.gathered_bytes(dtype), f"tp.all_gather.{name}_grad")
        tape.compute(*casts(s, s.tokens * n, dtype), gemm(s.tokens, n, k, dtype, "dgrad"), temp=temp, label=name)
        _deferred(tape, s, name, n, k, dtype, free, bias, gather=False)
        return
    if _ring(s, name):
        tape.compute(*bias)
        _gathered(tape, s, name, s.tokens, n, k, dtype, "dgrad")
        tape.compute(*wgrad(s, gemm(s.tokens, n, k, dtype, "wgrad")), free=free, temp=temp, label=name)
    else:
        if s.sp:
            tape.comm("tp", "all_gather", s.gathered_bytes(dtype), f"tp.all_gather.{name}_grad")
        tape.compute(
            *bias,
            *casts(s, s.tokens * n, dtype),
            gemm(s.tokens, n, k, dtype, "dgrad"),
            *wgrad(s, gemm(s.tokens, n, k, dtype, "wgrad")),
            free=free,
            temp=temp,
            label=name,
        )
    tape.mark(name)


def column_backward(
    tape: Tape, s: Shape, name: str, n: int, k: int, dtype: str = "", free: int = 0, temp: int = 0, wgrad_temp: int = 0
) -> None:
    """Backward of a column-parallel layer: the input is gathered beside dgrad, the input's gradient is reduced beside wgrad."""
    dtype = dtype or s.gemm_dtype
    bias = (bias_grad(s.tokens, n),) if s.model.bias or (s.model.qkv_bias and name == "qkv") else ()
    if tape.deferred:
        tape.compute(*casts(s, s.tokens * n, dtype), gemm(s.tokens, n, k, dtype, "dgrad"), temp=temp, label=name)
        reduce_output(tape, s, f"{name}_input_grad")
        _deferred(tape, s, name, n, k, dtype, free, (*bias, *transposed(s, s.tokens * k, dtype)), gather=s.sp)
        return
    weights = (*transposed(s, s.tokens * k, dtype), *wgrad(s, gemm(s.tokens, n, k, dtype, "wgrad")))
    if not (s.sp or s.training.parallel.async_allreduce):
        tape.compute(*bias, *casts(s, s.tokens * n, dtype), gemm(s.tokens, n, k, dtype, "dgrad"), temp=temp, label=name)
        tape.compute(*weights, free=free, temp=wgrad_temp, label=name)
        tape.mark(name)
        reduce_output(tape, s, f"{name}_input_grad")
        return
    saved = tape.start("tp", "tp", "all_gather", s.gathered_bytes(dtype), f"tp.all_gather.{name}_input") if s.sp else ()
    if _ring(s, name) and s.training.parallel.tp_comm_overlap_rs_dgrad:
        tape.compute(*bias, *casts(s, s.tokens * n, dtype), temp=temp + s.full_bytes)
        _scattered(tape, s, name, s.tokens, n, k, dtype, "dgrad", "_input_grad")
        tape.wait(saved)
        tape.compute(*weights, free=free, temp=wgrad_temp, label=name)
        tape.mark(name)
        return
    tape.compute(
        *bias, *casts(s, s.tokens * n, dtype), gemm(s.tokens, n, k, dtype, "dgrad"), temp=temp + (s.full_bytes if s.sp else 0), label=name
    )
    op = "reduce_scatter" if s.sp else "all_reduce"
    summed = tape.start("tp", "tp", op, s.tp_bytes if s.sp else s.full_bytes, f"tp.{op}.{name}_input_grad")
    tape.wait(saved)
    tape.compute(*weights, free=free, temp=wgrad_temp, label=name)
    tape.mark(name)
    tape.wait(summed)


def _deferred(tape: Tape, s: Shape, name: str, n: int, k: int, dtype: str, free: int, first: tuple, gather: bool) -> None:
    """Weight gradient in a step of its own; a column-parallel layer gathers its saved input for it."""
    later = tape.deferred
    assert later is not None
    if gather:
        later.comm("tp", "all_gather", s.gathered_bytes(dtype), f"tp.all_gather.{name}_input")
    later.compute(*first, *wgrad(s, gemm(s.tokens, n, k, dtype, "wgrad")), free=free, label=name)
    later.mark(name)
