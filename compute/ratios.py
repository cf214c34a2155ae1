"""Ratios that stand in for missing measurements, derived from the tables themselves: python -m compute.ratios

Each is a factor on time. Where a device measured both kernels, the ratio is the median over rows of measured time over the time that
kriging gives the other family at the same shape, both relative to their ideal times; sigma is the root mean square of what single rows are
off it.
Hopper, where backward layouts have no rows, takes the geometric mean of Ampere and Blackwell, and half their difference adds to sigma.
"""

import csv
from math import exp, hypot, log
from pathlib import Path
from typing import Any

import numpy as np

from compute import cards, tables
from compute.device import Device, build
from compute.families import coordinates, family_of
from compute.kernels import Kernel, flops, ideal_s
from compute.kriging import estimate
from compute.tables import Ratio, Row

Ratios = dict[tuple[str, str], Ratio]
FILLED = 1000
"""Tokens per group from which grouped GEMMs are compared with dense ones; dense tables have no rows for fewer."""


def bare(name: str) -> Device:
    """A device with the table of its name and no ratios."""
    return build(cards.card(name), [tables.read(f"{name}.csv")], {})


def log_gaps(device: Device, rows: list[Row], relative: Device, family: str, as_kernel: dict[str, Any]) -> np.ndarray:
    """log(measured / ideal) of rows minus what `family` of `relative` says at the same shape (with some fields of the kernel replaced)."""
    others = [row.kernel._replace(**as_kernel) for row in rows]
    query = np.array([coordinates(relative.card, k) for k in others]).reshape(len(rows), -1)
    index = np.full(len(rows), relative.family[0][family], np.int64)
    mean, _, _ = estimate(query, index, relative.ptr, relative.x, relative.y)
    return np.array([log(row.time_us * 1e-6 / ideal_s(device.card, row.kernel)) for row in rows]) - mean


def summary(gaps: np.ndarray, source: str) -> Ratio:
    """Median of log ratios, and how far single ones are off it."""
    middle = float(np.median(gaps))
    return Ratio(exp(middle), max(float(np.sqrt(np.mean((gaps - middle) ** 2))), 0.01), len(gaps), source)


def between(one: Ratio, other: Ratio) -> Ratio:
    """Geometric mean of two architectures' ratios."""
    spread = hypot(max(one.sigma, other.sigma), abs(log(one.value / other.value)) / 2)
    return Ratio((one.value * other.value) ** 0.5, spread, one.rows + other.rows, f"geometric mean of Ampere and Blackwell ({one.source})")


def of_family(sheet: list[Row], name: str, library: str = "") -> list[Row]:
    return [row for row in sheet if family_of(row.kernel) == name and library in ("", row.library)]


def _tokens(kernel: Kernel) -> int:
    return kernel.k if kernel.direction == "wgrad" else kernel.m


def layouts() -> Ratios:
    """Backward GEMM layouts from forward, grouped GEMMs from dense ones, attention backward from forward."""
    found: Ratios = {}
    simumax = next(key for key, source in tables.sources().items() if source.startswith("SimuMax"))
    for arch, names in (("ampere", ("a100_pcie",)), ("blackwell", ("b200_simumax", "b200"))):
        sheet = [row for name in names for row in tables.read(f"{name}.csv") if row.source == simumax]
        device = build(cards.card(names[0]), [sheet], {})
        source = f"SimuMax kernel efficiencies, {device.card.name}"
        for key, family, other, as_kernel in (
            ("gemm.dgrad", "gemm/dgrad/bf16", "gemm/fwd/bf16", {}),
            ("gemm.wgrad", "gemm/wgrad/bf16", "gemm/fwd/bf16", {}),
            ("gemm.wgrad.fp32_grad", "gemm/wgrad/bf16/fp32_grad", "gemm/fwd/bf16", {}),
            ("grouped_gemm.fwd", "grouped_gemm/fwd/bf16", "gemm/fwd/bf16", {"kind": "gemm", "groups": 1}),
            ("grouped_gemm.dgrad", "grouped_gemm/dgrad/bf16", "gemm/dgrad/bf16", {"kind": "gemm", "groups": 1}),
            ("grouped_gemm.wgrad", "grouped_gemm/wgrad/bf16/fp32_grad", "gemm/wgrad/bf16/fp32_grad", {"kind": "gemm", "groups": 1}),
            ("attention.bwd", "attention/bwd/bf16/causal", "attention/fwd/bf16/causal", {"direction": "fwd"}),
        ):
            rows = [r for r in of_family(sheet, family) if r.kernel.groups == 1 or _tokens(r.kernel) >= FILLED]
            if rows:
                found[key, arch] = summary(log_gaps(device, rows, device, other, as_kernel), source)
    for key in {key for key, _ in found}:
        pair = [found[key, arch] for arch in ("ampere", "blackwell") if (key, arch) in found]
        found[key, "*"] = between(*pair) if len(pair) == 2 else pair[0]
    return found


