"""From rows to runs: what is taken as it stands, what is assumed, and what cannot run."""

import pytest

from netsim.validate.assume import CannotRun, Case, case_of
from netsim.validate.rows import Row

BASE = {
    "model": "Llama 3.1 70b", "gpu": "H100", "gpu_family": "H100", "num_gpus": "64", "gpus_per_node": "8", "tp": "4", "pp": "4", "vpp": "5",
    "cp": "2", "mbs": "1", "gbs": "128", "seq": "8192", "precision": "bf16", "step_time_s": "14.7", "framework": "NeMo", "source": "x",
}  # fmt: skip


def case(**fields: str) -> Case:
    return case_of(Row("t.csv", 2, BASE | fields))


def test_the_layout_is_that_of_the_row() -> None:
    c = case()
    assert c.config["workload"]["parallel"] | {"tp": 4, "pp": 4, "cp": 2, "ep": 1, "vpp": 5} == c.config["workload"]["parallel"]
    assert c.config["topology"]["nodes"] == 8 and c.config["topology"]["gpus_per_node"] == 8
    assert c.measured_s == 14.7 and not c.moe


def test_tokens_per_second_give_the_step_time() -> None:
    c = case(step_time_s="", tokens_per_s_per_gpu="1024")
    assert c.measured_s == pytest.approx(128 * 8192 / (1024 * 64))


def test_tokens_per_second_of_all_gpus_go_before_those_of_one() -> None:
    c = case(step_time_s="", tokens_per_s_total="131072", tokens_per_s_per_gpu="1")
    assert c.measured_s == pytest.approx(128 * 8192 / 131072)


def test_micro_batch_follows_from_accumulation_and_the_batch_from_both() -> None:
    split = case(mbs="", ga="4").config["workload"]  # 64 GPUs are two replicas
    assert (split["micro_batch"], split["global_batch"]) == (16, 128)
    multiplied = case(gbs="", mbs="3", ga="4").config["workload"]
    assert (multiplied["micro_batch"], multiplied["global_batch"]) == (3, 24)
    least = case(gbs="", mbs="").config["workload"]
    assert (least["micro_batch"], least["global_batch"]) == (1, 2)


@pytest.mark.parametrize(("release", "fused"), [("26.04", False), ("26.06", True), ("26.08", True)])
def test_experts_are_fused_since_a_release(release: str, fused: bool) -> None:
    fields = {"model": "GPT OSS 120B", "pp": "1", "tp": "1", "vpp": "1", "cp": "1", "ep": "64", "gbs": "1280", "seq": "4096"}
    bridge = {"framework": "Megatron-Bridge", "date_or_version": release, "source": "NVIDIA-NeMo/Megatron-Bridge", "gpu_family": "GB200"}
    assert case(**fields, **bridge, precision="MXFP8").config["workload"]["kernels"]["fused_experts"] is fused
    assert not case(**fields, **bridge, precision="BF16").config["workload"]["kernels"]["fused_experts"]


def test_sc21_counts_the_recomputed_forward_pass() -> None:
    """GPT-3 175B row of the paper's formula by hand: 96 B s l h^2 (1 + s/6h + V/16lh)."""
    shape = {"layers": "96", "hidden": "12288", "heads": "96", "vocab": "51200", "framework": "Megatron-LM (SC21)", "model": "GPT 145.6B"}
    c = case(
        **shape, gpu_family="A100", seq="2048", cp="1", vpp="", recompute="full", precision="fp16", step_time_s="", tflops_per_gpu="100"
    )
    work = 96 * 128 * 2048 * 96 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (16 * 96 * 12288))
    assert c.measured_s == pytest.approx(work / (100e12 * 64))
    assert c.config["workload"]["recompute"]["granularity"] == "full"


def test_stages_that_layers_do_not_fill_count_embedding_and_loss() -> None:
    c = case(model="Llama 3.1 405b", tp="8", pp="8", vpp="8", num_gpus="512", gbs="256")
    assert c.config["workload"]["pipeline"] == {"embedding_as_layer": True, "loss_as_layer": True}


