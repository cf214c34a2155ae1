"""Forward, backward and weight-gradient blocks of a model chunk, recorded once for all chunks that look alike."""

from workload.blocks import embedding, head, layer, moe, mtp
from workload.ops import ELEMENT, limited
from workload.shape import Shape
from workload.stages import Chunk
from workload.tape import EMBEDDING, HEAD, Block, Tables, Tape
from workload.weave import weave


class Blocks:
    """Recorded blocks by what they contain."""

    def __init__(self, s: Shape, tables: Tables) -> None:
        self.s = s
        self.tables = tables
        self._known: dict[tuple, tuple[Block, Block]] = {}

    def forward(self, chunk: Chunk) -> Block:
        """Forward pass of a chunk."""
        return self._recall("forward", chunk, False)[0]

    def backward(self, chunk: Chunk) -> Block:
        """Backward pass of a chunk."""
        return self._recall("backward", chunk, False)[0]

    def inputs(self, chunk: Chunk) -> Block:
        """Gradients of the inputs of a chunk."""
        return self._recall("backward", chunk, True)[0]

    def weights(self, chunk: Chunk) -> Block:
        """Gradients of the weights of a chunk."""
        return self._recall("backward", chunk, True)[1]

    def woven(self, forward: Chunk, backward: Chunk) -> Block:
        """Forward pass of a chunk woven into the backward pass of another."""
        delayed = self.s.training.experts.delay_wgrad
        one, two = self.forward(forward), self.inputs(backward) if delayed else self.backward(backward)
        key = ("woven", id(one), id(two))
        if key not in self._known:
            self._known[key] = weave(one, two, self.weights(backward) if delayed else None), one
        return self._known[key][0]

    def _recall(self, kind: str, chunk: Chunk, split: bool) -> tuple[Block, Block]:
        s = self.s
        alike = tuple((s.model.is_moe(x), limited(s.model, x), moe.load(s, x)) for x in range(chunk.first, chunk.first + chunk.layers))
        key = (kind, split, chunk.embedding, chunk.head, chunk.mtp, alike)
        if key not in self._known:
            how = s.launch == "late", s.training.kernels.graphs != "iteration"
            tape = Tape(self.tables, kind, s.group_sizes(), *how)
            tape.deferred = Tape(self.tables, kind, s.group_sizes(), *how) if split else None
            (record_forward if kind == "forward" else record_backward)(tape, s, chunk)
            self._known[key] = tape.block(), (tape.deferred or Tape(self.tables, kind, {})).block()
        return self._known[key]


def _kept_input(s: Shape) -> int:
    """Bytes of the layer input that full recomputation keeps."""
    return ELEMENT * s.shard * s.model.hidden


def _recomputed_layers(s: Shape, chunk: Chunk) -> list[range]:
    """Runs of layers (counted from the chunk's first) that are recomputed together."""
    how = s.training.recompute
    if how.granularity != "full":
        return []
    if how.method == "block":
        return [range(i, i + 1) for i in range(min(how.layers or chunk.layers, chunk.layers))]
    step = how.layers or 1
    return [range(i, min(i + step, chunk.layers)) for i in range(0, chunk.layers, step)]


def record_forward(tape: Tape, s: Shape, chunk: Chunk) -> None:
    """Record embedding, layers, head of a chunk."""
    if chunk.embedding:
        tape.at(EMBEDDING)
        embedding.forward(tape, s)
    runs = _recomputed_layers(s, chunk)
    for run in runs:
        tape.forget(lambda run=run: _layers(tape, s, chunk, run), keep=_kept_input(s))  # type: ignore[misc]
    _layers(tape, s, chunk, range(sum(len(r) for r in runs), chunk.layers))
    _maxima(tape, s, chunk, 3)
    if chunk.head:
        tape.at(HEAD)
        head.forward(tape, s)
    for i in range(chunk.mtp):
        tape.at(chunk.layers + i)
        mtp.forward(tape, s, s.model.layers + i)


def _layers(tape: Tape, s: Shape, chunk: Chunk, run: range) -> None:
    for i in run:
        tape.at(i)
        layer.forward(tape, s, chunk.first + i)


def record_backward(tape: Tape, s: Shape, chunk: Chunk) -> None:
    """Record the backward pass of a chunk."""
    for i in reversed(range(chunk.mtp)):
        tape.at(chunk.layers + i)
        mtp.backward(tape, s, s.model.layers + i)
    if chunk.head:
        tape.at(HEAD)
        head.backward(tape, s)
    runs = _recomputed_layers(s, chunk)
    for i in reversed(range(sum(len(r) for r in runs), chunk.layers)):
        tape.at(i)
        layer.backward(tape, s, chunk.first + i)
    for run in reversed(runs):
        tape.at(run.start)
        tape.again(lambda run=run: _layers(tape, s, chunk, run), free=_kept_input(s))  # type: ignore[misc]
        for i in reversed(run):
            tape.at(i)
            layer.backward(tape, s, chunk.first + i)
    _maxima(tape, s, chunk, 2)
    if chunk.embedding:
        tape.at(EMBEDDING)
        embedding.backward(tape, s)


def _maxima(tape: Tape, s: Shape, chunk: Chunk, tensors: int) -> None:
    """Largest values of the tensors of every 8-bit GEMM with delayed scaling: input, weight, output forward, two gradients backward.

    Source: TransformerEngine `quantization.reduce_and_update_fp8_tensors`, at the end of a pass of `TransformerBlock`.
    """
    how = s.training.precision
    if how.gemm == "fp8" and how.fp8_recipe == "delayed":
        gemms = sum(layer.gemms(s, x) for x in range(chunk.first, chunk.first + chunk.layers))
        if gemms:
            group = "tp" if how.tp_only_amax_red else "tp_dp_cp"
            tape.comm(group, "all_reduce", 4 * tensors * gemms, f"{'tp' if how.tp_only_amax_red else 'dp'}.all_reduce.amax")
