"""Core attention under context parallelism.

The sequence is cut into 2 cp chunks; rank j holds chunks j and 2 cp - 1 - j, which balances causal work.
- p2p: keys and values travel around the ring in cp - 1 steps, each beside one step of attention: causal on the own chunks first, then half
  of a square each. Backward sends keys and values again, and their gradients one step behind.
- all_gather: keys and values are gathered before attention; backward gathers again and scatters their gradients.
- a2a: heads are exchanged for sequence before and after attention.
- a2a+p2p: a2a inside a low-level group, the ring across groups.
Around the ring, kernels of their own put keys and values into one buffer, merge the partial output of every step into the result by the
log-sum-exps of both, and add up the gradients of queries, keys and values (`merge`, `merge_backward`).
Source: TransformerEngine `context_parallel.py`.
"""

from compute.api import Kernel
from workload.ops import limited, moved, self_attention
from workload.shape import ELEMENT, Shape
from workload.tape import Tape


def kv_heads(s: Shape) -> int:
    """Key-value heads that attention sees on one GPU."""
    return s.heads if s.model.attention == "mla" else s.kv_heads


def _bytes(s: Shape) -> tuple[int, int, int]:
    """Bytes of queries, of keys and values together, and of the output on one GPU."""
    each = ELEMENT * s.tokens
    return each * s.heads * s.model.dim, each * kv_heads(s) * (s.model.dim + s.model.dim_v), each * s.heads * s.model.dim_v


