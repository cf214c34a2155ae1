"""All tokens of the expert-parallel group come to every GPU, which picks those of its experts. Source: Megatron-Core
`MoEAllGatherTokenDispatcher`.

Routing map (1 byte per expert), probabilities and hidden states are gathered over the tensor- and expert-parallel group; results are
reduce-scattered. Backward mirrors both.
"""

from workload.dispatchers.alltoall import Beside, exchange
from workload.ops import ELEMENT, moved
from workload.shape import Shape
from workload.tape import Tape


def _everyone(s: Shape) -> int:
    return s.expert_shard * s.lay.etp * s.lay.ep


def _hidden(s: Shape) -> int:
    return ELEMENT * _everyone(s) * s.model.hidden


def _pick(s: Shape, rows: int, direction: str = "fwd") -> tuple:
    return (moved("permute", 4 * rows * s.model.hidden, direction),)


def dispatch(tape: Tape, s: Shape, rows: int, beside: Beside) -> None:
    """Gather all tokens, pick one's own."""
    tape.comm("tp_ep", "all_gather", _everyone(s) * s.model.experts, "ep.all_gather.map")
    tape.comm("tp_ep", "all_gather", 4 * _everyone(s) * s.model.experts, "ep.all_gather.probs")
    exchange(tape, [("tp_ep", "all_gather", _hidden(s), "ep.all_gather.hidden")], beside)
    tape.compute(*_pick(s, rows), temp=_hidden(s), label="permute")


def combine(tape: Tape, s: Shape, rows: int, beside: Beside) -> None:
    """Put results in place and sum them over the group."""
    tape.compute(*_pick(s, rows), temp=_hidden(s), label="permute")
    exchange(tape, [("tp_ep", "reduce_scatter", _hidden(s), "ep.reduce_scatter.hidden")], beside)


def combine_backward(tape: Tape, s: Shape, rows: int, beside: Beside) -> None:
    """Backward of `combine`."""
    exchange(tape, [("tp_ep", "all_gather", _hidden(s), "ep.all_gather.hidden_grad")], beside)
    tape.compute(*_pick(s, rows, "bwd"), temp=_hidden(s), label="permute")


def dispatch_backward(tape: Tape, s: Shape, rows: int, beside: Beside) -> None:
    """Backward of `dispatch`."""
    tape.compute(*_pick(s, rows, "bwd"), temp=_hidden(s), label="permute")
    exchange(tape, [("tp_ep", "reduce_scatter", _hidden(s), "ep.reduce_scatter.hidden_grad")], beside)
    tape.comm("tp_ep", "reduce_scatter", 4 * _everyone(s) * s.model.experts, "ep.reduce_scatter.probs_grad")
