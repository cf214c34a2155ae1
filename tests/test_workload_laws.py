"""Laws that hold for every layout: kernels add up to the model's FLOPs, memory that is kept is freed, groups partition the GPUs."""

import random
from collections import Counter

import numpy as np
import pytest

import workload
from compute.api import flops
from netsim.config.compute import StepTimes
from netsim.errors import InputError
from netsim.kernels.structs import CATEGORIES, COMPUTE
from tests.workload_cases import LLAMA70, OVERLAP, TINY, build, replay, training
from workload.api import executed_flops
from workload.flops import flops_per_step
from workload.fsdp import dispatch_points, working_set
from workload.layout import dimensions, layout_of, members
from workload.programs import play_all
from workload.shape import Shape
from workload.stages import chunks
from workload.step import stage_params
from workload.tape import KEPT, Tables

BASE = {"kind": "training", "model": {**TINY, "kv_heads": 4}, "sequence": 512, "global_batch": 16}
MOE = {**TINY, "experts": 8, "top_k": 2, "expert_ffn": 512, "shared_ffn": 512, "dense_layers": 1}
MLA = {"attention": "mla", "q_rank": 128, "kv_rank": 64, "nope_dim": 32, "rope_dim": 16, "v_dim": 32}
LAYOUTS = {
    "plain": ({}, 2),
    "tp": ({"parallel": {"tp": 4, "pp": 2}}, 16),
    "tp without sp": ({"parallel": {"tp": 4, "sequence_parallel": False}}, 8),
    "tp, sums behind": ({"parallel": {"tp": 4, "sequence_parallel": False, "async_allreduce": False}}, 8),
    "gradients added apart": (
        {"model": {**MOE, **MLA}, "parallel": {"ep": 2, "tp": 2, "etp": 1}, "experts": {"dispatcher": "alltoall"},
         "kernels": {"gradient_accumulation_fusion": False}},
        4,
    ),
    "tp overlap": ({"parallel": {"tp": 4, "tp_comm_overlap": True}}, 4),
    "cp ring": ({"parallel": {"cp": 4, "pp": 2}}, 8),
    "cp gather": ({"parallel": {"cp": 2, "cp_comm_type": "all_gather"}}, 4),
    "cp a2a": ({"parallel": {"cp": 2, "tp": 2, "cp_comm_type": "a2a"}}, 4),
    "cp both": ({"parallel": {"cp": 4, "cp_comm_type": "a2a+p2p", "hierarchical_sizes": [2, 2]}}, 4),
    "vpp": ({"parallel": {"pp": 4, "vpp": 2}, "data_parallel": OVERLAP}, 8),
    "zb": ({"parallel": {"pp": 4, "tp": 2}, "pipeline": {"schedule": "zb_h1"}}, 8),
    "dualpipe": ({"parallel": {"pp": 4}, "pipeline": {"schedule": "dualpipe"}}, 4),
    "moe": ({"model": MOE, "parallel": {"ep": 4, "tp": 2, "etp": 1}, "experts": {"dispatcher": "alltoall"}}, 8),
    "moe etp": ({"model": MOE, "parallel": {"ep": 2, "tp": 2}, "experts": {"dispatcher": "alltoall"}}, 4),
    "moe gather": ({"model": MOE, "parallel": {"ep": 4}}, 8),
    "moe flex": ({"model": MOE, "parallel": {"ep": 4}, "experts": {"dispatcher": "flex"}}, 8),
    "moe shared beside": ({"model": MOE, "parallel": {"ep": 4}, "experts": {"dispatcher": "alltoall", "shared_overlap": True}}, 4),
    "moe woven": ({"model": MOE, "parallel": {"ep": 4}, "experts": {"dispatcher": "alltoall", "overlap": True}}, 4),
    "moe woven with tp": (
        {"model": MOE, "parallel": {"ep": 2, "tp": 2, "etp": 1}, "experts": {"dispatcher": "alltoall", "overlap": True}},
        4,
    ),
    "moe woven, one queue": (
        {"model": MOE, "parallel": {"ep": 2, "tp": 2, "etp": 1}, "kernels": {"connections": 1},
         "experts": {"dispatcher": "alltoall", "overlap": True, "delay_wgrad": True}},
        4,
    ),
    "moe delayed": (
        {"model": MOE, "parallel": {"ep": 4}, "experts": {"dispatcher": "alltoall", "overlap": True, "delay_wgrad": True}},
        4,
    ),
    "tp overlap dgrad": ({"parallel": {"tp": 4, "tp_comm_overlap": True, "tp_comm_overlap_rs_dgrad": True}}, 4),
    "mla": ({"model": {**MOE, **MLA}, "parallel": {"ep": 2, "tp": 2, "etp": 1, "pp": 2}, "experts": {"dispatcher": "alltoall"}}, 8),
    "mtp": ({"model": {**TINY, "mtp_layers": 1}, "parallel": {"tp": 2, "pp": 2}}, 4),
    "small buckets": (
        {"model": {**MOE, **MLA}, "parallel": {"ep": 2, "tp": 2, "etp": 1}, "experts": {"dispatcher": "alltoall"},
         "data_parallel": {**OVERLAP, "bucket_size": 50_000}},
        8,
    ),
    "fsdp": ({"data_parallel": {"sharding": "full"}}, 4),
    "fsdp in groups": ({"data_parallel": {"sharding": "full", "instances": 2}}, 4),
    "scatter-gather": ({"parallel": {"tp": 4, "pp": 2, "sequence_parallel": False}, "pipeline": {"scatter_gather": True}}, 8),
    "zero2": ({"data_parallel": {"sharding": "zero2"}}, 4),
    "hsdp": ({"data_parallel": {"instances": 2, **OVERLAP}}, 4),
    "full recompute": ({"recompute": {"granularity": "full"}, "parallel": {"tp": 2}}, 4),
    "block recompute": ({"recompute": {"granularity": "full", "method": "block", "layers": 2}, "parallel": {"pp": 2}}, 4),
    "modules": ({"model": MOE, "recompute": {"granularity": "selective", "modules": ["core_attn", "layernorm", "moe_act", "mlp"]}}, 2),
    "moe again": ({"model": MOE, "parallel": {"ep": 2}, "recompute": {"granularity": "selective", "modules": ["moe"]}}, 2),
    "up again": ({"model": {**TINY, **MLA}, "recompute": {"granularity": "selective", "modules": ["mla_up_proj"]}}, 2),
    "fp16": ({"precision": {"gemm": "fp16", "activations": "fp16"}, "clip_grad": 0.0}, 2),
    "dropout": ({"model": {**TINY, "dropout": 0.1, "activation": "gelu", "bias": True}, "kernels": {"attention": "unfused"}}, 2),
    "fp8": ({"precision": {"gemm": "fp8"}, "parallel": {"tp": 2}}, 4),
}  # fmt: skip