def test_a_layout_string_deals_out_what_is_left() -> None:
    c = case(model="DeepSeek V3", tp="1", pp="16", vpp="1", cp="1", ep="8", num_gpus="256", gbs="4096", seq="4096")
    stages = c.config["workload"]["pipeline"]["layout"].split("|")
    assert len(stages) == 16 and "".join(stages) == "E" + "t" * 61 + "L" and max(map(len, stages)) - min(map(len, stages)) <= 1
    assert c.moe


def test_racks_of_nvl72_are_one_domain() -> None:
    c = case(gpu_family="GB200", gpus_per_node="4", num_gpus="128", tp="4", pp="8", vpp="8", cp="2", model="Llama 3.1 405b", gbs="64")
    assert c.config["topology"]["gpus_per_node"] == 64 and c.config["topology"]["nodes"] == 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"model": "Nemotron-H 56b"}, "Mamba"),
        ({"model": "Llama3 70b Finetuning LORA"}, "LoRA"),
        ({"model": "Something new"}, "no model card"),
        ({"num_gpus": ""}, "number of GPUs"),
        ({"num_gpus": "65"}, "multiple"),
        ({"gbs": "129"}, "multiple"),
        ({"seq": ""}, "sequence length"),
        ({"step_time_s": ""}, "no step time"),
        ({"tp": ""}, "tensor parallelism"),
        ({"precision": "fp8 or fp4 (not logged)"}, "precision"),
        ({"gpu_family": "V100"}, "device card"),
    ],
)
def test_what_cannot_run_says_why(fields: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotRun, match=reason):
        case(**fields)


def test_the_recipe_of_deepseek_in_nemo() -> None:
    """Published stages, padding and multi-token prediction; on Blackwell attention has no fused kernel before cuDNN 9.11."""
    fields = {
        "model": "Deepseek V3", "tp": "2", "pp": "4", "vpp": "1", "cp": "1", "ep": "32", "num_gpus": "128", "gbs": "1024", "seq": "4096",
        "gpu_family": "GB200", "source": "NVIDIA/dgxc-benchmarking v25.05.05:deepseek_v3/pretraining/README.md",
        "date_or_version": "v25.05.05",
        "framework": "NeMo (NVIDIA DGX Cloud recipe)",
    }  # fmt: skip
    work = case(**fields).config["workload"]
    assert [part.count("t") for part in work["pipeline"]["layout"].split("|")] == [15, 16, 16, 14]
    assert work["pipeline"]["layout"].endswith("mL") and work["model"]["mtp_layers"] == 1
    assert work["kernels"]["attention"] == "unfused" and work["recompute"]["modules"] == ["core_attn"]
    assert work["experts"]["pad_to_capacity"] and work["experts"]["dispatcher"] == "alltoall"
    hopper = case(**fields | {"gpu_family": "H100", "num_gpus": "512", "pp": "8", "gbs": "4096"}).config["workload"]
    assert "attention" not in hopper["kernels"] and hopper["recompute"]["modules"] == ["mla_up_proj"]


@pytest.mark.parametrize(
    ("fields", "modules"),
    [
        ({"model": "LLAMA3.1_405B"}, []),
        ({"model": "GPT OSS 120B", "pp": "1", "tp": "1", "vpp": "1", "cp": "1", "ep": "64"}, ["layernorm", "moe_act"]),
        ({"model": "LLAMA3.1_405B", "source": "somebody else"}, None),
    ],
)
def test_recomputation_of_published_recipes(fields: dict[str, str], modules: list[str] | None) -> None:
    bridge = {
        "framework": "Megatron-Bridge", "date_or_version": "26.04", "source": "NVIDIA-NeMo/Megatron-Bridge", "gpu_family": "GB200",
        "num_gpus": "64", "gbs": "1280", "seq": "4096",
    }  # fmt: skip
    recompute = case(**bridge | fields).config["workload"].get("recompute")
    assert (recompute and recompute.get("modules", [])) == modules


def test_paxml_is_sharded_over_groups() -> None:
    pax = {
        "model": "Paxml GPT175B", "framework": "JAX (Paxml)", "tp": "", "pp": "", "vpp": "", "cp": "", "num_gpus": "512", "mbs": "2",
        "gbs": "1024", "sharding": "FSDP+DP", "seq": "2048",
    }  # fmt: skip
    assert case(**pax).config["workload"]["data_parallel"]["instances"] == 4
