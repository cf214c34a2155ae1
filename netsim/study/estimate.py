"""A fast model of one layout: iteration time and memory from one layer, recorded once for every way to cut it.

Theory. The layer of a layout depends on (tp, cp, ep, micro-batch, recompute) alone. The workload records it as in a full run, with one
layer and no pipeline: f, b (seconds of kernels and of communication on their stream, forward and backward with recomputation), the same of
embedding and head, the parameters of each, and the bytes that a layer keeps (two layers less one). With p stages of v chunks, m
microbatches, and l layers per stage an iteration takes

    m t + (p - 1) t' / v + 2 m x (v = 1) + 2 (p - 1) x + data parallelism + optimizer

where t is forward and backward of the slowest stage, t' of a stage in the middle, x the time of one pipeline message (hidden in the steady
state with interleaving). Data parallelism counts as far as reduce-scatter and all-gather take longer than the compute that hides them.
Memory: parameters by sharding, and kept bytes of the microbatches in flight: min(m, p - r) on stage r in 1F1B, and
2 (p - r - 1) + (v - 1) p + 1 chunks with interleaving. Collectives take what they take on an idle machine. Assumed: no contention, even
stages, the network free for each in turn.
"""

from typing import NamedTuple

import numpy as np

from compute.api import Device, load_device, peak_flops
from netsim import collectives
from netsim.collectives.platform import generation
from netsim.config import Run
from netsim.config.workload import Training
from netsim.errors import InputError
from netsim.study.layouts import Layout
from netsim.study.piece import Piece, parameters, record
from workload.flops import flops_per_step

RESERVED = 1.5e9
"""Bytes of a GPU that CUDA, NCCL and fragmentation take; of the order of what nvidia-smi shows beside the allocator's peak."""


class Estimate(NamedTuple):
    """Seconds of an iteration, share of peak, bytes of the fullest GPU; `why` where the layout loses before its time is known."""

    time_s: float
    mfu: float
    memory: float
    why: str = ""