@pytest.fixture(params=LAYOUTS)
def case(request):
    changes, n_gpus = LAYOUTS[request.param]
    return training(BASE, **changes), n_gpus


def test_runs(monkeypatch, case):
    section, n_gpus = case
    work = build(monkeypatch, section, n_gpus, gpus_per_node=2)
    assert replay(work, lambda call: 1_000_000)[0] > 0
    p = work.programs
    assert p.dep_ptr[-1] == len(p.dep_idx)
    row_stream = np.repeat(np.arange(p.n_programs * p.n_streams), np.diff(p.stream_ptr))
    row = np.repeat(np.arange(len(p.kind)), np.diff(p.dep_ptr))
    dep = np.where(p.dep_idx < 0, ~p.dep_idx, p.dep_idx)
    assert (row_stream[row] // p.n_streams == row_stream[dep] // p.n_streams).all()
    assert (row_stream[row] != row_stream[dep]).all()


def test_kernels_add_up_to_the_model(monkeypatch, case):
    """GEMM and attention FLOPs of all GPUs against the closed form of the model, without what is recomputed."""
    section, n_gpus = case
    work = build(monkeypatch, section, n_gpus, gpus_per_node=2)
    p, segments = work.programs, work.segments
    per_kernel = np.array([flops(k) / (1.25 if k.kind == "attention" and k.direction == "bwd" else 1) for k in segments.kernels])
    per_segment = np.array([per_kernel[segments.idx[a:b]].sum() for a, b in zip(segments.ptr, segments.ptr[1:], strict=False)])
    counted = (p.kind == COMPUTE) & (p.category != CATEGORIES.index("recompute"))
    stages = np.repeat(np.arange(p.n_programs), np.diff(p.stream_ptr[:: p.n_streams]))
    total = np.bincount(stages[counted], per_segment[p.call[counted]], minlength=p.n_programs)
    everyone = (total[work.gpu_program]).sum()
    assert work.shape.vocab == section.model.vocab
    expected = flops_per_step(section)
    if section.kernels.attention == "unfused":  # computes the whole square; backward does not repeat the scores
        expected += 6.0 * section.model.hidden * section.sequence * section.model.layers * section.global_batch * section.sequence
    assert everyone == pytest.approx(expected, rel=0.02)


def test_what_is_kept_is_freed(case):
    section, n_gpus = case
    _, programs = play_all(Shape(section, layout_of(section, n_gpus, 2)), Tables())
    for program in programs:
        rows = program.rows[: program.stream_rows[0]]
        assert rows[:, KEPT].sum() == 0
        assert np.cumsum(rows[:, KEPT]).min() >= 0


def test_groups_partition_the_gpus(monkeypatch, case):
    section, n_gpus = case
    work = build(monkeypatch, section, n_gpus, gpus_per_node=2)
    g = work.groups
    for d, name in enumerate(work.dims):
        of = g.group_of[d]
        for gpu in np.flatnonzero(of >= 0):
            assert gpu in g.member_idx[g.member_ptr[of[gpu]] : g.member_ptr[of[gpu] + 1]], name
    called = set(np.unique(work.programs.dim[work.programs.dim >= 0]))
    assert called == set(range(len(work.dims)))


def test_rank_placement():
    """Published placements: TP in a node, DP one GPU per node, CP neighbours, experts in a node."""
    lay = layout_of(training({**BASE, "global_batch": 1024}, parallel={"tp": 8, "pp": 8}), 1024)
    dp = members(lay, ("dp",))
    assert (dp[0] == 8 * np.arange(16)).all() and (dp[8 * 3 + 5] == 5 + 8 * np.arange(16) + 128 * 3).all()
    lay = layout_of(training(LLAMA70), 1024)
    assert members(lay, ("cp",))[0].tolist() == [0, 4]
    assert members(lay, ("dp", "cp"))[1].tolist() == sorted(1 + 4 * c + 8 * k for c in range(2) for k in range(32))
    lay = layout_of(training({**BASE, "model": MOE}, parallel={"pp": 4, "ep": 8}), 64)
    assert members(lay, ("ep",), True)[0].tolist() == list(range(8)) and members(lay, ("dp",), True)[0].tolist() == [0, 8]


@pytest.mark.parametrize(("n_gpus", "per_node", "parallel", "inside", "across"), [
    (16, 4, {"ep": 8}, [0, 1, 2, 3], [0, 4]),
    (4, 1, {"ep": 4}, None, [0, 1, 2, 3]),  # a GPU per node
    (24, 8, {"ep": 12}, [0, 1, 2, 3], [0, 4, 8]),  # 8 and 4 GPUs of a group in a node
    (16, 4, {"ep": 4, "order": "dp-tp-cp-ep-pp"}, None, [0, 4, 8, 12]),
])  # fmt: skip
def test_tokens_that_go_once_to_every_node(monkeypatch, n_gpus, per_node, parallel, inside, across):
    """Parts of expert groups inside nodes and across them, wherever a group lies; the program calls them."""
    model = {**MOE, "experts": 24 if parallel["ep"] == 12 else 8}
    section = training({**BASE, "global_batch": n_gpus, "model": model}, parallel=parallel, experts={"dispatcher": "flex"})
    work = build(monkeypatch, section, n_gpus, per_node)
    replay(work)
    groups = dimensions(work.shape.lay)
    assert groups["ep_rail"][0].tolist() == across
    assert (groups["ep_node"][0].tolist() if "ep_node" in groups else None) == inside
    called = {name for name in work.calls.name if name.endswith(("_node", "_rail"))}
    assert {name.rsplit("_", 1)[1] for name in called} == ({"rail"} if inside is None else {"node", "rail"})


@pytest.mark.parametrize(("pipeline", "expected"), [
    ({}, [2, 2, 2, 2]),
    ({"first_stage_layers": 1, "last_stage_layers": 1}, [1, 3, 3, 1]),
    ({"layout": "Et|(tt|)*3tL"}, None),
    ({"layout": "E t*3|t*2|t*2|tL"}, [3, 2, 2, 1]),
])  # fmt: skip
def test_layers_of_stages(pipeline, expected):
    section = training(BASE, parallel={"pp": 4}, pipeline=pipeline)
    if expected is None:
        with pytest.raises(ValueError, match="expected 4 parts"):
            chunks(section, 4)
    else:
        assert [c.layers for c in chunks(section, 4)] == expected


def test_embedding_and_loss_as_layers():
    pipeline = {"embedding_as_layer": True, "loss_as_layer": True}
    section = training({**BASE, "model": {**TINY, "layers": 6}}, parallel={"pp": 4}, pipeline=pipeline)
    assert [c.layers for c in chunks(section, 4)] == [1, 2, 2, 1]


@pytest.mark.parametrize(("tied", "mtp"), [(True, 0), (True, 1), (False, 1), (False, 0)])
@pytest.mark.parametrize("pipeline", [{}, {"schedule": "dualpipe"}])
@pytest.mark.parametrize("sharding", ["none", "optimizer", "full"])
def test_copies_of_the_embedding(monkeypatch, tied, mtp, pipeline, sharding):
    """Multi-token prediction embeds on the last stage: a matrix there serves it and a tied output layer, and both ends sum the gradient."""
    section = training({**BASE, "model": {**TINY, "tied": tied, "mtp_layers": mtp}}, parallel={"pp": 4}, pipeline=pipeline,
                       data_parallel={"sharding": sharding, **({} if sharding == "full" else {"overlap_grad_reduce": True})})  # fmt: skip
    work = build(monkeypatch, section, 8)
    replay(work, lambda call: 1_000_000)
    matrix = work.shape.vocab * section.model.hidden
    held = [p for p in stage_params(work.shape, work.chunks[3]) if p.module in ("embedding", "head")]
    together = bool(pipeline)
    assert len(held) == (1 if tied else 2 if together or mtp else 1)
    summed = [workload.tally(work, stage).get(("pp", "pp.all_reduce.embedding_grads"), (0, 0)) for stage in range(4)]
    copies = not together and (tied or mtp)
    assert summed == [(1, 4 * matrix) if copies and stage in (0, 3) else (0, 0) for stage in range(4)]


def test_rows_and_their_probabilities_are_gathered_over_expert_tensor_parallelism(monkeypatch):
    section = training(BASE, model=MOE, parallel={"ep": 2, "tp": 2}, experts={"dispatcher": "alltoall"})
    work = build(monkeypatch, section, 4)
    count, m = workload.tally(work, 0), 7 * work.shape.lay.microbatches  # 7 layers with experts
    rows = work.shape.expert_rows
    assert rows == 2 * work.shape.routed_rows == 512 * 2
    for name in ("all_gather.row", "reduce_scatter.row"):
        grad = "_grad" if name.startswith("reduce") else ""
        assert count["ep", f"ep.{name}s{grad}"] == (m, m * rows * 2 * 512) and count["ep", f"ep.{name}_probs{grad}"] == (m, m * rows * 4)
    assert count["ep", "ep.all_to_all.probs"] == (m, m * rows // 2 * 4)


def test_inputs_are_handed_on_whole(monkeypatch):
    """Who reads the data broadcasts whole sequences to its tensor-parallel group; each GPU takes its context-parallel part from them."""
    section = training(BASE, parallel={"tp": 2, "cp": 2})
    work = build(monkeypatch, section, 4)
    count, m = workload.tally(work, 0), work.shape.lay.microbatches
    sizes = {name: count["tp", f"tp.broadcast.{name}"] for name in ("tokens", "positions", "labels", "loss_mask")}
    assert sizes == {name: (m, m * 512 * (4 if name == "loss_mask" else 8)) for name in sizes}


def test_full_sharding_gathers_and_scatters_in_every_microbatch(monkeypatch):
    section = training(BASE, data_parallel={"sharding": "optim_grads_params"})
    work = build(monkeypatch, section, 4)
    count, numel = workload.tally(work, 0), 0
    m = work.shape.lay.microbatches
    gather, again = count["dp", "dp.all_gather.dense_params"], count["dp", "dp.all_gather.dense_params_again"]
    scatter = count["dp", "dp.reduce_scatter.dense_grads"]
    numel = work.memory[0].optimizer * 4 // 12
    assert gather == again == (m * 10, m * 2 * numel) and scatter == (m * 10, m * 4 * numel)


def test_maxima_of_delayed_scaling(monkeypatch):
    """After every pass of a chunk 4 bytes per tensor of its GEMMs, over all GPUs that share its parameters; no other recipe has them."""
    def maxima(stage, **changes):
        section = training(BASE, parallel={"tp": 2, "pp": 2, "vpp": 2}, **changes)
        work = build(monkeypatch, section, 8)
        m = work.shape.lay.microbatches
        found = {name: count for (_, name), count in workload.tally(work, stage).items() if name.endswith("all_reduce.amax")}
        return m, found, [int(work.calls.comm_ranks[i]) for i, name in enumerate(work.calls.name) if name.endswith("amax")]

    m, found, ranks = maxima(0, precision={"gemm": "fp8"})
    each = 2 * 4 * 4  # 2 layers of a chunk, 4 GEMMs of a layer, 4 bytes
    assert found == {"dp.all_reduce.amax": (4 * m, 2 * m * (3 + 2) * each)} and set(ranks) == {4}
    m, found, ranks = maxima(1, precision={"gemm": "fp8", "tp_only_amax_red": True})
    assert list(found) == ["tp.all_reduce.amax"] and set(ranks) == {2}
    for other in ({"gemm": "fp8", "fp8_recipe": "tensorwise"}, {"gemm": "fp8_blockwise"}, {"gemm": "mxfp8"}, {}):
        assert maxima(0, precision=other)[1] == {}


@pytest.mark.parametrize(("written", "field", "value"), [
    ({"zero_stage": 3}, "stage", "full"),
    ({"zero_stage": 2}, "stage", "gradients"),
    ({"sharding": "zero1"}, "stage", "optimizer"),
    ({"zero_stage": 0}, "stage", "none"),
    ({"data_parallel_sharding_strategy": "optim_grads_params"}, "stage", "full"),
    ({"reduce_bucket_size": 500_000_000}, "bucket_size", 500_000_000),
    ({"stage3_prefetch_bucket_size": 50_000_000}, "prefetch", 50_000_000),
    ({"overlap_comm": True}, "overlap_grad_reduce", True),
    ({"delay_grad_reduce": False}, "align_grad_reduce", False),
])  # fmt: skip
def test_names_of_deepspeed_and_older_megatron(written, field, value):
    assert getattr(training(BASE, data_parallel=written).data_parallel, field) == value


def test_prefetch():
    assert dispatch_points([5, 5, 5, 5], 0) == [0, 1, 2, 3]
    assert dispatch_points([5, 5, 5, 5], 1) == [0, 0, 1, 2]
    assert dispatch_points([5, 5, 5, 5], 6) == [0, 0, 0, 1]
    assert working_set([5, 5, 5, 5], 1) == 10


def test_hybrid_sharding(monkeypatch):
    work = build(monkeypatch, training(BASE, data_parallel={"instances": 2}), 8)
    count = workload.tally(work, 0)
    grads, shard = count["dp", "dp.reduce_scatter.dense_grads"], count["dp", "dp.all_reduce.dense_shard"]
    assert shard.nbytes == grads.nbytes // 4
    assert work.calls.comm_ranks[work.calls.name.index("dp.reduce_scatter.dense_grads")] == 4


def test_recompute_costs_one_forward_and_saves_memory(monkeypatch):
    plain = build(monkeypatch, training(BASE, parallel={"pp": 2}), 2)
    full = build(monkeypatch, training(BASE, parallel={"pp": 2}, recompute={"granularity": "full"}), 2)
    seconds = [sum(w.programs.duration[(w.programs.category == CATEGORIES.index(c)) & (w.programs.layer >= 0)].sum() for c in names)
               for w, names in ((plain, ["forward"]), (full, ["recompute"]))]  # fmt: skip
    assert seconds[0] == seconds[1]
    assert full.memory[0].activations < plain.memory[0].activations / 3


def test_executed_flops_count_recomputation(monkeypatch):
    """Full recomputation adds the forward of all layers: their share of the model's FLOPs over 3."""
    plain, full = (build(monkeypatch, training(BASE, recompute={"granularity": g}), 2) for g in ("none", "full"))
    section = plain.shape.training
    head = 6.0 * 1024 * 512 * section.sequence * section.global_batch
    expected = (flops_per_step(section) - head) / 3
    assert executed_flops(full) - executed_flops(plain) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("model", "batch", "seconds", "gpus", "utilisation"), [
    ("megatron_22b", 4, 1.10, 8, 0.415),
    ("megatron_175b", 64, 13.75, 64, 0.514),
    ("megatron_530b", 280, 37.83, 280, 0.560),
    ("megatron_1t", 512, 71.49, 512, 0.563),
])  # fmt: skip
def test_model_flops_of_the_closed_form(model, batch, seconds, gpus, utilisation):
    """Korthikanti et al., arXiv 2205.05198, tables 5 and appendix A: with the full square of attention, of which half is causal."""
    section = training({"kind": "training", "model": model, "sequence": 2048, "global_batch": batch})
    s, h, layers, v = 2048, section.model.hidden, section.model.layers, section.model.vocab
    square = 12 * batch * s * s * layers * h
    closed = 72 * batch * s * layers * h * h * (1 + s / (6 * h) + v / (12 * layers * h))
    assert flops_per_step(section) + square / 2 == pytest.approx(closed, rel=1e-12)
    assert closed / seconds / gpus / 312e12 == pytest.approx(utilisation, abs=0.002)


@pytest.mark.parametrize(("gemm", "outer"), [("fp32", {"fp32"}), ("fp16", {"fp16", "bf16"}), ("mxfp8", {"mxfp8", "bf16"})])
def test_precision_of_all_linear_layers(monkeypatch, gemm, outer):
    """In 32 bits the output layer and the router too: utilisation is over the peak of 32 bits then."""
    work = build(monkeypatch, training(BASE, model=MOE, parallel={"ep": 2}, precision={"gemm": gemm}), 2)
    assert {k.dtype for k in work.segments.kernels if k.kind in ("gemm", "grouped_gemm")} == outer and work.peak_dtype == gemm


def moved(work, *categories):
    """Bytes by category and operation, summed over all GPUs."""
    out = Counter()
    gpus = np.bincount(work.gpu_program, minlength=work.programs.n_programs)
    for stage, n in enumerate(gpus.tolist()):
        for (category, name), count in workload.tally(work, stage).items():
            if category in categories:
                out[category, name] += n * count.nbytes
    return out


@pytest.mark.parametrize("seed", range(8))
def test_every_schedule_moves_the_same(monkeypatch, seed):
    """Tensor, context and expert traffic of random layouts does not depend on the order of the pipeline; what is sent is received."""
    r = random.Random(seed)
    tp, cp, pp, experts = r.choice([1, 2, 4]), r.choice([1, 2]), r.choice([2, 4]), r.random() < 0.5
    parallel = {"tp": tp, "cp": cp, "pp": pp, "cp_comm_type": r.choice(["p2p", "all_gather", "a2a"])}
    model = {**TINY, "layers": 2 * pp, "position": r.choice(["rope", "learned"])}
    if experts:
        model |= {"experts": 8, "top_k": 2, "expert_ffn": 512, "shared_ffn": r.choice([0, 512])}
        parallel |= {"ep": r.choice([1, 2]), "etp": r.choice([1, tp])}
    again = r.choice([{}, {"granularity": "full"}, {"granularity": "selective", "modules": ["mlp", "layernorm"]}])
    how = {"recompute": again, "experts": {"dispatcher": r.choice(["alltoall", "allgather"])} if experts else {}}
    found = {}
    for schedule, vpp in (("1f1b", 1), ("gpipe", 1), ("zb_h1", 1), ("interleaved", 2)):
        section = training({**BASE, "model": model}, parallel={**parallel, "vpp": vpp}, pipeline={"schedule": schedule}, **how)
        work = build(monkeypatch, section, 2 * tp * cp * pp)
        found[schedule] = moved(work, "tp", "cp", "ep")
        pipe = moved(work, "pp")
        for kind in ("forward", "backward"):
            crossings = (vpp * pp - 1) * work.shape.lay.microbatches * 2 * tp * cp
            assert pipe["pp", f"pp.send.{kind}"] == pipe["pp", f"pp.recv.{kind}"] == crossings * work.shape.shard_bytes
    assert all(f == found["1f1b"] for f in found.values())


def test_what_recomputation_and_userbuffers_add_to_tensor_traffic(monkeypatch):
    """Recomputation repeats the communication inside what it covers; pieces of a gather are as many bytes as the whole."""
    def bytes_of(overlap=False, **again):
        layout = {"tp": 4, "tp_comm_overlap": overlap, "tp_comm_overlap_rs_dgrad": overlap}
        work = build(monkeypatch, training(BASE, parallel=layout, recompute=again), 4)
        passes, full = work.shape.lay.microbatches * 8, work.shape.full_bytes
        count = workload.tally(work, 0)
        names = {"all_gather": 3, "reduce_scatter": 3, "ring_shift": 4}  # a piece is what a rank sends of a whole: three of four leave it
        total = {op: sum(c.nbytes for (_, name), c in count.items() if name.startswith(f"tp.{op}")) for op in names}
        return sum(total[op] * share / 4 for op, share in names.items()), passes * full * 3 / 4

    plain, one = bytes_of()
    assert bytes_of(overlap=True)[0] == plain
    assert bytes_of(granularity="full")[0] - plain == 4 * one  # two gathers, two scatters per layer
    assert bytes_of(granularity="selective", modules=("mlp",))[0] - plain == 2 * one
    assert bytes_of(granularity="selective", modules=("core_attn", "layernorm"))[0] == plain


def test_measured_times_replace_modelled_ones(monkeypatch):
    section = training(BASE, parallel={"pp": 2, "vpp": 2})
    measured = StepTimes(stage_forward=(10, 20, 30, 40), stage_backward=(100, 200, 300, 400), optimizer=5)
    work = build(monkeypatch, section, 2, measured=measured)
    p, m = work.programs, work.shape.lay.microbatches
    for stage, forward, backward in ((0, 40, 400), (1, 60, 600)):
        rows = slice(p.stream_ptr[stage * p.n_streams], p.stream_ptr[(stage + 1) * p.n_streams])
        # every row rounds to a whole picosecond
        for category, expected in (("forward", forward * m), ("backward", backward * m)):
            these = p.category[rows] == CATEGORIES.index(category)
            assert abs(int(p.duration[rows][these].sum()) - expected) <= these.sum()
    with pytest.raises(InputError, match="expected 4 entries"):
        build(monkeypatch, section, 2, measured=StepTimes(stage_forward=(1,), stage_backward=(1,)))


def test_scattered_messages(monkeypatch):
    layout = {"tp": 4, "pp": 2, "sequence_parallel": False}
    whole, cut = (build(monkeypatch, training(BASE, parallel=layout, pipeline={"scatter_gather": x}), 8) for x in (False, True))
    sent = [workload.tally(w, 0)["pp", "pp.send.forward"] for w in (whole, cut)]
    assert sent[0].nbytes == 4 * sent[1].nbytes
    assert workload.tally(cut, 1)["tp", "tp.all_gather.pipeline"] == (sent[0].ops, sent[0].nbytes)
