"""What published performance recipes set beyond the columns of a row, by release, GPU and model.

Sources: NVIDIA-NeMo/Megatron-Bridge `scripts/performance/configs/*/*_workload_base_configs.py` (dispatcher, CUDA graphs, overlap, fusions,
recomputation) and `docs/performance-summary*.md` for the releases; NVIDIA/dgxc-benchmarking v25.05.05 `deepseek_v3/pretraining/launch.sh`
and the script of NeMo that it starts, `scripts/performance/llm/pretrain_deepseek_v3.py` at commit 7a8f1cc. "tokendrop" runs give every
expert the same number of tokens, padded or dropped.
"""

import re
from typing import Any

from netsim.validate.rows import Row

FUSED_SINCE = 26.06
"""Release from which MXFP8 recipes use the fused grouped MLP; throughput of every such row rises by 30 to 50 % over the release before."""
WHOLE = ("deepseek_v3", "gpt_oss_120b")
"""Models whose MXFP8 recipes capture the whole iteration as one CUDA graph and overlap exchanges with experts, since the same release."""
MLA_FUSED_ON_BLACKWELL = 25.09
"""Release from which Transformer Engine has a fused attention for training with heads of 192 and 128 features on Blackwell: it needs cuDNN
9.11 of June 2025. Before, TransformerEngine pull request 1504 excludes heads of more than 128 features there, and its flash attention
heads whose keys and values differ, so that scores, softmax and values are separate kernels. Source: TransformerEngine
`common/fused_attn/fused_attn.cpp`.
"""
DENSE = ("llama3_70b", "llama3_405b")
"""Models whose recipes recompute nothing where they have several pipeline stages (on one they are fully sharded and offload)."""
RECOMPUTED: dict[tuple[str, str], tuple[str, ...]] = {
    ("gpt_oss_120b", "GB200"): ("layernorm", "moe_act"), ("gpt_oss_120b", "B200"): ("layernorm", "moe_act"),
    ("gpt_oss_120b", "H100"): ("layernorm", "moe_act"), ("gpt_oss_120b", "GB300"): (), ("gpt_oss_120b", "B300"): (),
    ("qwen3_30b_a3b", ""): (), ("qwen3_235b_a22b", ""): (),
    ("deepseek_v3", "GB300"): ("mla_up_proj",), ("deepseek_v3", "B200"): ("mla_up_proj", "mlp"),
}  # fmt: skip
"""Modules that the recipe of a mixture recomputes, by GPU ("": on all); recipes with the fused grouped MLP recompute none. Only recipes
whose layout is that of the rows are here.
"""


def release_of(row: Row) -> float:
    """Number of the NeMo release, such as 26.04; 0 where there is none."""
    found = re.search(r"\b(2\d\.\d\d)", f"{row['framework']} {row['date_or_version']}")
    return float(found[1]) if found else 0.0


def experts_of(row: Row, model: str) -> dict[str, Any]:
    """Section `experts` of a mixture of experts."""
    family = row["gpu_family"]
    plain = (model == "qwen3_235b_a22b" and family in ("B200", "B300", "H100")) or (model == "gpt_oss_120b" and not _whole(row, model))
    out: dict[str, Any] = {"dispatcher": "alltoall" if plain and not (model == "gpt_oss_120b" and family == "B300") else "flex"}
    if (model == "qwen3_235b_a22b" and family == "H100") or (model == "deepseek_v3" and family == "B200"):
        out["overlap"] = True
    if _whole(row, model) and (row.count("pp") or 1) > 1:
        out["overlap"] = True
    if "tokendrop" in row["model"]:
        out |= {"capacity_factor": 1.0, "pad_to_capacity": True}
    return out


def kernels_of(row: Row, model: str) -> dict[str, Any]:
    """Fusions and CUDA graphs of a mixture of experts."""
    return {"fused_experts": _fused(row), "graphs": _graphs(row, model)}


def _fused(row: Row) -> bool:
    return "MX" in row["precision"] and release_of(row) >= FUSED_SINCE


def _graphs(row: Row, model: str) -> str:
    """What is launched as CUDA graphs."""
    family = row["gpu_family"]
    fixed = "tokendrop" in row["model"] and family.startswith("G")  # sizes that never change are what graphs need
    if _whole(row, model):
        return "iteration"
    if family == "H100" or (release_of(row) < 26 and not fixed):
        return "none"
    if (model == "qwen3_235b_a22b" and family in ("B200", "B300")) or (model == "gpt_oss_120b" and family in ("GB200", "B200")):
        return "none"
    router_alone = model == "qwen3_30b_a3b" and (family in ("GB300", "B300") or (family == "GB200" and "MX" in row["precision"]))
    return "router" if router_alone else "layers"


def recompute_of(row: Row, model: str) -> dict[str, Any]:
    """Section `recompute` of a published recipe; empty where it is not known, or the row is somebody else's layout."""
    if "NVIDIA-NeMo" not in row["source"] or (release_of(row) < 26 and model == "deepseek_v3"):
        return {}
    if model in DENSE:
        return {"recompute": {"granularity": "none"}} if (row.count("pp") or 1) > 1 else {}
    modules = RECOMPUTED.get((model, row["gpu_family"]), RECOMPUTED.get((model, "")))
    if modules is None:
        return {}
    kept = modules and not _fused(row)
    return {"recompute": {"granularity": "selective", "modules": list(modules)} if kept else {"granularity": "none"}}


def _whole(row: Row, model: str) -> bool:
    return model in WHOLE and _fused(row) and row["gpu_family"].startswith("G")


def nemo_deepseek(row: Row, size: dict[str, int]) -> dict[str, Any]:
    """Section `workload` of NeMo's recipe of DeepSeek-V3: experts padded, exchanged by all-to-all beside the shared expert; one module of
    multi-token prediction; 64 / pp layers per stage but 1 less in the first and 2 less in the last; recomputation by GPU; rotary embedding
    not fused (`apply_rope_fusion` of `nemo/collections/llm/gpt/model/deepseek.py`).
    """
    blackwell = row["gpu_family"] in ("B200", "B300", "GB200", "GB300")
    each = 64 // size["pp"]
    middle = f"{'t' * each}|" * (size["pp"] - 2)
    unfused = {"attention": "unfused"} if blackwell and release_of(row) < MLA_FUSED_ON_BLACKWELL else {}
    return {
        "experts": {"dispatcher": "alltoall", "capacity_factor": 1.0, "pad_to_capacity": True, "shared_overlap": True},
        "kernels": {"cross_entropy": "te", "rope": "unfused"} | unfused,
        "pipeline": {"layout": f"E{'t' * (each - 1)}|{middle}{'t' * (61 - each * (size['pp'] - 1) + 1)}mL"},
        "recompute": {"granularity": "selective", "modules": ["core_attn" if blackwell else "mla_up_proj"]},
    }
