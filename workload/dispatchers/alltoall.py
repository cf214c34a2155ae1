"""Tokens go to their experts by all-to-all. Source: Megatron-Core `MoEAlltoAllTokenDispatcher`.

Counts are gathered over the tensor- and expert-parallel group (unless splits are fixed), token copies are permuted by expert and
exchanged, their probabilities beside them; expert tensor parallelism gathers both before the experts and scatters their sums after.
"""

from collections.abc import Callable

from workload.ops import ELEMENT, moved
from workload.shape import Shape
from workload.tape import Tape

Beside = Callable[[], None] | None


def _permute(s: Shape, direction: str = "fwd") -> tuple:
    return (moved("permute", ELEMENT * (s.expert_shard + s.routed_rows) * s.model.hidden, direction),)


def _sort(s: Shape, rows: int, direction: str = "fwd") -> tuple:
    return (moved("permute", 4 * rows * s.model.hidden, direction),) if s.local_experts > 1 else ()


def _unpermute(s: Shape, direction: str = "fwd") -> tuple:
    rows, h = s.routed_rows, s.model.hidden
    return (moved("unpermute", 4 * rows * h + ELEMENT * (rows + s.expert_shard) * h, direction),)


def row_bytes(s: Shape) -> float:
    """Bytes of a dispatched row: 16 bits, or 8 bits with a 32-bit scale per 128 features."""
    h = s.model.hidden
    return h * (1 + 4 / 128) if s.training.precision.dispatch == "fp8" else h * ELEMENT


def hidden_bytes(s: Shape, rows: int, dispatch: bool) -> int:
    """Bytes that one GPU sends: its share before expert tensor parallelism gathers rows."""
    return round(rows / s.lay.etp * (row_bytes(s) if dispatch else s.model.hidden * ELEMENT))


def _probs(s: Shape, rows: int) -> int:
    """Bytes of the probabilities of so many rows."""
    return rows * (4 if s.training.experts.probs_dtype == "fp32" else 2)


def exchange(tape: Tape, calls: list[tuple[str, str, int, str]], beside: Beside) -> None:
    """Run calls one after another, on the compute stream or with `beside` next to them."""
    if beside is None:
        tape.exchange(calls)
        return
    handles = [tape.start("ep", *call) for call in calls]
    beside()
    tape.wait(*handles)


def dispatch(tape: Tape, s: Shape, rows: int, beside: Beside) -> None:
    """Send token copies to their experts."""
    if not (s.training.experts.pad_to_capacity and s.training.experts.capacity_factor):
        tape.comm("tp_ep", "all_gather", 8 * s.model.experts * s.lay.etp * s.lay.ep, "ep.all_gather.counts")
    tape.compute(*_permute(s), label="permute")
    exchange(
        tape,
        [
            ("ep", "all_to_all", hidden_bytes(s, rows, True), "ep.all_to_all.dispatch"),
            ("ep", "all_to_all", _probs(s, rows // s.lay.etp), "ep.all_to_all.probs"),
        ],
        beside,
    )
    tape.comm("expt_tp", "all_gather", ELEMENT * rows * s.model.hidden, "ep.all_gather.rows")
    tape.comm("expt_tp", "all_gather", _probs(s, rows), "ep.all_gather.row_probs")
    tape.compute(*_sort(s, rows), label="permute")


def combine(tape: Tape, s: Shape, rows: int, beside: Beside) -> None:
    """Bring results back and add them up."""
    tape.compute(*_sort(s, rows), label="permute")
    tape.comm("expt_tp", "reduce_scatter", ELEMENT * rows * s.model.hidden, "ep.reduce_scatter.rows")
    exchange(tape, [("ep", "all_to_all", hidden_bytes(s, rows, False), "ep.all_to_all.combine")], beside)
    tape.compute(*_unpermute(s), label="permute")


def combine_backward(tape: Tape, s: Shape, rows: int, beside: Beside) -> None:
    """Backward of `combine`: gradients go where the results came from."""
    tape.compute(*_unpermute(s, "bwd"), label="permute")
    exchange(tape, [("ep", "all_to_all", hidden_bytes(s, rows, False), "ep.all_to_all.combine_grad")], beside)
    tape.comm("expt_tp", "all_gather", ELEMENT * rows * s.model.hidden, "ep.all_gather.rows_grad")
    tape.compute(*_sort(s, rows, "bwd"), label="permute")


def dispatch_backward(tape: Tape, s: Shape, rows: int, beside: Beside) -> None:
    """Backward of `dispatch`."""
    tape.compute(*_sort(s, rows, "bwd"), label="permute")
    tape.comm("expt_tp", "reduce_scatter", _probs(s, rows), "ep.reduce_scatter.row_probs_grad")
    tape.comm("expt_tp", "reduce_scatter", ELEMENT * rows * s.model.hidden, "ep.reduce_scatter.rows_grad")
    exchange(
        tape,
        [
            ("ep", "all_to_all", hidden_bytes(s, rows, False), "ep.all_to_all.dispatch_grad"),
            ("ep", "all_to_all", _probs(s, rows // s.lay.etp), "ep.all_to_all.probs_grad"),
        ],
        beside,
    )
    tape.compute(*_permute(s, "bwd"), label="permute")
