"""What each training framework does where a row does not say: the defaults of its published configurations.

* Megatron-Core with Transformer Engine (NeMo, Megatron-Bridge, the MLPerf submissions): the performance recipes shipped with the releases
  set distributed optimizer, overlapped gradient reduction and parameter gathering, gradients on the wire in bf16 and userbuffer overlap of
  tensor parallelism; cross entropy is fused by Megatron-Core (NeMo) or Transformer Engine (Megatron-Bridge); experts are not cut by tensor
  parallelism and get their tokens by all-to-all (NeMo) or DeepEP and its successors (Megatron-Bridge).
* Megatron-LM of 2021 and 2022: unfused attention, dropout, nothing overlapped. DeepSpeed with Megatron likewise, with ZeRO-1.
* JAX (Paxml): full sharding by the compiler, over 8 or 128 GPUs, and what its policy of recomputation keeps.
* FSDP: full sharding of bf16 parameters; gradients are reduced in bf16 or fp32, as each framework publishes.
"""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from netsim.validate.models import MoE, shape
from netsim.validate.recipes import experts_of, kernels_of, nemo_deepseek, recompute_of
from netsim.validate.rows import Row

Section = dict[str, Any]


class Framework(NamedTuple):
    """A framework: how its rows are known, and the section `workload` that it stands for."""

    pattern: str
    build: Callable[[Row, dict[str, int], Section, str, list[str]], Section]

    def workload(self, row: Row, size: dict[str, int], model: Section, precision: str, assumed: list[str]) -> Section:
        """Section `workload` less model, batch and sizes."""
        return self.build(row, size, model, precision, assumed)


def framework_of(row: Row) -> Framework:
    """The first framework whose pattern fits; Megatron-Core where none does."""
    return next(f for f in FRAMEWORKS if re.search(f.pattern, row["framework"], re.IGNORECASE))


def core(row: Row, size: dict[str, int], model: Section, precision: str, assumed: list[str]) -> Section:
    """Megatron-Core with Transformer Engine, as NeMo, Megatron-Bridge and MLPerf configure it."""
    if "FSDP" in row["sharding"]:
        assumed.append("Megatron-FSDP: full sharding, gradients and parameters in bf16, activations that do not fit offloaded at no time")
        data: Section = {"sharding": "full", "grad_dtype": "bf16"}
    else:
        assumed.append("distributed optimizer, gradients in bf16, reduction and gathering overlapped")
        data = {"sharding": "optimizer", "grad_dtype": "bf16", "overlap_grad_reduce": True, "overlap_param_gather": True}
    if precision == "fp8":
        data["param_dtype"] = "fp8"
        assumed.append("parameters gathered in fp8")
    overlap = size["tp"] > 1 and shape(model, "experts") in (None, 0) and "overlap off" not in row["notes"]
    if overlap:
        assumed.append("userbuffer overlap of tensor parallelism")
    fusion = "te" if "Bridge" in row["framework"] else "fused"
    section: Section = {
        "precision": {"gemm": precision}, "data_parallel": data, "kernels": {"cross_entropy": fusion},
        "parallel": {"sequence_parallel": size["tp"] > 1, "tp_comm_overlap": overlap}, "pipeline": _stages(model, size, assumed),
    }  # fmt: skip
    if str(model.get("use")).startswith("gpt3_") and "mlcommons" not in row["source"]:
        model["dropout"] = 0.1
        assumed.append("dropout 0.1")
    if model.get("use") in MoE:
        bridge = "Bridge" in row["framework"]
        section["experts"] = experts_of(row, model["use"]) if bridge else {"dispatcher": "alltoall"}
        section["kernels"] |= kernels_of(row, model["use"]) if bridge else {}
        section["parallel"]["etp"] = 1
        if model["use"] == "deepseek_v3" and "dgxc-benchmarking v25.05" in row["source"] and size["pp"] > 1:
            model["mtp_layers"] = 1
            recipe = nemo_deepseek(row, size)
            section |= recipe | {"kernels": section["kernels"] | recipe["kernels"]}
            assumed.append("recipe of NeMo 25.04: experts padded to capacity 1, multi-token prediction, " + _recipe(recipe))
        assumed.append("balanced experts, not cut by tensor parallelism; " + _said(section["experts"], section["kernels"]))
    spare = {"recompute": {"granularity": "none"}} if data["sharding"] == "full" else {}
    known = recompute_of(row, str(model.get("use"))) if "Bridge" in row["framework"] else {}
    return section | spare | known | _recompute(row, assumed)


