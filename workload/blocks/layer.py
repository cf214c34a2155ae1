"""A transformer layer: an attention half and an MLP half, and operations of one's own; multi-token-prediction modules around it."""

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import ModuleType

from workload.found import found
from workload.params import Param
from workload.shape import Shape
from workload.stages import Chunk
from workload.tape import Tape


def halves(s: Shape, layer: int) -> list[ModuleType]:
    """Return the modules of a layer in order; each has `params`, `forward` and `backward`."""
    first = "mla" if s.model.attention == "mla" else "attention"
    second = "moe" if s.model.is_moe(layer) else "mlp"
    return [
        import_module(f"workload.blocks.{first}"),
        import_module(f"workload.blocks.{second}"),
        *(found("blocks", b) for b in s.model.blocks),
    ]


def params(s: Shape, layer: int) -> list[Param]:
    """Parameters in order of registration."""
    return [p for half in halves(s, layer) for p in half.params(s)]


def forward(tape: Tape, s: Shape, layer: int) -> None:
    """Record the forward pass of a layer."""
    for number, half in enumerate(halves(s, layer)):
        with _launched(tape, s, number):
            half.forward(tape, s, layer)


def backward(tape: Tape, s: Shape, layer: int) -> None:
    """Record the backward pass of a layer."""
    for number, half in reversed(list(enumerate(halves(s, layer)))):
        with _launched(tape, s, number):
            half.backward(tape, s, layer)


def _launched(tape: Tape, s: Shape, number: int) -> AbstractContextManager[None]:
    """How the host launches a half of a layer: attention as one CUDA graph where layers have them, else kernel by kernel."""
    return tape.at_cost(1) if s.training.kernels.graphs == "layers" and number == 0 else nullcontext()


def gemms(s: Shape, layer: int) -> int:
    """Return how many linear layers of a layer TransformerEngine holds on one GPU; every expert's count."""
    experts = 2 * (s.local_experts - 1) if s.model.is_moe(layer) else 0
    return experts + sum(len(half.shapes(s)) for half in halves(s, layer))


def weight_shapes(s: Shape, chunk: Chunk) -> list[tuple[int, int]]:
    """Return (outputs, inputs) of every linear weight of a chunk that TransformerEngine holds, on one GPU."""
    return [shape for index in range(chunk.first, chunk.first + chunk.layers) for half in halves(s, index) for shape in half.shapes(s)]
