"""Which layers, embedding and head each model chunk of each pipeline stage holds.

Source: Megatron-Core `transformer_block.get_num_layers_to_build` and `pipeline_parallel_layer_layout`.
"""

import re
from typing import NamedTuple

from netsim.config.workload import Training


class Chunk(NamedTuple):
    """One model chunk: consecutive layers, and what stands before and after them."""

    first: int
    layers: int
    embedding: bool = False
    head: bool = False
    mtp: int = 0


def chunks(training: Training, virtual_stages: int) -> list[Chunk]:
    """Return the chunk of every virtual stage in order of layers; `ValueError` says what does not divide."""
    if training.pipeline.layout:
        return _explicit(training.pipeline.layout, training, virtual_stages)
    counts = _counts(training, virtual_stages)
    out, first = [], 0
    for index, count in enumerate(counts):
        last = index == virtual_stages - 1
        out.append(Chunk(first, count, index == 0, last, training.model.mtp_layers if last else 0))
        first += count
    return out


def _counts(training: Training, n: int) -> list[int]:
    pipe, layers, pp = training.pipeline, training.model.layers, training.parallel.pp
    v = n // pp
    ends = pipe.first_stage_layers, pipe.last_stage_layers
    if ends != (None, None) and pp > 1:
        return _uneven(layers, pp, v, ends)
    pseudo = int(pipe.embedding_as_layer) + int(pipe.loss_as_layer)
    if (layers + pseudo) % n:
        extra = f" plus {pseudo} for embedding and loss" if pseudo else ""
        raise ValueError(f"model.layers: expected a multiple of pp x vpp = {n}{extra}; got {layers}")
    counts = [(layers + pseudo) // n] * n
    counts[0] -= int(pipe.embedding_as_layer)
    counts[-1] -= int(pipe.loss_as_layer)
    return counts


def _uneven(layers: int, pp: int, v: int, ends: tuple[int | None, int | None]) -> list[int]:
    """First and last stage as given, the others share the rest; every stage is dealt out over its v chunks."""
    given = [e for e in ends if e is not None]
    rest, stages = layers - sum(given), pp - len(given)
    if rest < 0 or (stages and rest % stages) or (not stages and rest):
        raise ValueError(
            f"pipeline: expected {layers} layers to fill {pp} stages with {given} in the first or last; {rest} are left for {stages}"
        )
    per_stage = [rest // stages if stages else 0] * pp
    if ends[0] is not None:
        per_stage[0] = ends[0]
    if ends[1] is not None:
        per_stage[-1] = ends[1]
    for count in per_stage:
        if count % v:
            raise ValueError(f"parallel.vpp: expected a divisor of the layers of every stage {per_stage}; got {v}")
    return [per_stage[i % pp] // v for i in range(pp * v)]


LONGEST = 100_000
"""Letters and bars of a layout that is written out; a model has 10,000 layers at most."""


def _explicit(layout: str, training: Training, n: int) -> list[Chunk]:
    """Expand 'Et*3|(tt|)*29m|L' into chunks."""
    text = layout.replace(" ", "").replace(",", "")
    while match := re.search(r"\(([^()]*)\)\*(\d+)|([EtmL])\*(\d+)", text):
        body, times = (match[1], match[2]) if match[1] is not None else (match[3], match[4])
        if len(text) + int(times) * len(body) > LONGEST:
            raise ValueError(f"pipeline.layout: expected at most {LONGEST:,} parts and layers; got {layout}")
        text = text[: match.start()] + body * int(times) + text[match.end() :]
    parts = text.split("|")
    if set(text) - set("EtmL|"):
        raise ValueError(f"pipeline.layout: expected E, t, m, L, '|', '*' and brackets; got {layout}")
    if len(parts) != n:
        raise ValueError(f"pipeline.layout: expected {n} parts (pp x vpp); got {len(parts)}")
    if (text.count("E"), text.count("L"), text.count("t")) != (1, 1, training.model.layers) or text.count("m") != training.model.mtp_layers:
        raise ValueError(
            f"pipeline.layout: expected one E, one L, {training.model.layers} t and {training.model.mtp_layers} m; got {layout}"
        )
    if not text.startswith("E") or "L" not in parts[-1]:
        raise ValueError(f"pipeline.layout: expected E at the beginning and L in the last part; got {layout}")
    out, first = [], 0
    for part in parts:
        out.append(Chunk(first, part.count("t"), "E" in part, "L" in part, part.count("m")))
        first += part.count("t")
    return out
