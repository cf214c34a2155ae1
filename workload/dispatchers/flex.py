"""A token goes once to every node that has one of its experts, and from there to the GPUs (DeepEP, HybridEP).

Between nodes it travels to the GPU with its own local number (same rail), then over the scale-up links. For top-k routing over D domains
with E/D experts each, uniform and without replacement, a token reaches D (1 - C(E - E/D, k) / C(E, k)) domains; with a node limit n of
top-k groups, min of this and n. Source: DeepEP's README and Megatron-Core `MoEFlexTokenDispatcher`.
"""

from math import comb

from workload.dispatchers.alltoall import Beside, exchange, row_bytes
from workload.ops import ELEMENT, moved
from workload.shape import Shape
from workload.tape import Tape


def reached(experts: int, top_k: int, domains: int) -> float:
    """Expected number of distinct domains among `top_k` distinct experts."""
    return domains * (1 - comb(experts - experts // domains, top_k) / comb(experts, top_k))


def _sizes(s: Shape, row: float, load: float) -> tuple[int, int]:
    """Bytes that one GPU sends across nodes and inside its node, the share that stays included."""
    m, gpus, tokens = s.model, s.lay.etp * s.lay.ep, s.expert_shard
    nodes = gpus // s.group_sizes()["ep_node"]
    to_gpus, to_nodes = reached(m.experts, m.top_k, s.lay.ep) * s.lay.etp, reached(m.experts, m.top_k, nodes)
    if m.node_limit and nodes > 1:
        to_nodes = min(to_nodes, float(m.node_limit))
    return round(tokens * to_nodes * row * load), round(tokens * to_gpus * row * load)


def _calls(s: Shape, name: str, row: float, rows: int) -> list[tuple[str, str, int, str]]:
    across, inside = _sizes(s, row, rows / max(1, s.routed_rows * s.lay.etp))
    node = s.group_sizes()["ep_node"]
    if node == s.lay.etp * s.lay.ep:
        return [("tp_ep", "all_to_all", inside, f"ep.all_to_all.{name}")]
    return [
        ("ep_rail", "all_to_all", across, f"ep.all_to_all.{name}_rail"),
        ("ep_node", "all_to_all", inside, f"ep.all_to_all.{name}_node"),
    ]


def _sort(s: Shape, rows: int, direction: str = "fwd") -> tuple:
    return (moved("permute", 4 * rows * s.model.hidden, direction),)


def dispatch(tape: Tape, s: Shape, rows: int, beside: Beside) -> None:
    """Send tokens to nodes, then to GPUs, and copy them to their experts."""
    exchange(tape, _calls(s, "dispatch", row_bytes(s), rows), beside)
    tape.compute(*_sort(s, rows), label="permute")


def combine(tape: Tape, s: Shape, rows: int, beside: Beside) -> None:
    """Add up results inside a node, then across nodes."""
    tape.compute(*_sort(s, rows), label="permute")
    exchange(tape, _calls(s, "combine", s.model.hidden * ELEMENT, rows)[::-1], beside)


def combine_backward(tape: Tape, s: Shape, rows: int, beside: Beside) -> None:
    """Backward of `combine`: a dispatch of gradients."""
    exchange(tape, _calls(s, "combine_grad", s.model.hidden * ELEMENT, rows), beside)
    tape.compute(*_sort(s, rows, "bwd"), label="permute")


def dispatch_backward(tape: Tape, s: Shape, rows: int, beside: Beside) -> None:
    """Backward of `dispatch`: a combine of gradients."""
    tape.compute(*_sort(s, rows, "bwd"), label="permute")
    exchange(tape, _calls(s, "dispatch_grad", s.model.hidden * ELEMENT, rows)[::-1], beside)
