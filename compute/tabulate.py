"""Make the shipped kernel tables from published measurements.

    python -m compute.tabulate --kernels kernels.csv --efficiency kernel_efficiency.csv [--out compute/tables]

`kernels.csv` collects timings of many public sources (GEMM by shape, attention, layer operations); `kernel_efficiency.csv` the GEMM,
grouped GEMM and attention shapes of Megatron training that SimuMax measured. One family of a device comes from one campaign: the one with
most shapes. What other campaigns measured on the same device, or one measured in a short burst, goes to cross_check/, and what is more than
one kernel (whole MoE layers, profiles of steps) to fused.csv; both are for checks only. The ratios that stand in for missing families are
derived by `compute.ratios`.
"""

import argparse
import csv
import statistics
from collections import defaultdict
from pathlib import Path

from compute import ratios, tables
from compute.kernels import Kernel, flops
from compute.tables import Row

DEVICES = {
    "a100 SXM": "a100_sxm",
    "A100-80GB SXM": "a100_sxm",
    "A100 SXM": "a100_sxm",
    "A100": "a100_sxm",
    "A100 PCIe": "a100_pcie",
    "A100-PCIe-80GB": "a100_pcie",
    "h100 SXM": "h100",
    "H100 SXM": "h100",
    "H100": "h100",
    "H800": "h800",
    "h200 SXM": "h200",
    "H200 SXM": "h200",
    "b200 SXM": "b200",
    "B200 SXM": "b200",
    "B200": "b200",
    "B200-SXM": "b200_simumax",
    "gb200": "gb200",
    "GB200 SXM": "gb200",
    "gb300": "gb300",
}
"""Names in the sources -> table. The chart of FlashAttention says A100 and H100 for the SXM boards, as does microsoft/vidur."""
DTYPES = {
    "bfloat16": "bf16",
    "fp16/bf16": "bf16",
    "fp8 e4m3": "fp8",
    "nvfp4 e2m1": "nvfp4",
    "fp8 (1x128/128x128 scales) -> bf16": "fp8_blockwise",
}
LIBRARIES = {
    "attention context (prefill)": "trtllm",
    "attention FlashAttention-2": "flash-attn 2",
    "attention FlashAttention-3": "flash-attn 3",
    "attention FlashAttention-4": "flash-attn 4",
    "attention cuDNN": "cudnn",
    "in-situ attention cuDNN SM100": "cudnn",
    "gemm grouped-contiguous": "deepgemm",
}
VIDUR_MODELS = {"Llama-2-70b-hf": (8192, 28672, 64, 8), "Llama-2-7b-hf": (4096, 11008, 32, 32)}
"""hidden, FFN hidden, heads, kv heads of the profiled models; head dim 128."""
PRIMARY = ("ai-dynamo/aiconfigurator", "deepseek-ai/DeepGEMM", "SimuMax")
SIMUMAX = "SimuMax v1.2 configs/system (measured kernel efficiencies)"
SETTLED_US = 1000.0
"""Dense GEMMs of SimuMax's B200 node that take less were over within 0.1 s (100 calls back to back, simu_tools/efficency_test/
test_gemm_efficiency.py) and caught the clock before or after the power limit acted: docs/compute.md, section on the two states."""


def number(text: str) -> int:
    return int(text) if text else 0


def gemm_row(entry: dict[str, str]) -> Row | None:
    """A dense or grouped GEMM of kernels.csv; None for upper bounds and distributions over GPUs."""
    dtype = DTYPES.get(entry["dtype"], entry["dtype"])
    if entry["kernel"] not in ("gemm", "gemm grouped-contiguous") or "distribution" in entry["notes"]:
        return None
    grouped = entry["kernel"] != "gemm"
    kernel = Kernel(
        "grouped_gemm" if grouped else "gemm",
        "fwd",
        dtype,
        number(entry["m"]),
        number(entry["n"]),
        number(entry["k"]),
        number(entry["groups"]) or 1,
    )
    fused = "quantise" if dtype == "fp8" and "ai-dynamo" in entry["source"] else ""
    time_us = float(entry["time_us"]) if entry["time_us"] else flops(kernel) / float(entry["tflops"]) / 1e6
    return Row(kernel, time_us, fused, LIBRARIES.get(entry["kernel"], ""), entry["source"])


