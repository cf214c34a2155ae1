"""Helpers for tests of the workload: cases by name, the kernel times of an ideal device, and a plain replay of programs."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np

import workload
from compute.api import flops
from netsim.config.workload import Training
from netsim.kernels.structs import COMM
from workload import api

GPT3 = {"kind": "training", "model": "gpt3_175b", "sequence": 2048, "global_batch": 1536, "parallel": {"tp": 8, "pp": 8}}
LLAMA70 = {"kind": "training", "model": "llama3_70b", "sequence": 8192, "global_batch": 1024, "parallel": {"tp": 4, "pp": 4, "cp": 2}}
MIXTRAL = {
    "kind": "training", "model": "mixtral_8x7b", "sequence": 4096, "global_batch": 256, "parallel": {"pp": 4, "ep": 8},
    "experts": {"dispatcher": "alltoall"},
}  # fmt: skip
TINY = {"name": "tiny", "layers": 8, "hidden": 512, "heads": 8, "ffn": 2048, "vocab": 1024}
OVERLAP = {"overlap_grad_reduce": True, "overlap_param_gather": True}


def training(case: dict, **changes) -> Training:
    """The section of a run file; `model` may be a card's name, sections in `changes` are merged."""
    from pydantic import TypeAdapter

    merged = {k: v for k, v in case.items() if k != "model"}
    for key, value in changes.items():
        merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) and key != "model" else value
    model = changes.get("model", case["model"])
    merged["model"] = workload.load_model(model) if isinstance(model, str) else model
    return TypeAdapter(Training).validate_python(merged)


def build(monkeypatch, section: Training, n_gpus: int, gpus_per_node: int = 8, **kwargs):
    """Build on a device that does 1 PFLOP/s and moves 1 TB/s."""
    from compute.api import Times

    def ideal(device, kernels):
        t = np.array([round(flops(k) / 1e3 + k.nbytes) for k in kernels], dtype=np.int64)
        return Times(t, np.zeros(len(t)), np.zeros(len(t), np.int8))

    monkeypatch.setattr(api, "times", ideal)
    monkeypatch.setattr(api, "peak_flops", lambda device, dtype: 1e15)
    card = SimpleNamespace(gap=0, host=0, spread=0.0, arch="hopper")
    return workload.build(section, n_gpus, gpus_per_node, SimpleNamespace(card=card), **kwargs)


def replay(work, comm_ps=None):
    """Play all GPUs in plain Python; returns (end of the iteration, matched messages, start and end per (gpu, row)).

    A collective starts once all members have reached it and takes `comm_ps(call)` (0 by default). Fails on a deadlock.
    """
    p, g = work.programs, work.groups
    s, n = p.n_streams, len(work.gpu_program)
    cursor = {(gpu, k): p.stream_ptr[work.gpu_program[gpu] * s + k] for gpu in range(n) for k in range(s)}
    stop = {(gpu, k): p.stream_ptr[work.gpu_program[gpu] * s + k + 1] for gpu in range(n) for k in range(s)}
    free = dict.fromkeys(cursor, 0)
    begin, end, there = {}, {}, {}
    arrived, busy = defaultdict(dict), {}
    messages = []
    moved = True
    while moved:
        moved = False
        for gpu, k in list(cursor):
            while cursor[gpu, k] < stop[gpu, k]:
                row = cursor[gpu, k]
                deps = p.dep_idx[p.dep_ptr[row] : p.dep_ptr[row + 1]]
                if any((gpu, d) not in end if d >= 0 else (gpu, ~d) not in there for d in deps):
                    break
                ready = max([free[gpu, k]] + [end[gpu, d] if d >= 0 else there[gpu, ~d] for d in deps])
                there.setdefault((gpu, row), ready)
                if p.kind[row] == COMM:
                    group = g.group_of[p.dim[row], gpu]
                    members = g.member_idx[g.member_ptr[group] : g.member_ptr[group + 1]]
                    moved |= gpu not in arrived[group]
                    arrived[group].setdefault(gpu, (ready, row, k))
                    if len(arrived[group]) < len(members):
                        break
                    start = max(t for t, _, _ in arrived[group].values())
                    took = comm_ps(p.call[row]) if comm_ps else 0
                    assert start >= busy.get(group, 0), f"two calls at once on a group of {work.dims[p.dim[row]]}"
                    busy[group] = start + took
                    assert len({work.programs.call[r] for _, r, _ in arrived[group].values()}) == 1, "members disagree on their next call"
                    if len(members) == 2:
                        messages.append({m: arrived[group][m][1] for m in members})
                    for m, (_, r, stream) in arrived.pop(group).items():
                        begin[m, r], end[m, r] = start, start + took
                        free[m, stream] = start + took
                        cursor[m, stream] += 1
                else:
                    begin[gpu, row], end[gpu, row] = ready, ready + p.duration[row]
                    free[gpu, k] = end[gpu, row]
                    cursor[gpu, k] += 1
                moved = True
    left = {key: stop[key] - cursor[key] for key in cursor if cursor[key] < stop[key]}
    assert not left, f"deadlock: {left}"
    return max(end.values()), messages, begin, end