def _recipe(recipe: Section) -> str:
    attention = "unfused attention, " if recipe["kernels"].get("attention") == "unfused" else ""
    return f"{attention}{', '.join(recipe['recompute']['modules'])} recomputed"


def _said(experts: Section, kernels: Section) -> str:
    words = [f"{experts['dispatcher']} dispatch{' overlapped' if experts.get('overlap') else ''}"]
    words += ["fused expert MLP"] if kernels.get("fused_experts") else []
    return ", ".join([*words, f"CUDA graphs: {kernels.get('graphs', 'none')}"])


def _stages(model: Section, size: dict[str, int], assumed: list[str]) -> Section:
    """Layers per stage: evenly, or with embedding and loss counted as layers, or as the layout that is as even as can be."""
    layers, parts = int(shape(model, "layers")), size["pp"] * size["vpp"]
    extra = int(shape(model, "mtp_layers") or 0)
    if size["pp"] == 1 or (layers % parts == 0 and not extra):
        return {}
    if (layers + 2) % parts == 0 and not extra:
        assumed.append("embedding and loss count as one layer each")
        return {"embedding_as_layer": True, "loss_as_layer": True}
    words = ["E", *["t"] * layers, *["m"] * extra, "L"]
    sizes = [len(words) // parts + (i < len(words) % parts) for i in range(parts)]
    ends = [sum(sizes[:i]) for i in range(parts + 1)]
    assumed.append("layers, embedding and loss dealt out evenly over the virtual stages")
    return {"layout": "|".join("".join(words[a:b]) for a, b in pairwise(ends))}


def _recompute(row: Row, assumed: list[str]) -> Section:
    text = row["recompute"]
    layers = re.match(r"(\d+) layers", text)
    if layers:
        return {"recompute": {"granularity": "full", "method": "block", "layers": int(layers[1])}}
    if text.startswith("selective"):
        return {"recompute": {"granularity": "selective"}}
    return {"recompute": {"granularity": "full"}} if text == "full" else {}


def megatron_2021(row: Row, size: dict[str, int], model: Section, precision: str, assumed: list[str]) -> Section:
    """Megatron-LM of the papers of 2021 and 2022: attention as separate kernels, replicated optimizer, no gradient reduction overlapped.

    That of April 2021 did not reduce gradients of activations beside those of weights: BLOOM's fork of it, made later that year, does not
    (bigscience-workshop/Megatron-DeepSpeed `megatron/mpu/layers.py`); that of May 2022 does (NVIDIA/Megatron-LM, the same file). Neither
    adds gradients up inside GEMMs, and gradients have 32 bits with bf16 only (`megatron/arguments.py`).
    """
    model.setdefault("dropout", 0.1)
    beside = "(SC21)" not in row["framework"]
    overlap, bits = "only tensor-parallel gradients" if beside else "nothing", 16 if precision == "fp16" else 32
    assumed.append(f"unfused attention, dropout 0.1, {overlap} overlapped, gradients all-reduced in {bits} bits")
    return {
        "precision": {"gemm": precision, "activations": "fp16" if precision == "fp16" else "bf16"},
        "data_parallel": {"sharding": "none", "grad_dtype": "bf16" if precision == "fp16" else "fp32"},
        "kernels": {"attention": "unfused", "cross_entropy": "unfused", "gradient_accumulation_fusion": False},
        "parallel": {"sequence_parallel": "sequence-parallel" in row["recompute"], "async_allreduce": beside},
        "pipeline": _stages(model, size, assumed),
    } | _recompute(row, assumed)  # fmt: skip


def deepspeed(row: Row, size: dict[str, int], model: Section, precision: str, assumed: list[str]) -> Section:
    """Megatron-DeepSpeed of BLOOM: activation checkpointing of every layer, ZeRO-1, unfused attention, nothing overlapped.

    A column-parallel layer reduces the gradient of its input when its backward is done, whose GEMMs do not add gradients up
    (`megatron/mpu/layers.py`).
    """
    assumed.append("every layer recomputed, unfused attention, ZeRO-1, nothing overlapped")
    return {
        "precision": {"gemm": precision},
        "data_parallel": {"sharding": "optimizer", "grad_dtype": "fp32" if row["precision"] == "bf16" else "bf16"},
        "kernels": {"attention": "unfused", "cross_entropy": "unfused", "gradient_accumulation_fusion": False},
        "parallel": {"sequence_parallel": False, "async_allreduce": False},
        "pipeline": _stages(model, size, assumed), "recompute": {"granularity": "full"},
    }  # fmt: skip


def fsdp(row: Row, size: dict[str, int], model: Section, precision: str, assumed: list[str]) -> Section:
    """PyTorch FSDP (MosaicML, torchtitan, NeMo Automodel)."""
    titan = "torchtitan" in row["framework"]
    sharding = "gradients" if "GRAD_OP" in row["sharding"] else "full"
    assumed.append(f"FSDP, {sharding} sharded, parameters in bf16, gradients in {'fp32' if titan else 'bf16'}, flash attention")
    section: Section = {
        "precision": {"gemm": precision},
        "data_parallel": {
            "sharding": sharding, "grad_dtype": "fp32" if titan else "bf16", "overlap_grad_reduce": True, "overlap_param_gather": True,
        },
        "parallel": {"sequence_parallel": size["tp"] > 1}, "pipeline": _stages(model, size, assumed),
    }  # fmt: skip
    if model.get("use") in MoE:
        section["experts"] = {"dispatcher": "flex" if "DeepEP" in row["framework"] else "alltoall"}
        section["parallel"]["etp"] = 1
    if titan and row["recompute"] == "selective":
        assumed.append("selective recomputation of every second GEMM as full recomputation of half the layers")
        return section | {
            "recompute": {"granularity": "full", "method": "block", "layers": max(1, int(shape(model, "layers")) // size["pp"] // 2)}
        }
    return section | _recompute(row, assumed)


PAXML: dict[str, tuple[int, list[str]]] = {
    "gpt3_175b": (128, ["core_attn", "mlp", "layernorm"]),
    "gpt3_5b": (8, ["core_attn", "layernorm"]),
}
"""GPUs over which Paxml's models are fully sharded, in copies beyond, and what is recomputed: of 175B all but the projections of attention
(SAVE_QKV_OUT_PROJ), of 5B all but matrix products (SAVE_DOT_ONLY; the fused attention is none). Source: NVIDIA/dgxc-benchmarking
`paxml/configure.sh` (FSDP of 16 nodes and of 1) and `paxml/paxml_mod_configs.py`.
"""


def jax(row: Row, size: dict[str, int], model: Section, precision: str, assumed: list[str]) -> Section:
    """JAX on XLA (Paxml, MaxText): full sharding, over groups where they are known; recomputed is what the policy does not keep."""
    group, modules = PAXML.get(str(model.get("use")), (0, ["core_attn", "mlp"]))
    copies = size["dp"] // group if group and size["dp"] % group == 0 else 1
    assumed.append(f"full sharding in bf16{f' over {group} GPUs' if copies > 1 else ''}; {', '.join(modules)} recomputed")
    return {
        "precision": {"gemm": precision},
        "data_parallel": {"sharding": "full", "grad_dtype": "bf16", "instances": copies},
        "parallel": {"sequence_parallel": False}, "kernels": {"graphs": "iteration"}, "pipeline": _stages(model, size, assumed),
        "recompute": {"granularity": "selective", "modules": modules},
    }  # fmt: skip


def internevo(row: Row, size: dict[str, int], model: Section, precision: str, assumed: list[str]) -> Section:
    """InternEvo: ZeRO-1 with overlapped reduction, flash attention; its sharding group becomes copies of the optimizer state."""
    assumed.append("ZeRO-1, gradients in bf16, reduction overlapped, flash attention")
    group = re.search(r"group (\d+)", row["sharding"])
    copies = size["dp"] // int(group[1]) if group and size["dp"] % int(group[1]) == 0 else 1
    return {
        "precision": {"gemm": precision},
        "data_parallel": {"sharding": "optimizer", "grad_dtype": "bf16", "overlap_grad_reduce": True, "instances": max(1, copies)},
        "parallel": {"sequence_parallel": size["tp"] > 1},
    } | _recompute(row, assumed)  # fmt: skip


FRAMEWORKS = (
    Framework(r"Megatron-LM 202|SC21|ZeRO-3", megatron_2021),
    Framework(r"DeepSpeed", deepspeed),
    Framework(r"MosaicML|torchtitan|Automodel", fsdp),
    Framework(r"InternEvo", internevo),
    Framework(r"JAX|MaxText|Paxml", jax),
    Framework(r"", core),
)
