"""One layer of a layout, recorded by the workload as in a full run: what it takes, keeps and sends; likewise embedding and head."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from compute.api import Device
from netsim.collectives import Communicator
from netsim.config.workload import Training
from netsim.kernels.structs import CATEGORIES, COMM
from netsim.study.layouts import Layout
from workload.api import Workload, build
from workload.layout import layout_of
from workload.memory import Memory, memory_of
from workload.params import of_chunk
from workload.programs import play_all
from workload.shape import Shape
from workload.stages import Chunk
from workload.tape import Tables

Seconds = Callable[[str, int, Communicator], float]
"""Time of a collective: operation, bytes, members."""


class Part(NamedTuple):
    """Layer, embedding or head: seconds per microbatch, and parameters of one GPU, dense and of experts."""

    forward_s: float
    backward_s: float
    dense: int
    expert: int


class Piece(NamedTuple):
    """What was recorded. Bytes per microbatch: kept by a layer, used meanwhile without and with the head; a pipeline message."""

    layer: Part
    embedding: Part
    head: Part
    kept: float
    meanwhile: float
    meanwhile_head: float
    message: int


def record(
    layout: Layout, training: Training, numel: dict[str, tuple[int, int]], device: Device, per_node: int, seconds: Seconds
) -> Piece:
    """Record a layer of a layout; `numel` are its parameters."""
    one, n = _small(training, 1, layout), _world(layout)
    work = build(one, n, per_node, device)
    times = _times(work, per_node, seconds)
    bare = replace(one, model=replace(one.model, vocab=128))
    kept_1, peak_1 = _beyond_parameters(work.memory[0])
    kept_2, _ = _activations(_small(training, 2, layout), n, per_node)
    _, peak_0 = _activations(bare, n, per_node)
    kept = kept_2 - kept_1
    layer, embedding, head = (Part(*times[name], *numel[name]) for name in ("layer", "embedding", "head"))
    return Piece(layer, embedding, head, kept, max(0.0, peak_0 - kept), max(0.0, peak_1 - kept), work.shape.shard_bytes)


def parameters(layout: Layout, training: Training, per_node: int) -> dict[str, tuple[int, int]]:
    """(dense, expert) parameters of a layer, the embedding and the head on one GPU."""
    small = _small(training, 1, layout)
    s = Shape(small, layout_of(small, _world(layout), per_node))
    chunks = {"layer": Chunk(0, 1), "embedding": Chunk(0, 0, embedding=True), "head": Chunk(0, 0, head=True)}
    found = {name: of_chunk(s, chunk, [chunk]) for name, chunk in chunks.items()}
    return {name: (sum(p.numel for p in ps if not p.expert), sum(p.numel for p in ps if p.expert)) for name, ps in found.items()}


def _times(work: Workload, per_node: int, seconds: Seconds) -> dict[str, tuple[float, float]]:
    """(forward, backward) seconds of layer, embedding and head: those of the compute stream, or of all others where these are longer."""
    p = work.programs
    found = {name: np.zeros((2, 2)) for name in ("layer", "embedding", "head")}
    for stream in range(p.n_streams):
        rows = [r for r in range(int(p.stream_ptr[stream]), int(p.stream_ptr[stream + 1])) if _counts(work, r)]
        inside = [r for r in rows if p.layer[r] >= 0]
        turn = next((r for r in rows if _turns(work, r)), 1 << 62)
        first, first_back = inside[0] if inside else 1 << 62, next((r for r in inside if r >= turn), 1 << 62)
        for row in rows:
            backward = row >= turn
            ahead = row < (first_back if backward else first)
            name = "layer" if p.layer[row] >= 0 else "embedding" if ahead != backward else "head"
            spent = _call_s(work, row, per_node, seconds) if p.kind[row] == COMM else float(p.duration[row]) * 1e-12
            found[name][int(backward), int(stream > 0)] += spent
    return {name: (float(t[0].max()), float(t[1].max())) for name, t in found.items()}


def _counts(work: Workload, row: int) -> bool:
    """Whether a row belongs to the microbatch and not to the optimizer or the exchange of gradients."""
    p = work.programs
    return bool(p.layer[row] >= 0 or p.microbatch[row] >= 0) and CATEGORIES[p.category[row]] not in ("optimizer", "dp")


def _turns(work: Workload, row: int) -> bool:
    """Whether a row is one of the backward pass, by its kind or by the name of its call."""
    name = _name(work, row)
    return CATEGORIES[work.programs.category[row]] in ("backward", "recompute") or "grad" in name or name.endswith("_input")


def _name(work: Workload, row: int) -> str:
    p = work.programs
    return work.calls.name[p.call[row]] if p.kind[row] == COMM else ""


def _call_s(work: Workload, row: int, per_node: int, seconds: Seconds) -> float:
    p, groups = work.programs, work.groups
    group = int(groups.group_of[p.dim[row], 0])
    members = groups.member_idx[groups.member_ptr[group] : groups.member_ptr[group + 1]].tolist()
    comm = Communicator(tuple(g // per_node for g in members), tuple(g % per_node for g in members))
    return seconds(work.calls.op[p.call[row]], int(work.calls.nbytes[p.call[row]]), comm)


def _world(layout: Layout) -> int:
    """GPUs of the smallest world that holds the tensor-, context- and expert-parallel groups of a layout."""
    dense = layout.tp * layout.cp
    return dense * (-(-layout.ep // dense) if layout.ep > dense else 1)


def _small(training: Training, layers: int, layout: Layout) -> Training:
    """The training with so many layers (mixtures of experts where the model has any), no pipeline and one microbatch."""
    n = _world(layout)
    parallel = replace(training.parallel, pp=1, vpp=1)
    dense = replace(training.data_parallel, sharding="optimizer", overlap_grad_reduce=False, overlap_param_gather=False)
    model = replace(training.model, layers=layers, dense_layers=0, moe_every=1, mtp_layers=0)
    batch = training.micro_batch * (n // (layout.tp * layout.cp))
    pipeline = replace(training.pipeline, schedule="auto", layout="", first_stage_layers=None, last_stage_layers=None)
    return replace(training, model=model, parallel=parallel, data_parallel=dense, pipeline=pipeline, global_batch=batch)


def _activations(training: Training, gpus: int, per_node: int) -> tuple[float, float]:
    """Bytes kept at the end of the forward pass of one microbatch, and at the peak, beyond parameters."""
    s, tables = Shape(training, layout_of(training, gpus, per_node)), Tables()
    stages, programs = play_all(s, tables)
    return _beyond_parameters(memory_of(s, stages[0], programs[0], [name for name, _ in tables.segments]))


def _beyond_parameters(memory: Memory) -> tuple[float, float]:
    fixed = memory.weights + memory.gradients + memory.optimizer
    return float(memory.activations), float(memory.peak - fixed)
