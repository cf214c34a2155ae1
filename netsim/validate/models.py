"""Which model a row means: a ready card by its public name, or the shape in its columns."""

import re
from functools import cache
from typing import Any

import yaml

from netsim.config.use import library
from netsim.validate.rows import Row

NAMES = (
    (r"lora|finetuning lora", "!adapters on frozen weights (LoRA) are not modelled"),
    (r"nemotron[-_ ](h|3|3_5|v3)\b|nemotron[-_ ]?(h|3|v3)[-_ ]", "!Mamba layers of hybrid models are not modelled"),
    (r"bert|\bt5\b|vlm|ret(ro)?\b", "!not a decoder-only transformer"),
    (r"nemotron-?4.*15b", "nemotron4_15b"), (r"nemotron-?4.*340b", "nemotron4_340b"),
    (r"nemotron-8b", "nemotron_8b"), (r"nemotron-22b", "nemotron_22b"),
    (r"llama-?2.*7b\b", "llama2_7b"), (r"llama-?2.*13b", "llama2_13b"), (r"llama-?2.*70b", "llama2_70b"),
    (r"llama ?4.*maverick", "llama4_maverick"),
    (r"llama ?-?3.*405b", "llama3_405b"), (r"llama ?-?3.*70b", "llama3_70b"), (r"llama ?-?3.*8b", "llama3_8b"),
    (r"gpt-?3[- ]5b|paxml gpt5b", "gpt3_5b"), (r"gpt-?3[- ]20b", "gpt3_20b"), (r"gpt-?3[- ]175b|gpt 175b|paxml gpt175b", "gpt3_175b"),
    (r"nemo megatron", "gpt3_175b"), (r"gpt 22b", "megatron_22b"),
    (r"gpt[- ]oss.*120b", "gpt_oss_120b"), (r"gpt[- ]oss.*20b", "gpt_oss_20b"),
    (r"qwen3.*30b", "qwen3_30b_a3b"), (r"qwen3.*235b", "qwen3_235b_a22b"),
    (r"qwen2\.5 7b", "qwen2_5_7b"), (r"qwen2\.5 32b", "qwen2_5_32b"), (r"qwen2\.5 72b", "qwen2_5_72b"),
    (r"deepseek ?-?v3", "deepseek_v3"), (r"kimi", "kimi_k2"),
    (r"mixtral.*8x22b", "mixtral_8x22b"), (r"mixtral.*8x7b", "mixtral_8x7b"), (r"grok", "grok1"),
    (r"internlm 7b", "internlm_7b"), (r"mpt (\d+[bm])", r"mpt_\1"),
)  # fmt: skip
"""Public names -> cards; a text after ! says why such rows cannot run."""

MoE = (
    "llama4_maverick",
    "gpt_oss_120b",
    "gpt_oss_20b",
    "qwen3_30b_a3b",
    "qwen3_235b_a22b",
    "deepseek_v3",
    "kimi_k2",
    "mixtral_8x22b",
    "mixtral_8x7b",
    "grok1",
)


@cache
def card(name: str) -> dict[str, Any]:
    """The fields of a ready model card."""
    folder = library(("workload", "model"))
    assert folder is not None
    return dict(yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8")))


def shape(model: dict[str, Any], field: str) -> Any:
    """A field of the section `model`, looked up in the card that it uses."""
    return model.get(field, card(model["use"]).get(field) if "use" in model else None)


def model_of(row: Row, assumed: list[str]) -> dict[str, Any] | str:
    """Section `model` of a row, or the sentence why there is none."""
    if all(row.count(c) for c in ("layers", "hidden", "heads")) and not re.search(
        r"llama|deepseek|gpt-3|gpt 175b|gpt 22b|nemotron", row["model"], re.I
    ):
        return _from_columns(row, assumed)
    for pattern, name in NAMES:
        match = re.search(pattern, row["model"] + " " + row["framework"] if name.startswith("!ad") else row["model"], re.IGNORECASE)
        if match:
            return name[1:] if name.startswith("!") else _named(row, match.expand(name).lower(), assumed)
    return f"no model card for '{row['model']}', and no shape in the columns"


def _named(row: Row, name: str, assumed: list[str]) -> dict[str, Any]:
    model: dict[str, Any] = {"use": name}
    layers = row.count("layers")
    if layers and layers != card(name)["layers"]:
        model["layers"] = layers
    if (card(name).get("mtp_layers") and not re.search(r"bridge", row["framework"], re.IGNORECASE)) or "w/o MTP" in row["model"]:
        model["mtp_layers"] = 0
        assumed.append("no multi-token prediction")
    return model


def _from_columns(row: Row, assumed: list[str]) -> dict[str, Any]:
    """A GPT of the shape in the columns; what they do not say is as in GPT-3."""
    hidden = row.count("hidden") or 0
    bloom = "BLOOM" in row["model"]
    assumed.append("GPT layers (GELU, LayerNorm, biases, tied embeddings)" + (", ALiBi, vocabulary of BLOOM" if bloom else ""))
    return {
        "name": row["model"], "layers": row.count("layers"), "hidden": hidden,
        "heads": row.count("heads"), "kv_heads": row.count("kv_heads"),
        "head_dim": None if hidden % (row.count("heads") or 1) == 0 else hidden // (row.count("heads") or 1),
        "ffn": row.count("ffn") or 4 * hidden, "vocab": row.count("vocab") or (250680 if bloom else 51200),
        "activation": "gelu", "norm": "layernorm", "bias": True, "tied": True,
        "position": "alibi" if bloom else "learned", "positions": 0 if bloom else row.count("seq") or 2048,
    }  # fmt: skip