def attention() -> Ratios:
    """Kernels of inference servers to those of training, unmasked from causal, backward on Hopper from FlashAttention-2's charts."""
    found: Ratios = {}
    family = "attention/fwd/bf16/causal"
    for arch, inference, training, library in (
        ("ampere", "a100_sxm", "a100_pcie", ""),
        ("hopper", "h100", "h100", "cudnn"),
        ("blackwell", "b200", "b200", "cudnn"),
    ):
        sheet = tables.read(f"{inference}.csv")
        base = build(cards.card(inference), [of_family(sheet, family, "trtllm")], {})
        rows = [r for r in of_family(tables.read(f"{training}.csv"), family, library) if _within(r.kernel)]
        gaps = log_gaps(bare(training), rows, base, family, {})
        found["attention.trtllm", arch] = summary(
            gaps, f"training kernels of {training} against TensorRT-LLM's of {inference} at the same shapes"
        )
    charts = [
        row
        for row in tables.read("cross_check/h100.csv") + tables.read("h100.csv")
        if row.kernel.kind == "attention" and row.library != "trtllm"
    ]
    by_shape = {(row.kernel, row.library): row.time_us for row in charts}
    full = [
        log(t / flops(k) * flops(k._replace(causal=True)) / by_shape[k._replace(causal=True), lib])
        for (k, lib), t in by_shape.items()
        if not k.causal and (k._replace(causal=True), lib) in by_shape
    ]
    found["attention.full", "*"] = summary(np.array(full), "FlashAttention charts, H100 forward: unmasked against causal at the same shape")
    both = [
        (k, log((t - by_shape[k, "flash-attn 2"]) / 2.5 / by_shape[k, "flash-attn 2"]))
        for k, t in _forward_backward("H100")
        if (k, "flash-attn 2") in by_shape
    ]
    found["attention.bwd", "hopper"] = summary(
        np.array([gap for _, gap in both]), "FlashAttention-2 charts, H100: (forward + backward) - forward over 2.5 forward"
    )
    return found


def _within(kernel: Kernel) -> bool:
    """Shapes where the inference tables have neighbours."""
    return kernel.head_dim == 128 and not kernel.head_dim_v and 8 <= kernel.batch * kernel.heads <= 256 and 1024 <= kernel.seq_q <= 32768


def _forward_backward(gpu: str) -> list[tuple[Kernel, float]]:
    """Shapes and times (us) of FlashAttention-2's charts of forward + backward."""
    found = []
    with (tables.FOLDER / "fused.csv").open(newline="") as file:
        for e in csv.DictReader(file):
            if e["kernel"] == "attention FlashAttention-2" and e["gpu"] == gpu and e["direction"] == "fwd+bwd":
                seq, heads = int(e["seq"]), int(e["heads"])
                kernel = Kernel(
                    "attention",
                    batch=int(e["batch"]),
                    seq_q=seq,
                    seq_kv=seq,
                    heads=heads,
                    kv_heads=heads,
                    head_dim=int(e["head_dim"]),
                    causal=e["causal"] == "1",
                )
                found.append((kernel, 3.5 * flops(kernel) / float(e["tflops"]) / 1e6))
    return found