def saved(s: Shape) -> int:
    """Bytes kept for backward: queries, keys, values, output, the kernel's own, and in 8 bits the output as the projection takes it."""
    q, kv, out = _bytes(s)
    if s.training.kernels.attention == "unfused":
        masks = 5 if s.model.dropout else 2
        return q + kv + out + masks * s.training.micro_batch * s.heads * (s.training.sequence // s.lay.cp) * s.training.sequence
    before_exchange = out if s.lay.cp > 1 and s.training.parallel.cp_comm_type.startswith("a2a") else 0
    as_input = s.gemm_input(s.tokens * s.heads * s.model.dim_v) if s.narrow else 0
    return q + kv + out + 4 * s.tokens * s.heads + before_exchange + as_input


def inputs(s: Shape) -> int:
    """Bytes of queries, keys and values: what a recomputed attention keeps."""
    return sum(_bytes(s)[:2])


def _steps(s: Shape, layer: int, ring: int, heads: int, groups: int, direction: str, local: int) -> list:
    """Kernels of every ring step over blocks of `local` tokens: the first is causal, the others half a square."""
    first = self_attention(s, local, local, heads, groups, True, limited(s.model, layer), direction)
    later = self_attention(s, local, local // 2, heads, groups, False, 0, direction)
    return [first] + [later] * (ring - 1)


def forward(tape: Tape, s: Shape, layer: int) -> None:
    """Record attention of one layer."""
    how, c = s.training.parallel.cp_comm_type, s.lay.cp
    local = s.training.sequence // c
    q, kv, out = _bytes(s)
    if c == 1:
        tape.compute(*_steps(s, layer, 1, s.heads, kv_heads(s), "fwd", local)[0], keep=saved(s), label="attention")
    elif how == "all_gather":
        tape.comm("cp", "all_gather", kv * c, "cp.all_gather.kv")
        tape.compute(*_gathered(s, layer, "fwd"), keep=saved(s), temp=kv * c, label="attention")
    else:
        dim, ring_dim, low, ring = _levels(s)
        for name, size in (
            ("q", q),
            ("k", kv * s.model.dim // (s.model.dim + s.model.dim_v)),
            ("v", kv * s.model.dim_v // (s.model.dim + s.model.dim_v)),
        ):
            tape.comm(dim, "all_to_all", size, f"cp.all_to_all.{name}")
        tape.compute(keep=saved(s))
        _ring_forward(tape, s, ring_dim, kv, _steps(s, layer, ring, s.heads // low, max(1, kv_heads(s) // low), "fwd", local * low))
        tape.comm(dim, "all_to_all", out, "cp.all_to_all.out")


def _levels(s: Shape) -> tuple[str, str, int, int]:
    """Dimensions and sizes of the exchange of heads and of the ring."""
    how, c = s.training.parallel.cp_comm_type, s.lay.cp
    if how == "a2a+p2p":
        low, high = s.training.parallel.hierarchical_sizes
        return "cp_a2a", "cp_p2p", low, high
    return ("cp", "", c, 1) if how == "a2a" else ("", "cp", 1, c)


def _gathered(s: Shape, layer: int, direction: str) -> tuple:
    """Two chunks of queries against all keys before them; both together see (2 cp + 1) chunks."""
    chunk = s.training.sequence // (2 * s.lay.cp)
    seen = chunk * (2 * s.lay.cp + 1) // 2
    return self_attention(s, chunk, seen, s.heads, kv_heads(s), True, limited(s.model, layer), direction) * 2


def merge(out: int, kv: int, step: int) -> tuple[Kernel, ...]:
    """Kernels around a forward step of the ring: join keys and values, then scale the first output or add a later one (16 bits each)."""
    return (moved("merge", 2 * kv), moved("merge", 2 * out)) if step == 0 else (moved("merge", 3 * out),)


def merge_backward(q: int, kv: int, step: int) -> tuple[Kernel, ...]:
    """Kernels around a backward step: join the gradients of keys and values, then copy the first gradients or add later ones."""
    return moved("merge", 2 * kv, "bwd"), moved("merge", (2 if step == 0 else 3) * (q + kv), "bwd")


def _ring_forward(tape: Tape, s: Shape, dim: str, kv: int, steps: list) -> None:
    arrived: tuple = ()
    out = ELEMENT * s.tokens * s.heads * s.model.dim_v
    for step, kernels in enumerate(steps):
        tape.wait(arrived)
        if step < len(steps) - 1:
            arrived = tape.start("cp", dim, "ring_shift", kv, "cp.ring_shift.kv", after=None if step == 0 else arrived)
        tape.compute(*kernels, *(merge(out, kv, step) if len(steps) > 1 else ()), label="attention")


def backward(tape: Tape, s: Shape, layer: int, temp: int = 0) -> None:
    """Record the backward of attention of one layer."""
    how, c = s.training.parallel.cp_comm_type, s.lay.cp
    local = s.training.sequence // c
    q, kv, out = _bytes(s)
    if c == 1:
        tape.compute(*_steps(s, layer, 1, s.heads, kv_heads(s), "bwd", local)[0], free=saved(s), temp=temp + q + kv, label="attention")
    elif how == "all_gather":
        tape.comm("cp", "all_gather", kv * c, "cp.all_gather.kv_again")
        tape.compute(*_gathered(s, layer, "bwd"), temp=temp + q + 2 * kv * c, label="attention")
        tape.comm("cp", "reduce_scatter", kv * c, "cp.reduce_scatter.kv_grad")
        tape.compute(free=saved(s))
    else:
        dim, ring_dim, low, ring = _levels(s)
        tape.comm(dim, "all_to_all", out, "cp.all_to_all.out_grad")
        _ring_backward(
            tape, ring_dim, q, kv, _steps(s, layer, ring, s.heads // low, max(1, kv_heads(s) // low), "bwd", local * low), temp + q + kv
        )
        for name, size in (
            ("q", q),
            ("k", kv * s.model.dim // (s.model.dim + s.model.dim_v)),
            ("v", kv * s.model.dim_v // (s.model.dim + s.model.dim_v)),
        ):
            tape.comm(dim, "all_to_all", size, f"cp.all_to_all.{name}_grad")
        tape.compute(free=saved(s), temp=q + kv)


def _ring_backward(tape: Tape, dim: str, q: int, kv: int, steps: list, temp: int) -> None:
    arrived: tuple = ()
    for step, kernels in enumerate(steps):
        before = tape.last()
        tape.wait(arrived)
        keys = (
            tape.start("cp", dim, "ring_shift", kv, "cp.ring_shift.kv_again", after=before if step == 0 else arrived)
            if step < len(steps) - 1
            else ()
        )
        gradients = tape.start("cp", dim, "ring_shift", kv, "cp.ring_shift.kv_grad", after=before) if step else ()
        tape.compute(*kernels, *(merge_backward(q, kv, step) if len(steps) > 1 else ()), temp=temp, label="attention")
        arrived = keys
        if step == len(steps) - 1:
            tape.wait(gradients)
