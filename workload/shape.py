"""Sizes on one GPU that kernels, traffic, parameters and memory are all made of.

Symbols: T tokens of one context-parallel rank and microbatch (the whole tensor-parallel group), Ts tokens that one GPU holds between the
tensor-parallel regions (T / tp with sequence parallelism, else T).
"""

from dataclasses import dataclass
from functools import cached_property

from compute.kernels import DTYPE_BYTES
from netsim.config.model import Model
from netsim.config.workload import Training
from workload.launch import Launch, launch_of
from workload.layout import Layout, experts_per_node

ELEMENT = 2
"""Bytes of an activation in 16 bits."""


@dataclass(frozen=True)
class Shape:
    """Derived sizes; `training` and `lay` are there for the rest, `arch` is the architecture of the GPU."""

    training: Training
    lay: Layout
    arch: str = ""

    @cached_property
    def launch(self) -> Launch:
        """How streams share the GPU."""
        return launch_of(self.training, self.arch)

    @cached_property
    def model(self) -> Model:
        """The model card."""
        return self.training.model

    @cached_property
    def sp(self) -> bool:
        """Whether sequence parallelism is on."""
        return self.training.parallel.sequence_parallel and self.lay.tp > 1

    @cached_property
    def inputs(self) -> int:
        """Tokens of a microbatch before the cut by cp: what the GPU that reads the data hands to its tensor-parallel group."""
        return self.training.micro_batch * self.training.sequence

    @cached_property
    def tokens(self) -> int:
        """T."""
        return self.inputs // self.lay.cp

    @cached_property
    def shard(self) -> int:
        """Ts."""
        return self.tokens // self.lay.tp if self.sp else self.tokens

    @cached_property
    def full_bytes(self) -> int:
        """Bytes of a hidden activation of T tokens."""
        return self.tokens * self.model.hidden * ELEMENT

    @cached_property
    def shard_bytes(self) -> int:
        """Bytes of a hidden activation of Ts tokens: what crosses a pipeline boundary."""
        return self.shard * self.model.hidden * ELEMENT

    @cached_property
    def tp_bytes(self) -> int:
        """Bytes of a hidden activation on the tensor-parallel wire."""
        return self.full_bytes // (2 if self.training.precision.tp_comm == "fp8" else 1)

    def gathered_bytes(self, dtype: str) -> int:
        """Bytes of a hidden activation that is gathered for a GEMM in `dtype`: quantised before it travels where that is narrower."""
        narrow = dtype not in ("bf16", "fp16", "fp32")
        return min(self.tp_bytes, round(self.tokens * self.model.hidden * DTYPE_BYTES[dtype])) if narrow else self.tp_bytes

    @cached_property
    def vocab(self) -> int:
        """Vocabulary padded to a multiple of 128 tp."""
        unit = 128 * self.lay.tp
        return -(-self.model.vocab // unit) * unit

    @cached_property
    def heads(self) -> int:
        """Query heads of one GPU."""
        return self.model.heads // self.lay.tp

    @cached_property
    def kv_heads(self) -> int:
        """Key-value heads of one GPU (replicated where there are fewer than tp)."""
        return max(1, self.model.groups // self.lay.tp)

    @cached_property
    def qkv_width(self) -> int:
        """Columns of the fused projection on one GPU."""
        return (self.heads + 2 * self.kv_heads) * self.model.dim

    @cached_property
    def ffn(self) -> int:
        """Width of the dense MLP on one GPU."""
        return self.model.ffn // self.lay.tp

    @cached_property
    def local_experts(self) -> int:
        """Routed experts of one GPU."""
        return self.model.experts // self.lay.ep

    @cached_property
    def expert_ffn(self) -> int:
        """Width of a routed expert on one GPU."""
        return self.model.expert_ffn // self.lay.etp

    @cached_property
    def expert_shard(self) -> int:
        """Tokens of one GPU that enter the router: cut by tp with or without sequence parallelism."""
        return self.tokens // self.lay.tp

    @cached_property
    def routed_rows(self) -> int:
        """Token copies that one GPU sends to experts."""
        experts, tokens = self.training.experts, self.expert_shard
        if experts.capacity_factor and experts.pad_to_capacity:
            return self.capacity * self.model.experts
        copies = tokens * self.model.top_k
        return min(copies, self.capacity * self.model.experts) if experts.capacity_factor else copies

    @cached_property
    def capacity(self) -> int:
        """Rows per expert and source GPU that a capacity factor leaves."""
        per_expert = self.expert_shard * self.model.top_k / self.model.experts
        return -int(-per_expert * (self.training.experts.capacity_factor or 1) // 1)

    @cached_property
    def expert_rows(self) -> int:
        """Rows that the experts of the busiest GPU compute (after the gather of expert tensor parallelism)."""
        padded = self.training.experts.pad_to_capacity and self.training.experts.capacity_factor
        load = 1.0 if padded else self.training.experts.imbalance
        return round(self.routed_rows * self.lay.etp * load)

    @cached_property
    def gemm_dtype(self) -> str:
        """Precision of linear layers inside transformer blocks."""
        return self.training.precision.gemm

    @cached_property
    def plain_dtype(self) -> str:
        """Precision of the output layer and the router, which are not run in less than 16 bits."""
        return "fp32" if self.gemm_dtype == "fp32" else "bf16"

    @cached_property
    def narrow(self) -> bool:
        """Whether linear layers inside blocks run in less than 16 bits."""
        return self.gemm_dtype not in ("bf16", "fp16", "fp32")

    def gemm_input(self, elements: int) -> int:
        """Bytes of a GEMM input of so many elements as it is kept for backward: in the precision of the GEMM, with its block scales."""
        return round(elements * DTYPE_BYTES[self.gemm_dtype]) if self.narrow else ELEMENT * elements

    def group_sizes(self) -> dict[str, int]:
        """Members of the groups that communication addresses by name."""
        lay = self.lay
        node = experts_per_node(lay)
        a2a, p2p = (*self.training.parallel.hierarchical_sizes, 1, 1)[:2]
        n = lay.instances
        sizes = {
            "tp": lay.tp,
            "cp": lay.cp,
            "dp": lay.dp,
            "dp_cp": lay.dp * lay.cp,
            "tp_cp": lay.tp * lay.cp,
            "tp_dp_cp": lay.tp * lay.dp * lay.cp,
            "mp": lay.tp * lay.pp,
            "embd": 2 if lay.pp > 1 else 1,
            "world": lay.n_gpus,
            "ep": lay.ep,
            "expt_tp": lay.etp,
            "expt_dp": lay.edp,
            "tp_ep": lay.etp * lay.ep,
            "dp_cp_intra": lay.dp * lay.cp // n,
            "dp_cp_inter": n,
            "expt_dp_intra": max(1, lay.edp // n),
            "expt_dp_inter": n,
            "instance": lay.n_gpus // n,
            "cp_a2a": a2a,
            "cp_p2p": p2p,
            "ep_node": node,
            "ep_rail": lay.etp * lay.ep // node,
            "mirror": 2 if lay.pp > 1 else 1,
        }
        pipes = {f"pp_{kind}_{side}": lay.pp for kind in ("fwd", "bwd", "rev_fwd", "rev_bwd") for side in ("in", "out")}
        return sizes | pipes | {f"{k}_gather": n for k, n in sizes.items() if k.startswith(("dp_cp", "expt_dp"))}
