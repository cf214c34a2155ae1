"""Order tables of the schedules, and laws that every schedule obeys when all stages run together."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workload_cases import OVERLAP, TINY, build, replay, training
from workload import tally
from workload.schedule import Pipe, in_flight
from workload.schedules import gpipe, interleaved, one_f_one_b, zb_h1


def order(steps):
    return " ".join(f"{s.kind[0].upper()}{s.microbatch}c{s.chunk}" for s in steps if s.kind in ("forward", "backward"))


def warmup(steps):
    """Forwards before the first backward, less the one it is paired with."""
    kinds = [s.kind for s in steps if s.kind in ("forward", "backward")]
    return kinds.index("backward") - 1


def test_interleaved_table():
    pipe = Pipe(2, 2, 5, 3, True)
    assert [mb for _, mb in interleaved.table(pipe)] == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert [q for q, _ in interleaved.table(pipe)] == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("overlap", [True, False])
def test_interleaved_order(overlap):
    pipe = Pipe(4, 2, 8, 4, overlap)
    assert order(interleaved.steps(0, pipe)) == (
        "F0c0 F1c0 F2c0 F3c0 F0c1 F1c1 F2c1 F3c1 F4c0 F5c0 F6c0 B0c1 F7c0 B1c1 F4c1 B2c1 F5c1 B3c1 F6c1 B0c0 F7c1 B1c0 "
        "B2c0 B3c0 B4c1 B5c1 B6c1 B7c1 B4c0 B5c0 B6c0 B7c0"
    )
    assert order(interleaved.steps(3, pipe)) == (
        "F0c0 F1c0 F2c0 F3c0 F0c1 B0c1 F1c1 B1c1 F2c1 B2c1 F3c1 B3c1 F4c0 B0c0 F5c0 B1c0 F6c0 B2c0 F7c0 B3c0 F4c1 B4c1 "
        "F5c1 B5c1 F6c1 B6c1 F7c1 B7c1 "
        "B4c0 B5c0 B6c0 B7c0"
    )
    assert [in_flight(interleaved.steps(r, pipe)) for r in range(4)] == [11, 9, 7, 5]


def test_interleaved_gpt3():
    pipe = Pipe(8, 4, 96, 8, True)
    every = [interleaved.steps(r, pipe) for r in range(8)]
    assert [warmup(s) for s in every] == [38, 36, 34, 32, 30, 28, 26, 24]
    assert [in_flight(s) for s in every] == list(range(39, 24, -2))


@given(p=st.integers(1, 6), m=st.integers(1, 10))
def test_1f1b_in_flight(p, m):
    for r in range(p):
        steps = one_f_one_b.steps(r, Pipe(p, 1, m, p, False))
        assert in_flight(steps) == min(p - r, m)
        assert order(steps).count("F") == order(steps).count("B") == m


def messages(module, pipe):
    """(kind, chunk, microbatch) that every stage sends and receives, by direction, as the neighbour names them."""
    p, v = pipe.stages, pipe.chunks
    sent, received = {}, {}
    for r in range(p):
        for s in module.steps(r, pipe):
            if s.kind == "send_forward":
                sent.setdefault((r, "f"), []).append((s.chunk + (r == p - 1), s.microbatch))
            elif s.kind == "recv_forward":
                received.setdefault(((r - 1) % p, "f"), []).append((s.chunk, s.microbatch))
            elif s.kind == "send_backward":
                sent.setdefault((r, "b"), []).append((s.chunk - (r == 0), s.microbatch))
            elif s.kind == "recv_backward":
                received.setdefault(((r + 1) % p, "b"), []).append((s.chunk, s.microbatch))
    assert v >= 1
    return sent, received


@settings(deadline=None)
@given(
    p=st.integers(2, 5), v=st.integers(2, 4), groups=st.integers(1, 3), overlap=st.booleans(), flush=st.booleans(), wider=st.integers(0, 3)
)
def test_interleaved_messages_match_in_order(p, v, groups, overlap, flush, wider):
    pipe = Pipe(p, v, (p + wider) * groups, p + wider, overlap, flush)
    sent, received = messages(interleaved, pipe)
    assert sent == received


@given(p=st.integers(2, 6), m=st.integers(1, 9))
def test_other_messages_match_in_order(p, m):
    for module in (one_f_one_b, gpipe, zb_h1):
        sent, received = messages(module, Pipe(p, 1, m, p, module is not one_f_one_b))
        assert sent == received


@pytest.mark.parametrize(
    ("schedule", "vpp", "pipeline"),
    [
        ("1f1b", 1, {}),
        ("gpipe", 1, {}),
        ("zb_h1", 1, {}),
        ("dualpipe", 1, {}),
        ("interleaved", 2, {}),
        ("interleaved", 2, {"overlap_p2p": False}),
        ("interleaved", 2, {"warmup_flush": True}),
        ("interleaved", 2, {"group_size": 8}),
    ],
)
@pytest.mark.parametrize("tp", [1, 2])
def test_runs_without_deadlock(monkeypatch, schedule, vpp, pipeline, tp):
    case = {"kind": "training", "model": TINY, "sequence": 256, "global_batch": 16}
    section = training(case, parallel={"pp": 4, "tp": tp, "vpp": vpp}, pipeline={"schedule": schedule, **pipeline}, data_parallel=OVERLAP)
    work = build(monkeypatch, section, 8 * tp)
    _, matched, _, _ = replay(work)
    p = work.programs
    for pair in matched:
        rows = list(pair.values())
        if work.dims[p.dim[rows[0]]].startswith("pp_"):
            assert p.microbatch[rows[0]] == p.microbatch[rows[1]]


@pytest.mark.parametrize("schedule", ["dualpipe", "zb_h1", "gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 12), (6, 12), (8, 18), (16, 32)])
@pytest.mark.parametrize("connections", [1, 8])
def test_deep_pipelines_run_without_deadlock(monkeypatch, schedule, p, m, connections):
    case = {"kind": "training", "model": {**TINY, "layers": 16 if p != 6 else 12}, "sequence": 256, "global_batch": m}
    section = training(case, parallel={"pp": p}, pipeline={"schedule": schedule}, kernels={"connections": connections})
    end, *_ = replay(build(monkeypatch, section, p))  # fails where streams wait for each other
    assert end > 0


def test_both_holders_of_a_chunk_sum_up_the_same(monkeypatch):
    """Dual-pipe stages of different depths, with experts: every group agrees on the order of its calls, whatever finishes first."""
    moe = {**TINY, "layers": 9, "experts": 8, "top_k": 2, "expert_ffn": 512, "dense_layers": 1}
    case = {"kind": "training", "model": moe, "sequence": 256, "global_batch": 32}
    section = training(
        case, parallel={"pp": 4, "ep": 2}, pipeline={"schedule": "dualpipe", "layout": "Ettt|tt|ttt|tL"},
        experts={"dispatcher": "alltoall", "overlap": True}, data_parallel={**OVERLAP, "bucket_size": 1_000_000},
    )  # fmt: skip
    work = build(monkeypatch, section, 16)
    replay(work, lambda call: 2_000_000)
    sums = [tally(work, stage) for stage in range(4)]
    for kind in ("dense", "expert"):
        copies = [count["dp", f"dp.all_reduce.{kind}_copies"] for count in sums]
        assert copies[0] == copies[3] and copies[1] == copies[2] and copies[0].ops == 2


def test_both_holders_agree_on_the_order_of_a_chunk_without_layers(monkeypatch):
    case = {"kind": "training", "model": TINY, "sequence": 256, "global_batch": 16}
    section = training(case, parallel={"pp": 2}, pipeline={"schedule": "dualpipe", "first_stage_layers": 0})
    replay(build(monkeypatch, section, 4), lambda call: 1_000_000)


def test_synchronisation_after_batches_waits_for_reductions(monkeypatch):
    """Gradients scattered in every microbatch hold up the next pass after a batch of messages, unless the host does not wait."""
    case = {"kind": "training", "model": TINY, "sequence": 256, "global_batch": 16}
    took = {}
    for sync in (True, False):
        section = training(case, parallel={"pp": 2}, pipeline={"batch_p2p_sync": sync}, data_parallel={"sharding": "zero2"})
        work = build(monkeypatch, section, 4)
        slow = np.array([10**9 if name.startswith("dp.reduce_scatter") else 0 for name in work.calls.name])
        took[sync] = replay(work, lambda call, slow=slow: int(slow[call]))[2:]
        begin, end = took[sync]
        p = work.programs
        waits = []
        for row in range(p.stream_ptr[1]):
            running = [r for r in range(p.stream_ptr[1], p.stream_ptr[p.n_streams]) if slow[p.call[r]] and p.kind[r]]
            waits.append(any(begin[0, r] < begin[0, row] < end[0, r] for r in running) and p.category[row] == 0)
        took[sync] = sum(waits)
    assert took[True] == 0 < took[False]


def ideal(work):
    """Compute time of a forward and a backward pass of each stage, from its rows."""
    p = work.programs
    out = []
    for stage in range(p.n_programs):
        rows = slice(p.stream_ptr[stage * p.n_streams], p.stream_ptr[stage * p.n_streams + 1])
        one = p.microbatch[rows] == 0
        out.append([int(p.duration[rows][one & (p.category[rows] == c)].sum()) for c in (0, 1)])
    return out


@pytest.mark.parametrize("vpp", [1, 2])
def test_bubble_of_uniform_stages(monkeypatch, vpp):
    """(p - 1) / v of a forward and backward, when stages are alike and messages are free."""
    model = {**TINY, "vocab": 1, "hidden": 512}
    section = training({"kind": "training", "model": model, "sequence": 512, "global_batch": 12}, parallel={"pp": 4, "vpp": vpp},
                       data_parallel={"sharding": "none"})  # fmt: skip
    work = build(monkeypatch, section, 4)
    p = work.programs
    work.programs.duration[:] = 0
    per = 1000 // vpp
    compute = (p.kind == 0) & (p.layer >= 0)
    layers = 8 // 4 // vpp
    work.programs.duration[compute & (p.category == 0)] = per
    work.programs.duration[compute & (p.category == 1)] = 2 * per
    end, _, _, _ = replay(work)
    forward, backward = per * layers * vpp, 2 * per * layers * vpp
    assert end == pytest.approx(12 * (forward + backward) + 3 * (forward + backward) / vpp, rel=1e-9)


def test_zb_h1_bubble(monkeypatch):
    """Splitting the backward pass shortens the bubble by about the time of the weight gradients."""
    model = {**TINY, "vocab": 1}
    ends = {}
    for schedule in ("1f1b", "zb_h1"):
        section = training({"kind": "training", "model": model, "sequence": 512, "global_batch": 12}, parallel={"pp": 4},
                           pipeline={"schedule": schedule}, data_parallel={"sharding": "none"})  # fmt: skip
        ends[schedule] = replay(build(monkeypatch, section, 4))[0]
    assert ends["zb_h1"] < ends["1f1b"]


def test_peak_of_activations_follows_the_schedule(monkeypatch):
    section = training({"kind": "training", "model": TINY, "sequence": 256, "global_batch": 32}, parallel={"pp": 4})
    held = [m.activations for m in build(monkeypatch, section, 4).memory]
    assert all(a > b for a, b in pairwise(held[:3]))
    assert np.isclose(held[1] / held[2], 3 / 2, rtol=0.01)


MOE = {**TINY, "ffn": 1024, "experts": 8, "top_k": 2, "expert_ffn": 512, "dense_layers": 1}


@pytest.mark.parametrize(("pp", "vpp"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("dispatcher", ["alltoall", "flex"])
def test_woven_exchanges(monkeypatch, pp, vpp, dispatcher):
    """The same calls as without overlap, no deadlock, and exchanges that are hidden behind the other microbatch."""
    case = {"kind": "training", "model": MOE, "sequence": 256, "global_batch": 16}
    ends, calls = [], []
    for overlap in (False, True):
        layout = {"pp": pp, "vpp": vpp, "ep": 2}
        section = training(case, parallel=layout, experts={"dispatcher": dispatcher, "overlap": overlap})
        work = build(monkeypatch, section, 2 * pp)
        names = work.calls.name
        ends.append(replay(work, lambda call, names=names: 3_000_000 if names[call].startswith("ep.all_to_all") else 0)[0])
        calls.append(tally(work, 0))
    assert calls[0] == calls[1]
    assert ends[1] < 0.95 * ends[0]
