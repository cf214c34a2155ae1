"""Parameters of one GPU in the order in which Megatron registers them."""

from typing import NamedTuple

from workload.shape import Shape
from workload.stages import Chunk
from workload.tape import EMBEDDING, HEAD


class Param(NamedTuple):
    """One parameter tensor on one GPU.

    module and layer say whose gradient it is (EMBEDDING or HEAD outside layers); `replicated` over the tensor-parallel group in a
    sequence-parallel region, so that its gradient is summed there; `tied` to the embedding of the other end of the pipeline.
    """

    module: str
    numel: int
    layer: int = -1
    expert: bool = False
    replicated: bool = False
    tied: bool = False


def of_norm(s: Shape, module: str, width: int) -> list[Param]:
    """Scale (and shift) of a norm."""
    return [Param(module, width, replicated=True)] * (2 if s.model.norm == "layernorm" else 1)


def of_linear(s: Shape, module: str, rows: int, columns: int, bias: bool = False, replicated_bias: bool = False) -> list[Param]:
    """Weight rows x columns and a bias over the rows."""
    return [Param(module, rows * columns)] + ([Param(module, rows, replicated=replicated_bias)] if bias else [])


def of_chunk(s: Shape, chunk: Chunk, held: list[Chunk]) -> list[Param]:
    """All parameters of a model chunk of a stage that holds the chunks `held`.

    A stage holds one matrix for all that use it. What embeds on another stage than the first (a tied output layer, multi-token prediction)
    has a copy there, whose gradient is summed with that of the original. Source: Megatron-Core
    `language_module.setup_embeddings_and_output_layer`.
    """
    from workload.blocks import embedding, head, layer, mtp

    first = any(c.embedding for c in held)
    copied = s.lay.pp > 1 and (s.model.tied or s.model.mtp_layers > 0) and not (first and any(c.head for c in held))
    out: list[Param] = []
    if chunk.embedding or (chunk.mtp and not first):
        at = EMBEDDING if chunk.embedding else s.model.layers  # the first multi-token module
        out += [p._replace(layer=at) for p in embedding.params(s, tied=copied, positions=chunk.embedding)]
    for index in range(chunk.first, chunk.first + chunk.layers):
        out += [p._replace(layer=index) for p in layer.params(s, index)]
    if chunk.head:
        own = not (s.model.tied and (first or any(c.mtp for c in held)))
        out += [p._replace(layer=HEAD) for p in head.params(s, own, tied=s.model.tied and copied)]
    for index in range(s.model.layers, s.model.layers + chunk.mtp):
        out += [p._replace(layer=index) for p in mtp.params(s, index)]
    return out