def quantise(name: str) -> Ratios:
    """What fused fp8 rows spend on quantising activations: e and b of a robust fit of time = a m n k + b m k + c m n + d n k + e."""
    rows = of_family(tables.read(f"{name}.csv"), "gemm/fwd/fp8")
    size = np.array([row.kernel[3:6] for row in rows], dtype=float)
    t_us = np.array([row.time_us for row in rows])
    m, n, k = size.T
    basis = np.c_[2 * m * n * k, m * k, m * n, n * k, np.ones(len(t_us))]
    scale = basis.max(axis=0)
    weight = 1 / t_us
    for _ in range(20):
        fit = np.linalg.lstsq(basis / scale * weight[:, None], t_us * weight, rcond=None)[0]
        weight = 1 / t_us / np.sqrt(1 + ((basis / scale @ fit - t_us) / t_us / 0.03) ** 2)
    launch_us = cards.card(name).launch / 1e6
    source = "robust fit of the table's fused fp8 GEMMs; bf16 rows of the same campaign show no such terms"
    rate = 3.0 / (fit[1] / scale[1]) / 1e3
    return {
        ("gemm.fp8.quantise_us", name): Ratio(max(fit[4] - launch_us, 0.0), 0.0, len(rows), source),
        ("gemm.fp8.quantise_gbps", name): Ratio(rate, 0.0, len(rows), source),
    }


def precisions(known: Ratios) -> Ratios:
    """fp8 from bf16, block-scaled precisions from fp8, all relative to their own peaks."""
    found: Ratios = {}
    for name, arch in (("h100", "hopper"), ("b200", "blackwell")):
        card = cards.card(name)
        device = build(card, [tables.read(f"{name}.csv")], known)
        rows = [row for row in of_family(tables.read(f"{name}.csv"), "gemm/fwd/fp8") if flops(row.kernel) > 1e11]
        spent = [
            3.0 * r.kernel.m * r.kernel.k / known["gemm.fp8.quantise_gbps", name].value / 1e3 + known["gemm.fp8.quantise_us", name].value
            for r in rows
        ]
        alone = [row._replace(time_us=max(row.time_us - us, ideal_s(card, row.kernel) * 1e6)) for row, us in zip(rows, spent, strict=True)]
        found["gemm.fp8", arch] = summary(
            log_gaps(device, alone, device, "gemm/fwd/bf16", {"dtype": "bf16"}), f"{name} table: fp8 without quantisation against bf16"
        )
        if name == "h100":
            pure = build(card, [alone], {})
            blocks = [r for r in tables.read("h800.csv") if r.kernel.kind == "gemm" and r.kernel.m >= 1024]
            found["gemm.fp8_blockwise", "*"] = summary(
                log_gaps(pure, blocks, pure, "gemm/fwd/fp8", {"dtype": "fp8"}),
                "DeepGEMM on H800 (two releases) against fp8 of the h100 table",
            )
    found["gemm.fp8", "*"] = found["gemm.fp8", "hopper"]
    found["gemm.fp8", "ampere"] = Ratio(1.0, 0.0, 0, "no fp8 tensor cores: runs as bf16")
    cublas = {
        row.kernel: row.time_us
        for row in tables.read("cross_check/b200.csv")
        if row.kernel.kind == "gemm" and row.kernel.dtype in ("fp8", "nvfp4")
    }
    card = cards.card("b200")
    gaps = [
        log(t / ideal_s(card, k) / cublas[k._replace(dtype="fp8")] * ideal_s(card, k._replace(dtype="fp8")))
        for k, t in cublas.items()
        if k.dtype == "nvfp4" and k._replace(dtype="fp8") in cublas
    ]
    found["gemm.nvfp4", "*"] = summary(
        np.array(gaps), "cuBLASLt on B200 (together.ai worklog): nvfp4 against fp8 at the same shapes, each of its own peak"
    )
    found["gemm.mxfp8", "*"] = Ratio(1.0, 0.1, 0, "assumed: no measurement; same tensor-core rate as fp8")
    return found


def main(folder: Path = tables.FOLDER) -> None:
    """Derive all ratios and write ratios.csv."""
    found = {**layouts(), **attention()}
    for name in ("h100", "h200", "b200", "gb200", "gb300"):
        found |= quantise(name)
    found |= precisions(found)
    with (folder / "ratios.csv").open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("name", "scope", "value", "sigma", "rows", "source"))
        for (name, scope), ratio in sorted(found.items()):
            out.writerow((name, scope, f"{ratio.value:.4f}", f"{ratio.sigma:.4f}", ratio.rows, ratio.source))
            print(f"{name:26} {scope:13} {ratio.value:9.3f} +- {ratio.sigma:.3f} ({ratio.rows} rows)  {ratio.source}")


if __name__ == "__main__":
    main()