def attention_row(entry: dict[str, str]) -> Row | None:
    """An attention of kernels.csv; charts give TFLOP/s of the causal half."""
    if entry["kernel"] not in LIBRARIES or entry["direction"] not in ("fwd", "bwd") or not entry["heads"]:
        return None
    seq, heads = number(entry["seq"]), number(entry["heads"])
    kernel = Kernel(
        "attention",
        entry["direction"],
        "bf16",
        batch=number(entry["batch"]),
        seq_q=seq,
        seq_kv=seq,
        heads=heads,
        kv_heads=number(entry["kv_heads"]) or heads,
        head_dim=number(entry["head_dim"]),
        causal=entry["causal"] == "1",
    )
    time_us = float(entry["time_us"]) if entry["time_us"] else flops(kernel) / float(entry["tflops"]) / 1e6
    return Row(kernel, time_us, "", LIBRARIES[entry["kernel"]], entry["source"])


def layer_row(entry: dict[str, str]) -> Row | None:
    """A layer operation of microsoft/vidur; sizes follow from model, tokens and tensor-parallel degree."""
    if not entry["kernel"].startswith("layer op"):
        return None
    hidden, ffn, heads, kv_heads = VIDUR_MODELS[entry["model"]]
    tokens, tp, op = number(entry["tokens"]), number(entry["tp"]), entry["kernel"].removeprefix("layer op ")
    shapes = {
        "attn_pre_proj": ((heads + 2 * max(kv_heads, tp)) * 128 // tp, hidden),
        "attn_post_proj": (hidden, hidden // tp),
        "mlp_up_proj": (2 * ffn // tp, hidden),
        "mlp_down_proj": (hidden, ffn // tp),
    }
    moved = {
        "emb": ("embedding", 4 * tokens * hidden),
        "add": ("residual", 6 * tokens * hidden),
        "mlp_act": ("swiglu", 6 * tokens * ffn // tp),
        "attn_rope": ("rope", 4 * tokens * (heads + max(kv_heads, tp)) * 128 // tp),
        "input_layernorm": ("norm", 4 * tokens * hidden),
        "post_attention_layernorm": ("norm", 4 * tokens * hidden),
    }
    if op in shapes:
        kernel = Kernel("gemm", "fwd", "fp16", tokens, *shapes[op])
    else:
        kind, nbytes = moved[op]
        kernel = Kernel(kind, nbytes=nbytes)
    return Row(kernel, float(entry["time_us"]), "", "" if op in ("add", "emb", *shapes) else "vllm", entry["source"])


def simumax_row(entry: dict[str, str]) -> Row:
    """A shape of the efficiency file; its layouts TN, NN, NT are forward, dgrad and wgrad."""
    shape = dict(pair.split("=") for pair in entry["shape"].split(", "))
    time_us = float(entry["time_us"])
    if entry["op"] == "matmul":
        direction = {"TN": "fwd", "NN": "dgrad", "NT": "wgrad"}[shape["layout"]]
        fp32_grad = direction == "wgrad" and shape["out_dtype"] == "fp32"
        return Row(
            Kernel("gemm", direction, "bf16", int(shape["m"]), int(shape["n"]), int(shape["k"]), accumulate=fp32_grad),
            time_us,
            "",
            "",
            SIMUMAX,
        )
    if entry["op"] == "group_matmul":
        m, n, k, groups = (int(shape[c]) for c in ("M", "N", "K", "ng"))
        direction = {"fwd": "fwd", "bwd_grad_act": "dgrad", "bwd_grad_w": "wgrad"}[shape["stage"]]
        sizes = {"fwd": (m, n, k), "dgrad": (m, k, n), "wgrad": (n, k, m)}[direction]
        fp32_grad = direction == "wgrad" and shape["main_grad_dtype"] == "fp32"
        return Row(Kernel("grouped_gemm", direction, "bf16", *sizes, groups, accumulate=fp32_grad), time_us, "", "", SIMUMAX)
    seq = int(shape["seq_len"])
    kernel = Kernel(
        "attention",
        entry["op"].removeprefix("sdp_"),
        "bf16",
        batch=int(shape["batch"]),
        seq_q=seq,
        seq_kv=seq,
        heads=int(shape["head_num"]),
        kv_heads=int(shape["kv_head_num"]),
        head_dim=int(shape["qk_head_dim"]),
        head_dim_v=int(shape["v_head_dim"]),
    )
    return Row(kernel, time_us, "", "flash-attn 2" if entry["gpu"].startswith("A100") else "cudnn", SIMUMAX)


def place(row: Row, gpu: str) -> str:
    """Table that takes a row: the device's own, or 'cross_check' of the device."""
    device, kind = DEVICES[gpu], row.kernel.kind
    check = f"cross_check/{device}"
    if device == "b200_simumax":  # attention and grouped GEMMs speak for any B200; dense GEMMs show this node's power limit
        return "b200" if kind != "gemm" else device if row.time_us >= SETTLED_US else check
    if kind == "attention":
        return device if row.source == SIMUMAX or row.library in ("trtllm", "cudnn") else check
    if kind in ("gemm", "grouped_gemm"):
        return device if row.source.startswith(PRIMARY) and row.kernel.dtype != "nvfp4" else check
    return device if kind in ("residual", "embedding") else check  # vLLM's norm, SwiGLU and RoPE are not the kernels of training


def merged(rows: list[Row]) -> list[Row]:
    """One row per kernel and library: the median of repeats, with the first source."""
    groups: dict[tuple[Kernel, str], list[Row]] = defaultdict(list)
    for row in rows:
        kernel = row.kernel if row.kernel.head_dim_v != row.kernel.head_dim else row.kernel._replace(head_dim_v=0)
        groups[kernel._replace(dtype="bf16") if kernel.nbytes else kernel, row.library].append(row)
    return [group[0]._replace(kernel=key[0], time_us=statistics.median(r.time_us for r in group)) for key, group in sorted(groups.items())]


def collect(kernels: Path, efficiency: Path) -> tuple[dict[str, list[Row]], list[dict[str, str]], dict[str, tuple[str, str]]]:
    """Rows by table ('cross_check/device' for checks), entries that are no single kernel, and software and confidence by source."""
    by_table: dict[str, list[Row]] = defaultdict(list)
    fused: list[dict[str, str]] = []
    sources = {SIMUMAX: ("SimuMax with Transformer Engine on torch", "primary-data")}
    with kernels.open(newline="") as file:
        for entry in csv.DictReader(file):
            row = gemm_row(entry) or attention_row(entry) or layer_row(entry)
            if row is None:
                fused.append(entry)
                continue
            sources[entry["source"]] = (entry["software"], entry["confidence"])
            by_table[place(row, entry["gpu"])].append(row)
    with efficiency.open(newline="") as file:
        for entry in csv.DictReader(file):
            row = simumax_row(entry)
            by_table[place(row, entry["gpu"])].append(row)
    return {name: merged(rows) for name, rows in by_table.items()}, fused, sources


def main() -> None:
    """Write tables, sources.csv, fused.csv and ratios.csv."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=Path, required=True)
    parser.add_argument("--efficiency", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=tables.FOLDER)
    options = parser.parse_args()
    by_table, fused, sources = collect(options.kernels, options.efficiency)
    keys = {source: f"s{i:02d}" for i, source in enumerate(sorted(sources))}
    for name, rows in by_table.items():
        path = options.out / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        tables.write(path, [row._replace(source=keys[row.source]) for row in rows])
        print(f"{path}: {len(rows)} rows")
    with (options.out / "sources.csv").open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("key", "source", "software", "confidence"))
        out.writerows((keys[s], s, *sources[s]) for s in sorted(sources))
    with (options.out / "fused.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(fused[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(fused)
    ratios.main(options.out)


if __name__ == "__main__":
    main()
