"""What Megatron-Bridge's performance recipes set beyond the columns of a row, by release, GPU and model.

Source: NVIDIA-NeMo/Megatron-Bridge `scripts/performance/configs/*/*_workload_base_configs.py` (dispatcher, CUDA graphs, overlap, fusions),
and `docs/performance-summary*.md` for the releases. "tokendrop" runs give every expert the same number of tokens, padded or dropped.
"""

import re
from typing import Any

from netsim.validate.rows import Row

FUSED_SINCE = 26.06
"""Release from which MXFP8 recipes use the fused grouped MLP; throughput of every such row rises by 30 to 50 % over the release before."""
WHOLE = ("deepseek_v3", "gpt_oss_120b")
"""Models whose MXFP8 recipes capture the whole iteration as one CUDA graph and overlap exchanges with experts, since the same release."""


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
    family = row["gpu_family"]
    fused = "MX" in row["precision"] and release_of(row) >= FUSED_SINCE
    fixed = "tokendrop" in row["model"] and family.startswith("G")  # sizes that never change are what graphs need
    none = (model == "qwen3_235b_a22b" and family in ("B200", "B300")) or family == "H100" or (release_of(row) < 26 and not fixed)
    graphs = "iteration" if _whole(row, model) else "none" if none else "layers"
    return {"fused_experts": fused, "graphs": graphs}


def _whole(row: Row, model: str) -> bool:
    return model in WHOLE and "MX" in row["precision"] and release_of(row) >= FUSED_SINCE and row["gpu_family"].startswith("G")
