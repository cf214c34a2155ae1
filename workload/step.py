"""The end of an iteration: what is summed over other groups, and the optimizer.

Order: layer-norm gradients over the tensor-parallel group, tied embedding over first and last stage, expert biases, gradients divided by
the loss scale and looked through for overflow (in fp16), gradient norm, Adam
on the local shard, parameter gather unless it overlaps the next forward, success flag and loss. Bytes of the optimizer per parameter:
gradient norm reads 4, Adam reads gradient, weight and two moments and writes three, the cast to 16 bits reads 4 and writes 2. Source:
Megatron-Core `distributed/finalize_model_grads.py`, `optimizer/distrib_optimizer.py`.
"""

from workload.gradients import BYTES, Sync
from workload.ops import moved
from workload.params import Param, of_chunk
from workload.shape import Shape
from workload.stages import Chunk
from workload.timeline import Timeline


def stage_params(s: Shape, held: list[Chunk]) -> list[Param]:
    """All parameters of one GPU of a stage, each once."""
    return [p for chunk in held for p in of_chunk(s, chunk, held)]


def shard_of(s: Shape, numel: int, expert: bool) -> int:
    """Elements of the optimizer state of one GPU for `numel` parameters."""
    if s.training.data_parallel.stage == "none":
        return numel
    group = s.lay.edp if expert else s.lay.dp * s.lay.cp
    return -(-numel // max(1, group // s.lay.instances))


def begin(s: Shape, line: Timeline, params: list[Param]) -> None:
    """Clear the gradient buffers, of which sharded gradients leave a share."""
    sharded = s.training.data_parallel.stage in ("gradients", "full")
    total = sum(shard_of(s, p.numel, p.expert) if sharded else p.numel for p in params)
    line.compute([moved("memory", BYTES[s.training.data_parallel.grad_dtype] * total)], "clear gradients", timer="other")


def finish(s: Shape, line: Timeline, sync: Sync, params: list[Param], held: list[Chunk]) -> None:
    """Record everything after the last backward."""
    size = BYTES[s.training.data_parallel.grad_dtype]
    line.wait(*sync.reduced)
    replicated = sum(p.numel for p in params if p.replicated)
    if s.sp and replicated:
        line.comm("compute", "tp", "all_reduce", size * replicated, "tp.all_reduce.layernorm_grads", timer="layernorm-grads-all-reduce")
    tied = sum(p.numel for p in params if p.tied)
    if tied:
        line.comm("compute", "embd", "all_reduce", size * tied, "pp.all_reduce.embedding_grads", timer="embedding-grads-all-reduce")
    mixtures = sum(s.model.is_moe(x) for c in held for x in range(c.first, c.first + c.layers))
    if s.model.expert_bias and mixtures:
        line.comm("compute", "tp_dp_cp", "all_reduce", 4 * s.model.experts * mixtures, "dp.all_reduce.expert_bias")
    scope = ("world" if s.lay.instances == 1 else "instance") if s.training.data_parallel.stage != "none" else "mp"
    shards = [
        (kind, shard_of(s, sum(p.numel for p in params if p.expert == expert), expert))
        for kind, expert in (("dense", False), ("expert", True))
    ]
    if s.training.precision.activations == "fp16":
        line.compute([moved("memory", 2 * size * sum(shard for _, shard in shards))], "unscale gradients")
        line.comm("compute", scope, "all_reduce", 4, "dp.all_reduce.found_inf", timer="optimizer")
    for kind, shard in shards if s.training.clip_grad else []:
        if shard:
            line.compute([moved("memory", size * shard)], "gradient norm")
        if kind == "dense" or s.model.experts:  # a stage of dense layers alone joins the others' norm of experts with nothing
            line.comm("compute", scope, "all_reduce", 4, f"dp.all_reduce.{kind}_grad_norm", timer="optimizer")
    moments = BYTES[s.training.precision.moments]
    total = sum(shard for _, shard in shards)
    line.compute([moved("adam", (size + 8 + 4 * moments) * total), moved("cast", 6 * total)], "adam")
    if s.training.data_parallel.stage not in ("none", "full") and not s.training.data_parallel.overlap_param_gather:
        for index in range(len(held)):
            line.wait(*sync.gather_chunk(index, line.end))
    line.comm("compute", "mp", "all_reduce", 4, "pp.all_reduce.success")
    line.comm("compute", "mp", "all_reduce", 4, "pp.all_reduce.max_norm")
    if any(c.head for c in held):
        line.comm("compute", "dp_cp", "all_reduce", 8, "dp.all_reduce.loss")
