"""From a row of a training table to a run: what the row says, and what has to be assumed, in words.

A row that lacks something for which there is no public convention cannot run; `CannotRun` says what. Nothing here depends on a single
row or source beyond what its publisher documents: model names are looked up, frameworks have the defaults of their published configurations
(`netsim.validate.frameworks`), and where recomputation is not stated it is none, and then whatever the memory model says is needed.
"""

import re
from typing import Any, NamedTuple

from netsim.validate.cluster import DEVICES, compute, fabric
from netsim.validate.frameworks import framework_of
from netsim.validate.models import MoE, model_of
from netsim.validate.rows import Row

PRECISIONS = (
    (r"nvfp4", "nvfp4"), (r"mx ?fp8|fp8-mx", "mxfp8"), (r"(fp8|fp4) or fp", ""), (r"fp8", "fp8"),
    (r"fp16/bf16|bf16", "bf16"), (r"fp16", "fp16"),
)  # fmt: skip


class CannotRun(Exception):
    """Why a row cannot become a run."""


class Case(NamedTuple):
    """A run to simulate, the step time that was measured, and what was assumed."""

    config: dict[str, Any]
    measured_s: float
    assumed: list[str]
    moe: bool


def case_of(row: Row) -> Case:
    """Return the run of a row; CannotRun where there is none."""
    assumed: list[str] = []
    if row["confidence"] == "suspect":
        raise CannotRun("the source marks the value as suspect")
    model = model_of(row, assumed)
    if isinstance(model, str):
        raise CannotRun(model)
    if row["gpu_family"] not in DEVICES:
        raise CannotRun(f"no device card for {row['gpu_family'] or 'a GPU that is not named'}")
    gpus = row.count("num_gpus")
    if gpus is None:
        raise CannotRun("the number of GPUs is not stated")
    size = _layout(row, gpus, assumed)
    micro, batch = _batch(row, size["dp"], assumed)
    sequence = row.count("seq")
    if sequence is None:
        raise CannotRun("the sequence length is not stated")
    measured = measured_s(row, batch, sequence, gpus, assumed)
    precision = _precision(row, assumed)
    workload = framework_of(row).workload(row, size, model, precision, assumed)
    if precision == "fp8" and re.search(r"-cs\b", row["precision"].lower()):
        workload["precision"] |= {"fp8_recipe": "tensorwise"}  # current scaling
    if model.get("use") in MoE and row.count("ep") is None and "DeepEP" in row["framework"]:
        size["ep"] = gpus // size["pp"]
        assumed.append("experts over all GPUs")
    parallel = workload.pop("parallel", {}) | {k: size[k] for k in ("tp", "pp", "cp", "ep", "vpp")}
    workload |= {
        "kind": "training", "model": model, "sequence": sequence, "micro_batch": micro, "global_batch": batch, "parallel": parallel,
    }  # fmt: skip
    if model.get("position") == "learned" or "use" in model:
        _positions(model, sequence)
    config = {"name": "row", "topology": fabric(row, gpus, size, assumed), "workload": workload, "compute": compute(row, assumed)}
    return Case(config, measured, assumed, model.get("use") in MoE)


def _positions(model: dict[str, Any], sequence: int) -> None:
    """A learned table of positions is as long as the sequence of the run."""
    from netsim.validate.models import shape

    if shape(model, "position") == "learned" and int(shape(model, "positions") or 0) < sequence:
        model["positions"] = sequence


def _layout(row: Row, gpus: int, assumed: list[str]) -> dict[str, int]:
    size = {}
    for name in ("tp", "pp", "cp", "ep", "vpp"):
        stated = row.count(name)
        size[name] = stated or 1
        if stated is None and name in ("tp", "pp") and "FSDP" not in row["sharding"] and "ZeRO" not in row["sharding"]:
            raise CannotRun(f"the size of {'tensor' if name == 'tp' else 'pipeline'} parallelism is not stated")
    width = size["tp"] * size["pp"] * size["cp"]
    if gpus % width:
        raise CannotRun(f"{gpus} GPUs are not a multiple of tp x pp x cp = {width}")
    size["dp"] = gpus // width
    stated = row.count("dp")
    if stated not in (None, size["dp"], size["dp"] * size["cp"]):
        assumed.append(f"dp {size['dp']} from the number of GPUs (stated: {stated})")
    return size


def _batch(row: Row, dp: int, assumed: list[str]) -> tuple[int, int]:
    micro, batch, steps = row.count("mbs"), row.count("gbs"), row.count("ga")
    if micro is None:
        micro = batch // (dp * steps) if batch and steps else 1
        assumed.append(f"micro-batch {micro}")
    if batch is None:
        batch = micro * dp * (steps or 1)
        assumed.append(f"global batch {batch}: micro-batch x dp" + (" x accumulation" if steps else ", no accumulation"))
    if batch % (micro * dp):
        raise CannotRun(f"the global batch {batch} is not a multiple of micro-batch x dp = {micro * dp}")
    return micro, batch


def _precision(row: Row, assumed: list[str]) -> str:
    text = row["precision"].lower()
    name = next((name for pattern, name in PRECISIONS if re.search(pattern, text)), None)
    if name is None and not text:
        assumed.append("bf16")
        return "bf16"
    if not name:
        raise CannotRun(f"the precision is not known ({row['precision']})")
    return name


def measured_s(row: Row, batch: int, sequence: int, gpus: int, assumed: list[str]) -> float:
    """Seconds per step: as stated, else from tokens per second, else from the TFLOP/s of SC21's formula."""
    step = row.number("step_time_s")
    if step:
        return step
    total = row.number("tokens_per_s_total") or (row.number("tokens_per_s_per_gpu") or 0.0) * gpus
    if total:
        return batch * sequence / total
    rate, shape = row.number("tflops_per_gpu"), [row.number(c) for c in ("layers", "hidden", "vocab")]
    if rate and "SC21" in row["framework"] and all(shape[:2]):
        layers, hidden, vocab = (float(v or 51200) for v in shape)
        assumed.append("step time from TFLOP/s by the paper's formula, which counts the recomputed forward pass")
        work = 96 * batch * sequence * layers * hidden**2 * (1 + sequence / (6 * hidden) + vocab / (16 * layers * hidden))
        return work / (rate * 1e12 * gpus)
    raise CannotRun("no step time and no tokens per second")
