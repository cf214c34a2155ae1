"""Section `workload.model` of a run file: the shape of a transformer, as its authors published it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AliasChoices, ConfigDict, Field

from netsim.config.fields import Count, Index, Share


def named(*names: str) -> object:
    """Return the marker of a field that may be written under any of `names`; the first one is ours, the others are Megatron's."""
    return Field(validation_alias=AliasChoices(*names))


@dataclass(frozen=True)
class Model:
    """Shape of a decoder-only transformer; ready ones are in workload/models, taken with `use: gpt3_175b`.

    name: as its authors write it. source: where the shape was published.
    layers, hidden, heads, ffn, vocab: the usual sizes; the vocabulary before padding.
    kv_heads: key-value heads (default: heads). head_dim: per head (default: hidden / heads).
    activation: of the MLP; swiglu, geglu and clamped_swiglu are gated (two up projections). norm, bias, position: of all layers; yarn is
    rope with a factor on cosine and sine.
    tied: input and output embedding are one matrix. dropout: its rate in hidden layers. qk_norm: queries and keys are normalised.
    window: attention span of sliding-window layers (0: full); window_every: one layer in this many has full attention.
    attention: gqa (covers mha and mqa) or mla, the latter with q_rank (0: plain query projection), kv_rank, nope_dim, rope_dim, v_dim.
    experts, top_k, expert_ffn: routed experts (0: a dense model); shared_ffn: total width of shared experts;
    dense_layers: leading layers with a dense MLP; moe_every: one layer in this many is a mixture (from the first after dense_layers).
    expert_bias: experts are balanced by a bias that is updated from token counts once per step.
    node_limit: groups of experts (nodes) that one token may reach (0: no limit).
    mtp_layers: multi-token-prediction modules after the last layer.
    blocks: paths of Python files, each an operation of your own that every layer gets (docs/workload.md shows one).
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    layers: Annotated[int, Field(ge=1, le=10_000, strict=True), named("layers", "num_layers")]
    hidden: Annotated[Count, named("hidden", "hidden_size")]
    heads: Annotated[Count, named("heads", "num_attention_heads")]
    ffn: Annotated[Count, named("ffn", "ffn_hidden_size")]
    vocab: Annotated[Count, named("vocab", "vocab_size")]
    kv_heads: Annotated[Count | None, named("kv_heads", "num_query_groups")] = None
    head_dim: Annotated[Count | None, named("head_dim", "kv_channels")] = None
    activation: Literal["gelu", "swiglu", "geglu", "clamped_swiglu", "squared_relu"] = "swiglu"
    norm: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    bias: bool = False
    qkv_bias: bool = False
    position: Literal["learned", "rope", "yarn", "alibi", "none"] = "rope"
    positions: Index = 0
    tied: bool = False
    dropout: Share = 0.0
    qk_norm: bool = False
    window: Index = 0
    window_every: Count = 1
    attention: Literal["gqa", "mla"] = "gqa"
    q_rank: Annotated[Index, named("q_rank", "q_lora_rank")] = 0
    kv_rank: Annotated[Index, named("kv_rank", "kv_lora_rank")] = 0
    nope_dim: Annotated[Index, named("nope_dim", "qk_head_dim")] = 0
    rope_dim: Annotated[Index, named("rope_dim", "qk_pos_emb_head_dim")] = 0
    v_dim: Annotated[Index, named("v_dim", "v_head_dim")] = 0
    experts: Annotated[Index, named("experts", "num_moe_experts")] = 0
    top_k: Annotated[Index, named("top_k", "moe_router_topk")] = 0
    expert_ffn: Annotated[Index, named("expert_ffn", "moe_ffn_hidden_size")] = 0
    shared_ffn: Annotated[Index, named("shared_ffn", "moe_shared_expert_intermediate_size")] = 0
    expert_bias: bool = False
    dense_layers: Index = 0
    moe_every: Annotated[Count, named("moe_every", "moe_layer_freq")] = 1
    node_limit: Index = 0
    mtp_layers: Annotated[int, Field(ge=0, le=10_000, strict=True), named("mtp_layers", "mtp_num_layers")] = 0
    blocks: tuple[str, ...] = ()
    source: str = ""

    @property
    def groups(self) -> int:
        """Key-value heads."""
        return self.kv_heads or self.heads

    @property
    def dim(self) -> int:
        """Width of one query or key head."""
        return self.nope_dim + self.rope_dim if self.attention == "mla" else self.head_dim or self.hidden // self.heads

    @property
    def dim_v(self) -> int:
        """Width of one value head."""
        return self.v_dim if self.attention == "mla" else self.dim

    @property
    def gated(self) -> bool:
        """Whether the MLP has two up projections."""
        return self.activation in ("swiglu", "geglu", "clamped_swiglu")

    def is_moe(self, layer: int) -> bool:
        """Return whether layer `layer` (from 0; MTP modules follow the last) has routed experts."""
        return self.experts > 0 and layer >= self.dense_layers and (layer - self.dense_layers) % self.moe_every == 0

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) of every rule that the shape breaks."""
        if self.heads % self.groups:
            yield "kv_heads", f"expected a divisor of heads ({self.heads}); got {self.groups}"
        if self.head_dim is None and self.attention == "gqa" and self.hidden % self.heads:
            yield "hidden", f"expected a multiple of heads ({self.heads}), or head_dim; got {self.hidden}"
        if self.attention == "mla":
            for name in ("kv_rank", "nope_dim", "rope_dim", "v_dim"):
                if getattr(self, name) == 0:
                    yield name, "expected at least 1 with attention: mla; got 0"
        if self.experts:
            if not 1 <= self.top_k <= self.experts:
                yield "top_k", f"expected 1 to {self.experts} (experts); got {self.top_k}"
            if not self.expert_ffn:
                yield "expert_ffn", "expected the width of one expert; got 0"
        if self.dense_layers > self.layers:
            yield "dense_layers", f"expected at most layers ({self.layers}); got {self.dense_layers}"
