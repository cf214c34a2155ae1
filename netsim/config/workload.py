"""Section `workload` of a run file with `kind: training`: a model, how it is spread over GPUs, and how an iteration is scheduled.

Fields carry short names; Megatron's argument names (in snake case) are accepted too. Defaults are those of Megatron-Core.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from netsim.config.fields import Amount, Count, Index, Positive, Sigma
from netsim.config.model import Model, named

Dtype = Literal["bf16", "fp16", "fp8", "fp8_blockwise", "mxfp8", "nvfp4", "fp32"]
STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Parallel:
    """How the model and the batch are cut.

    tp, pp, cp, ep: sizes of tensor, pipeline, context and expert parallelism; etp: tensor parallelism inside an expert (default: tp).
    dp: data parallelism; leave out to take what the GPUs give. vpp: model chunks per pipeline stage (interleaving).
    order: rank order, fastest dimension first.
    sequence_parallel: norms and dropout work on shards of the sequence (with tp > 1).
    async_allreduce: without sequence_parallel, the gradient of a column-parallel layer's input is reduced beside its weight gradient
    (Megatron-LM since the end of 2021; not in the forks that DeepSpeed made before); with sequence_parallel it always is.
    tp_comm_overlap: userbuffer overlap of tensor-parallel communication with its GEMM; the flags after it as in Megatron.
    cp_comm_type: how context parallelism exchanges keys and values; hierarchical_sizes: (a2a, p2p) sizes for a2a+p2p.
    """

    __pydantic_config__ = STRICT

    tp: Annotated[Count, named("tp", "tensor_model_parallel_size")] = 1
    pp: Annotated[Count, named("pp", "pipeline_model_parallel_size")] = 1
    vpp: Annotated[Count, named("vpp", "virtual_pipeline_model_parallel_size")] = 1
    cp: Annotated[Count, named("cp", "context_parallel_size")] = 1
    dp: Annotated[Count | None, named("dp", "data_parallel_size")] = None
    ep: Annotated[Count, named("ep", "expert_model_parallel_size")] = 1
    etp: Annotated[Count | None, named("etp", "expert_tensor_parallel_size")] = None
    order: str = "tp-cp-ep-dp-pp"
    sequence_parallel: bool = True
    async_allreduce: Annotated[bool, named("async_allreduce", "async_tensor_model_parallel_allreduce")] = True
    tp_comm_overlap: bool = False
    tp_comm_overlap_rs_dgrad: bool = False
    tp_comm_overlap_disable_qkv: bool = False
    tp_comm_overlap_disable_fc1: bool = False
    cp_comm_type: Literal["p2p", "all_gather", "a2a", "a2a+p2p"] = "p2p"
    hierarchical_sizes: Annotated[tuple[Count, ...], named("hierarchical_sizes", "hierarchical_context_parallel_sizes")] = ()


@dataclass(frozen=True)
class Pipeline:
    """The pipeline schedule.

    schedule: a file of workload/schedules (auto: 1f1b, interleaved where vpp > 1) or a path to one of your own.
    group_size: microbatches per group of virtual stages (default: pp).
    overlap_p2p: send and receive beside compute (default: with interleaving only); warmup_flush: in warm-up and cool-down too.
    batch_p2p, batch_p2p_sync: messages that block compute are posted in batches (the opposite of overlap_p2p), after which the host waits
    for all streams of the GPU, reductions and gathers too.
    scatter_gather: without sequence parallelism, send one tp-th of an activation and gather it at the receiver (Megatron-LM until 2023).
    layers_per_virtual_stage: another way to give vpp.
    first_stage_layers, last_stage_layers: the other stages share the rest.
    embedding_as_layer, loss_as_layer: count them as one layer each when layers are dealt out.
    layout: explicit stages, 'Et*3|(tt|)*29m|L' with E embedding, t layer, m multi-token module, L loss.
    """

    __pydantic_config__ = STRICT

    schedule: str = "auto"
    group_size: Annotated[Count | None, named("group_size", "microbatch_group_size_per_vp_stage")] = None
    overlap_p2p: Annotated[bool | None, named("overlap_p2p", "overlap_p2p_comm")] = None
    warmup_flush: Annotated[bool, named("warmup_flush", "overlap_p2p_comm_warmup_flush")] = False
    scatter_gather: Annotated[bool, named("scatter_gather", "scatter_gather_tensors_in_pipeline")] = False
    batch_p2p: Annotated[bool | None, named("batch_p2p", "batch_p2p_comm")] = None
    batch_p2p_sync: bool = True
    layers_per_virtual_stage: Annotated[Count | None, named("layers_per_virtual_stage", "num_layers_per_virtual_pipeline_stage")] = None
    first_stage_layers: Annotated[
        Index | None, named("first_stage_layers", "decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage")
    ] = None
    last_stage_layers: Annotated[
        Index | None, named("last_stage_layers", "decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage")
    ] = None
    embedding_as_layer: Annotated[bool, named("embedding_as_layer", "account_for_embedding_in_pipeline_split")] = False
    loss_as_layer: Annotated[bool, named("loss_as_layer", "account_for_loss_in_pipeline_split")] = False
    layout: Annotated[str, named("layout", "pipeline_model_parallel_layout")] = ""


@dataclass(frozen=True)
class DataParallel:
    """How gradients and parameters travel.

    sharding: none (all-reduce), optimizer (Megatron's distributed optimizer, ZeRO-1), gradients (ZeRO-2), full (ZeRO-3, FSDP);
    Megatron-FSDP's names are accepted, and DeepSpeed's: zero1, zero2, zero3 or `zero_stage: 3`, overlap_comm, reduce_bucket_size,
    stage3_prefetch_bucket_size.
    overlap_grad_reduce, overlap_param_gather: beside backward and forward compute; the align flags make pipeline stages start together.
    bucket_size: elements per bucket (default: max(40e6, 1e6 x group)); num_buckets: instead of it.
    pad_buckets: pad each bucket for high bus bandwidth. grad_dtype: of gradients on the wire and accumulated.
    param_dtype: of gathered parameters. instances: copies of the optimizer state (hybrid sharding).
    average_in_collective: division inside the collective (changes no bytes). prefetch: elements gathered ahead with full sharding.
    """

    __pydantic_config__ = STRICT

    sharding: Annotated[
        Literal[
            "none",
            "optimizer",
            "gradients",
            "full",
            "no_shard",
            "optim",
            "optim_grads",
            "optim_grads_params",
            "zero0",
            "zero1",
            "zero2",
            "zero3",
        ],
        BeforeValidator(lambda value: f"zero{value}" if value in (0, 1, 2, 3) and not isinstance(value, bool) else value),
        named("sharding", "data_parallel_sharding_strategy", "zero_stage"),
    ] = "optimizer"
    overlap_grad_reduce: Annotated[bool, named("overlap_grad_reduce", "overlap_comm")] = False
    overlap_param_gather: bool = False
    align_grad_reduce: Annotated[bool, named("align_grad_reduce", "delay_grad_reduce")] = True
    align_param_gather: Annotated[bool, named("align_param_gather", "delay_param_gather")] = True
    bucket_size: Annotated[Count | None, named("bucket_size", "ddp_bucket_size", "reduce_bucket_size")] = None
    num_buckets: Annotated[Count | None, named("num_buckets", "ddp_num_buckets")] = None
    pad_buckets: Annotated[bool, named("pad_buckets", "ddp_pad_buckets_for_high_nccl_busbw")] = False
    grad_dtype: Literal["fp32", "bf16"] = "fp32"
    param_dtype: Literal["bf16", "fp16", "fp8"] = "bf16"
    instances: Annotated[Count, named("instances", "num_distributed_optimizer_instances")] = 1
    average_in_collective: Annotated[bool, named("average_in_collective", "ddp_average_in_collective")] = False
    prefetch: Annotated[Index, named("prefetch", "stage3_prefetch_bucket_size", "suggested_communication_unit_size")] = 500_000_000

    @property
    def stage(self) -> str:
        """Sharding under its name here: none, optimizer, gradients or full."""
        names = ("none", "optimizer", "gradients", "full")
        others = (("no_shard", "zero0"), ("optim", "zero1"), ("optim_grads", "zero2"), ("optim_grads_params", "zero3"))
        return next(n for n, o in zip(names, others, strict=True) if self.sharding in (n, *o))


@dataclass(frozen=True)
class Experts:
    """How tokens reach experts.

    dispatcher: allgather, alltoall, flex (DeepEP: once per destination node), or a path to a file of your own.
    capacity_factor: tokens per expert over the mean beyond which they are dropped (none: dropless); pad_to_capacity: fixed splits.
    imbalance: load of the busiest expert rank over the mean; imbalance_sigma: spread of that load over layers and microbatches.
    probs_dtype: of the router probabilities that travel. shared_overlap: shared experts run beside the dispatch.
    overlap: all-to-all of one microbatch beside compute of another; delay_wgrad: weight gradients last, beside its combine.
    aux_loss: count tokens per expert over the tensor- and context-parallel group.
    """

    __pydantic_config__ = STRICT

    dispatcher: Annotated[str, named("dispatcher", "moe_token_dispatcher_type")] = "allgather"
    capacity_factor: Annotated[Positive | None, named("capacity_factor", "moe_expert_capacity_factor")] = None
    pad_to_capacity: Annotated[bool, named("pad_to_capacity", "moe_pad_expert_input_to_capacity")] = False
    imbalance: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    imbalance_sigma: Sigma = 0.0
    probs_dtype: Annotated[Literal["fp32", "bf16"], named("probs_dtype", "moe_router_dtype")] = "fp32"
    shared_overlap: Annotated[bool, named("shared_overlap", "moe_shared_expert_overlap")] = False
    overlap: Annotated[bool, named("overlap", "overlap_moe_expert_parallel_comm")] = False
    delay_wgrad: Annotated[bool, named("delay_wgrad", "delay_wgrad_compute")] = False
    aux_loss: bool = True


MODULES = ("core_attn", "layernorm", "mla_up_proj", "moe_act", "mlp", "moe")


@dataclass(frozen=True)
class Recompute:
    """Which activations are computed again in the backward pass.

    granularity: none, full (whole layers) or selective (modules). method: uniform or block; layers: layers per uniform block, or layers
    recomputed per chunk with block (default: all).
    """

    __pydantic_config__ = STRICT

    granularity: Annotated[Literal["none", "full", "selective"], named("granularity", "recompute_granularity")] = "none"
    method: Annotated[Literal["uniform", "block"], named("method", "recompute_method")] = "uniform"
    layers: Annotated[Count | None, named("layers", "recompute_num_layers")] = None
    modules: Annotated[
        tuple[Literal["core_attn", "layernorm", "mla_up_proj", "moe_act", "mlp", "moe"], ...], named("modules", "recompute_modules")
    ] = ("core_attn",)


@dataclass(frozen=True)
class Precision:
    """Number formats. gemm: of linear layers (attention stays in 16 bits); tp_comm: of tensor-parallel traffic; dispatch: of tokens to
    experts.

    fp8_recipe: scales of gemm: fp8. delayed takes them from earlier maxima, which are summed up over GPUs after every pass of a model
    chunk: over all that share its parameters, or with tp_only_amax_red over the tensor-parallel group. tensorwise takes those of the tensor
    itself.
    """

    __pydantic_config__ = STRICT

    gemm: Dtype = "bf16"
    activations: Literal["bf16", "fp16"] = "bf16"
    tp_comm: Literal["bf16", "fp8"] = "bf16"
    dispatch: Literal["bf16", "fp8"] = "bf16"
    moments: Literal["fp32", "bf16"] = "fp32"
    fp8_recipe: Literal["delayed", "tensorwise"] = "delayed"
    tp_only_amax_red: bool = False


@dataclass(frozen=True)
class Kernels:
    """Choices of kernels that change time, bytes or memory.

    cross_entropy: unfused, fused (Megatron's, fewer collectives) or te (in place). attention: flash or unfused.
    broadcast_inputs: tokens and labels are broadcast inside the tensor-parallel group. wgrad_cache: TE keeps one dummy weight gradient
    per shape.
    connections: launch queues of a GPU. With 1, kernels of all streams start in the order of launch; with more, streams are independent,
    and before Blackwell a collective that is launched beside a GEMM gets its thread blocks after it. Default: as Megatron requires, 1
    with tp or cp on GPUs before Blackwell (more with full sharding and experts.overlap), else CUDA's 8.
    fused_experts: activation, casts and GEMMs of experts are one kernel (TransformerEngine's grouped MLP in CuTe DSL).
    rope: rotary embedding as one kernel (fused) or as PyTorch's separate ones; one kernel cannot do yarn, but with latent attention.
    gradient_accumulation_fusion: weight-gradient GEMMs add to the gradients of earlier microbatches; else a kernel behind each does, as in
    frameworks without it (Megatron-LM until 2022, Megatron-DeepSpeed).
    graphs: what the host launches as CUDA graphs: nothing, the router of every layer (router), attention and router (layers), or the whole
    iteration, whose launch takes no time.
    """

    __pydantic_config__ = STRICT

    cross_entropy: Literal["unfused", "fused", "te"] = "unfused"
    attention: Literal["flash", "unfused"] = "flash"
    broadcast_inputs: bool = True
    wgrad_cache: bool = True
    connections: Annotated[Count | None, named("connections", "CUDA_DEVICE_MAX_CONNECTIONS", "cuda_device_max_connections")] = None
    fused_experts: bool = False
    rope: Literal["fused", "unfused"] = "fused"
    gradient_accumulation_fusion: bool = True
    graphs: Annotated[Literal["none", "router", "layers", "iteration"], named("graphs", "cuda_graph_impl")] = "none"


@dataclass(frozen=True)
class Training:
    """One training iteration.

    model: `{use: gpt3_175b}` or a shape of your own. sequence: tokens per sequence.
    micro_batch: sequences per forward pass; global_batch: sequences per iteration.
    clip_grad: limit of the gradient norm (0: the norm is not computed).
    """

    __pydantic_config__ = STRICT

    kind: Literal["training"]
    model: Model
    sequence: Annotated[Count, named("sequence", "seq_length")]
    global_batch: Annotated[Count, named("global_batch", "global_batch_size")]
    micro_batch: Annotated[Count, named("micro_batch", "micro_batch_size")] = 1
    parallel: Parallel = field(default_factory=Parallel)
    pipeline: Pipeline = field(default_factory=Pipeline)
    data_parallel: DataParallel = field(default_factory=DataParallel)
    experts: Experts = field(default_factory=Experts)
    recompute: Recompute = field(default_factory=Recompute)
    precision: Precision = field(default_factory=Precision)
    kernels: Kernels = field(default_factory=Kernels)
    clip_grad: Amount = 1.0

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) of every rule that holds whatever the number of GPUs; `workload.check` knows the others."""
        for path, sentence in self.model.problems():
            yield f"model.{path}", sentence
        if sorted(self.parallel.order.split("-")) != ["cp", "dp", "ep", "pp", "tp"]:
            yield "parallel.order", f"expected tp, cp, ep, dp and pp joined by '-'; got {self.parallel.order}"
        if self.model.position == "learned" and self.model.positions and self.sequence > self.model.positions:
            yield "sequence", f"expected at most {self.model.positions} (model.positions); got {self.sequence}"
        parts = self.model.layers + self.model.mtp_layers + 2
        if self.parallel.vpp > parts:
            yield "parallel.vpp", f"expected at most {parts}, the layers with embedding and loss; got {self.parallel.vpp}"
        if self.pipeline.layers_per_virtual_stage and self.parallel.vpp > 1:
            yield "pipeline.layers_per_virtual_stage", "expected this or parallel.vpp; got both"
