"""CUDA_DEVICE_MAX_CONNECTIONS: how many launch queues Megatron asks for, and what follows from their number."""

import numpy as np
import pytest

from netsim.kernels.structs import COMM
from tests.workload_cases import TINY, build, replay, training
from workload.launch import launch_of, queues

BASE = {"kind": "training", "model": TINY, "sequence": 512, "global_batch": 16}
MOE = {**TINY, "experts": 8, "top_k": 2, "expert_ffn": 512}
WOVEN = {"model": MOE, "parallel": {"tp": 2, "ep": 2, "etp": 1}, "experts": {"dispatcher": "alltoall", "overlap": True}}

NEEDED = [
    ({"parallel": {"tp": 2}}, "hopper", 1, "in order"),
    ({"parallel": {"cp": 2}}, "ampere", 1, "in order"),
    ({"parallel": {"tp": 2}}, "blackwell", 8, "free"),
    ({}, "hopper", 8, "late"),
    ({"parallel": {"tp": 2}, "data_parallel": {"sharding": "full"}}, "hopper", 8, "late"),
    (WOVEN, "hopper", 8, "late"),
    ({"kernels": {"CUDA_DEVICE_MAX_CONNECTIONS": 1}}, "blackwell", 1, "in order"),
    ({"parallel": {"tp": 2}, "kernels": {"connections": 32}}, "hopper", 32, "late"),
]


@pytest.mark.parametrize(("changes", "arch", "number", "rule"), NEEDED)
def test_what_megatron_requires(changes, arch, number, rule):
    section = training(BASE, **changes)
    assert (queues(section, arch), launch_of(section, arch)) == (number, rule)


def test_kernels_start_in_the_order_of_launch(monkeypatch):
    """With one queue no row starts before one that was launched before it, across streams; gradients are reduced from hooks."""
    layout = {"parallel": {"tp": 2}, "data_parallel": {"overlap_grad_reduce": True, "bucket_size": 100_000}}
    work = build(monkeypatch, training(BASE, **layout, kernels={"connections": 1}), 4)
    p = work.programs
    held = np.repeat(np.arange(len(p.kind)), np.diff(p.dep_ptr))[p.dep_idx < 0]
    after = ~p.dep_idx[p.dep_idx < 0]
    assert len(held) > 100
    _, _, begin, end = replay(work, lambda call: 3_000_000)
    comm = p.kind == COMM
    for row, before in zip(held.tolist(), after.tolist(), strict=True):
        # a call has started when this GPU is there: no later than when all are
        assert end[0, row] >= (end[0, before] - 3_000_000 if comm[before] else begin[0, before])


def test_false_dependencies(monkeypatch):
    """Buckets that take longer than their backward hold up compute with one queue, and not with more."""
    layout = {"data_parallel": {"overlap_grad_reduce": True, "bucket_size": 100_000}, "parallel": {"cp": 2}}
    last = {}
    for number in (1, 8):
        work = build(monkeypatch, training(BASE, **layout, kernels={"connections": number}), 4)
        took = np.where(np.char.startswith(np.array(work.calls.name), "dp.reduce_scatter"), 10**9, 0)
        _, _, _, end = replay(work, lambda call, took=took: int(took[call]))
        p = work.programs
        rows = np.flatnonzero((p.layer[: p.stream_ptr[1]] >= 0) & (p.category[: p.stream_ptr[1]] == 1))
        last[number] = max(end[0, int(row)] for row in rows)
    assert last[1] > 5 * last[8]


def test_a_collective_comes_after_the_gemm_beside_it(monkeypatch):
    """With more queues before Blackwell the gather beside a dgrad GEMM waits for its end; userbuffers have streams of high priority."""
    def gathers(**kernels):
        work = build(monkeypatch, training(BASE, parallel={"tp": 2}, kernels=kernels), 2)
        _, _, begin, end = replay(work, lambda call: 1_000_000)
        p, names = work.programs, np.array(work.calls.name)
        stream = work.streams.index("tp")
        rows = range(p.stream_ptr[stream], p.stream_ptr[stream + 1])
        return {int(r): begin[0, r] for r in rows if names[p.call[r]] == "tp.all_gather.qkv_input"}, p, end

    early, p, end = gathers(connections=1)
    late, q, end_late = gathers(connections=8)
    assert len(early) == len(late) == 8 * 16
    compute_ends = {end[0, r] for r in range(p.stream_ptr[1])}
    assert set(early.values()) <= compute_ends
    for row, t in late.items():
        behind = q.dep_idx[q.dep_ptr[row] : q.dep_ptr[row + 1]]
        assert len(behind) == 2 and t == max(end_late[0, int(d)] for d in behind)