class Model:
    """Estimates layouts of one run; pieces and collective times are kept."""

    def __init__(self, run: Run, memory: float) -> None:
        if not isinstance(run.workload, Training) or run.compute is None:
            raise InputError("workload.kind: expected training, whose layout is searched for; got traffic")
        self.run, self.base = run, run.workload
        self.device: Device = load_device(run.compute)
        self.room = memory * run.compute.device.memory
        self.gpus, self.per_node = run.topology.nodes * run.topology.gpus_per_node, run.topology.gpus_per_node
        self.flops = flops_per_step(self.base)
        self.peak = float(peak_flops(self.device, self.base.precision.gemm))
        self.platform = platform_of(run)
        self._pieces: dict[tuple[object, ...], Piece] = {}
        self._parts: dict[tuple[int, ...], dict[str, tuple[int, int]]] = {}
        self._times: dict[tuple[object, ...], tuple[float, float]] = {}

    def estimate(self, layout: Layout, training: Training) -> Estimate:
        """Estimate a layout; what the parameters alone do not let fit is not looked at any further."""
        static = self._static(layout, training)
        if max(static) + RESERVED > self.room:
            return Estimate(np.inf, 0.0, max(static) + RESERVED, "parameters do not fit")
        piece = self._piece(layout, training)
        memory = self._memory(layout, piece, static) + RESERVED
        if memory > self.room:
            return Estimate(np.inf, 0.0, memory, "activations do not fit")
        time_s = self._time(layout, piece)
        return Estimate(time_s, self.flops / time_s / self.gpus / self.peak, memory)

    # --- parameters and memory

    def _numel(self, layout: Layout, training: Training) -> dict[str, tuple[int, int]]:
        """(dense, expert) parameters of a layer, the embedding and the head on one GPU."""
        key = (layout.tp, layout.ep)
        if key not in self._parts:
            self._parts[key] = parameters(layout, training, self.per_node)
        return self._parts[key]

    def _static(self, layout: Layout, training: Training) -> list[float]:
        """Bytes of weights, gradients and optimizer state on the first and the last stage."""
        parts = self._numel(layout, training)
        per_stage = self.base.model.layers // layout.pp
        out = []
        for ends in [("embedding", "head")] if layout.pp == 1 else [("embedding",), ("head",)]:
            numel = [per_stage * parts["layer"][kind] + sum(parts[name][kind] for name in ends) for kind in (0, 1)]
            total = sum(n * self._bytes_per_parameter(layout, kind) for kind, n in enumerate(numel))
            if layout.sharding == "full":  # what is gathered, and the gradients of one unit
                unit = max(sum(part) for part in parts.values())
                total += 2 * min(sum(numel), unit + training.data_parallel.prefetch) + 4 * unit
            out.append(total)
        return out

    def _shards(self, layout: Layout, kind: int) -> int:
        """GPUs that share the optimizer state of dense (0) or expert (1) parameters."""
        outer = self.gpus // (layout.pp * (layout.ep if kind else layout.tp))
        return 1 if layout.sharding == "none" else max(1, outer)

    def _bytes_per_parameter(self, layout: Layout, kind: int) -> float:
        shards = self._shards(layout, kind)
        weights = 2 / shards if layout.sharding == "full" else 2
        gradients = 4 / shards if layout.sharding in ("gradients", "full") else 4
        return weights + gradients + 12 / shards

    def _memory(self, layout: Layout, piece: Piece, static: list[float]) -> float:
        """Bytes at the peak of the fuller one of first and last stage."""
        p, v = layout.pp, layout.vpp
        m = self._microbatches(layout)
        per_chunk = self.base.model.layers / p / v * piece.kept
        first = min(m * v, 2 * (p - 1) + (v - 1) * p + 1) if v > 1 else min(m, p)
        last = min(m * v, (v - 1) * p + 1) if v > 1 else 1
        if p == 1:
            return static[0] + per_chunk + piece.meanwhile_head
        return max(static[0] + first * per_chunk + piece.meanwhile, static[1] + last * per_chunk + piece.meanwhile_head)

    def _microbatches(self, layout: Layout) -> int:
        return self.base.global_batch // (layout.micro_batch * (self.gpus // (layout.tp * layout.pp * layout.cp)))

    # --- time

    def _time(self, layout: Layout, piece: Piece) -> float:
        p, v, m = layout.pp, layout.vpp, self._microbatches(layout)
        per_stage = self.base.model.layers // p
        layer, ends = piece.layer, (piece.embedding, piece.head)
        middle = per_stage * (layer.forward_s + layer.backward_s)
        extra = [part.forward_s + part.backward_s for part in ends]
        slowest = middle + (sum(extra) if p == 1 else max(extra))
        message = self._message_s(layout, piece) if p > 1 else 0.0
        pipeline = m * slowest + (p - 1) * middle / v + 2 * (p - 1) * message + (2 * m * message if p > 1 and v == 1 else 0.0)
        return pipeline + self._data_parallel_s(layout, piece, per_stage, m) + self._optimizer_s(layout, piece, per_stage)

    def _message_s(self, layout: Layout, piece: Piece) -> float:
        apart = 0 if layout.tp * layout.cp * layout.pp <= self.per_node and self.gpus <= self.per_node else 1
        comm = collectives.Communicator((0, apart), (0, 0 if apart else 1), ranks=layout.pp)
        return self._call_s("sendrecv", piece.message, comm)

    def _call(self, op: str, nbytes: int, comm: collectives.Communicator) -> tuple[float, float]:
        """Seconds of a collective on an idle machine, and seconds that it takes from the kernels beside it on the SMs that it occupies."""
        key = (op, nbytes, comm)
        if key not in self._times:
            plan = collectives.plan(op, nbytes, comm, self.platform, self.run.nccl)
            seconds = collectives.idle_us(plan) * 1e-6
            self._times[key] = seconds, seconds * plan.channels / self.device.card.sms
        return self._times[key]

    def _call_s(self, op: str, nbytes: int, comm: collectives.Communicator) -> float:
        return self._call(op, nbytes, comm)[0]

    def _piece(self, layout: Layout, training: Training) -> Piece:
        key = (layout.tp, layout.cp, layout.ep, layout.micro_batch, layout.recompute)
        if key not in self._pieces:
            self._pieces[key] = record(layout, training, self._numel(layout, training), self.device, self.per_node, self._call_s)
        return self._pieces[key]

    def _group(self, layout: Layout, kind: int) -> collectives.Communicator:
        """The data-parallel group of the first GPU: every tp-th (ep-th for experts) GPU of a stage."""
        stride = layout.ep if kind else layout.tp
        members = range(0, self.gpus // layout.pp, stride)
        return collectives.Communicator(tuple(g // self.per_node for g in members), tuple(g % self.per_node for g in members))

    def _data_parallel_s(self, layout: Layout, piece: Piece, per_stage: int, m: int) -> float:
        """What reduce-scatter and all-gather of the larger end stage take beyond the compute that hides them."""
        end = max(piece.embedding, piece.head, key=lambda part: part.dense)
        total = 0.0
        for kind, numel in ((0, per_stage * piece.layer.dense + end.dense), (1, per_stage * piece.layer.expert)):
            comm = self._group(layout, kind)
            if not numel or len(comm.node) == 1:
                continue
            if layout.sharding == "none":
                (reduce, slower), (gather, slow) = self._call("all_reduce", 4 * numel, comm), (0.0, 0.0)
            else:
                (reduce, slower), (gather, slow) = self._call("reduce_scatter", 4 * numel, comm), self._call("all_gather", 2 * numel, comm)
            forward, backward = per_stage * piece.layer.forward_s, per_stage * piece.layer.backward_s
            if layout.sharding == "full":  # every chunk waits for its first layer, in every microbatch
                ahead = max(slow, gather - forward) + max(slow + slower, gather + reduce - backward)
                total += m * (ahead + layout.vpp * (2 * gather + reduce) / per_stage)
            elif layout.sharding == "gradients":
                total += m * max(slower, reduce - backward) + reduce / per_stage + max(gather / per_stage, gather - forward)
            else:  # with a pipeline Megatron starts the buckets of all but the first stage when the last backward ends
                hidden = backward * (1 - 1 / per_stage) if layout.pp == 1 else 0.0
                total += max(reduce / per_stage, reduce - hidden) + max(gather / per_stage, gather - forward)
        return total

    def _optimizer_s(self, layout: Layout, piece: Piece, per_stage: int) -> float:
        """Adam over the shard (30 bytes per parameter), clearing and norm of the gradients (8 bytes)."""
        card = self.device.card
        end = max(piece.embedding.dense, piece.head.dense)
        nbytes = 0.0
        for kind, numel in ((0, per_stage * piece.layer.dense + end), (1, per_stage * piece.layer.expert)):
            nbytes += numel * (4 + 34 / self._shards(layout, kind))
        return nbytes / (card.hbm * card.hbm_efficiency)


def platform_of(run: Run) -> collectives.Platform:
    """The node as NCCL finds it, from the run file alone."""
    assert run.compute is not None
    fabric = run.topology
    rate = fabric.tier(1).rate or fabric.link.rate
    ports = fabric.planes if fabric.builder == "dual_plane" else 1
    pcie = int(np.clip(round(np.log2(fabric.host.rate / 15.75e9)) + 3, 3, 6))
    return collectives.Platform(
        generation(run.compute.device.arch, fabric.scale_up.rate), fabric.gpus_per_node, fabric.nics, rate * ports,
        run.nccl.cpu or fabric.host.cpu, fabric.scale_up.rate, pcie, rails_joined=fabric.spines == "shared", kind=fabric.scale_up.kind,
        islands=fabric.scale_up.islands, between=fabric.scale_up.between or float("inf"),
    )  # fmt: skip
