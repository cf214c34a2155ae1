"""What `check` refuses and remarks, one sentence each."""

import pytest

import workload
from tests.workload_cases import TINY, training

BASE = {"kind": "training", "model": TINY, "sequence": 512, "global_batch": 16}
MOE = {**TINY, "experts": 8, "top_k": 2, "expert_ffn": 512}

REFUSED = [
    ({"parallel": {"tp": 3}}, 8, "parallel", "expected tp x pp x cp = 3 to divide the 8 GPUs; 2 are left over"),
    ({"parallel": {"tp": 2, "dp": 2}}, 8, "parallel.dp", "expected tp x pp x cp x dp = 8 GPUs, so 4; got 2"),
    ({"global_batch": 12}, 8, "global_batch", "expected a multiple of micro_batch x dp = 1 x 8 = 8; got 12"),
    ({"parallel": {"pp": 2, "vpp": 3}}, 4, "model.layers", "expected a multiple of pp x vpp = 6; got 8"),
    ({"parallel": {"vpp": 2}}, 4, "parallel.vpp", "expected 1 with pp = 1: there is nothing to interleave; got 2"),
    (
        {"parallel": {"pp": 2, "vpp": 2}, "pipeline": {"overlap_p2p": False}},
        2,
        "pipeline.overlap_p2p",
        "expected true with interleaving on 2 stages; got false",
    ),
    (
        {"parallel": {"pp": 4, "vpp": 2}, "pipeline": {"group_size": 6}, "global_batch": 8},
        4,
        "pipeline.group_size",
        "expected the 8 microbatches to leave none or at least pp = 4 over; got 2 over 6",
    ),
    (
        {"parallel": {"pp": 2}, "pipeline": {"overlap_p2p": True}},
        2,
        "pipeline.overlap_p2p",
        "expected false without interleaving (Megatron turns it off); got true",
    ),
    (
        {"parallel": {"cp": 8, "tp": 2, "cp_comm_type": "a2a"}},
        16,
        "model.heads",
        "expected a multiple of tp x cp (a2a exchanges heads) = 16; got 8",
    ),
    (
        {"parallel": {"cp": 4, "cp_comm_type": "a2a+p2p"}},
        4,
        "parallel.hierarchical_sizes",
        "expected two sizes whose product is cp = 4; got []",
    ),
    ({"parallel": {"ep": 2}}, 4, "parallel.ep", "expected 1 for a model without experts; got 2"),
    (
        {"model": MOE, "parallel": {"pp": 2, "ep": 2, "order": "tp-cp-ep-pp-dp"}},
        8,
        "parallel.order",
        "expected experts on the stage of their layer (tp x cp x dp = 1 x 1 x 4, of experts etp x ep x edp = 1 x 2 x 2), as with pp last; "
        "got tp-cp-ep-pp-dp",
    ),
    ({"model": MOE, "parallel": {"ep": 3}}, 6, "model.experts", "expected a multiple of parallel.ep = 3; got 8"),
    (
        {"model": MOE, "parallel": {"tp": 2, "sequence_parallel": False}},
        2,
        "parallel.sequence_parallel",
        "expected true with experts and tp > 1; got false",
    ),
    (
        {"model": MOE, "parallel": {"ep": 2}, "experts": {"overlap": True}},
        2,
        "experts.overlap",
        "expected dispatcher alltoall or flex; got allgather",
    ),
    (
        {"model": MOE, "parallel": {"ep": 2, "pp": 2}, "experts": {"overlap": True, "dispatcher": "alltoall"}},
        4,
        "experts.overlap",
        "expected pp = 1 or interleaving (vpp > 1); got neither",
    ),
    (
        {"data_parallel": {"overlap_param_gather": True}},
        2,
        "data_parallel.overlap_param_gather",
        "expected overlap_grad_reduce with it; got false",
    ),
    ({"data_parallel": {"instances": 3}}, 4, "data_parallel.instances", "expected a divisor of dp x cp = 4; got 3"),
    (
        {"pipeline": {"schedule": "dualpipe"}, "parallel": {"pp": 3}, "global_batch": 6},
        3,
        "pipeline.schedule",
        "expected an even pp with dualpipe; got 3",
    ),
    (
        {"recompute": {"granularity": "selective", "modules": ["moe"]}},
        2,
        "recompute.modules",
        "expected modules that the model has; got moe",
    ),
    (
        {"parallel": {"pp": 2}, "pipeline": {"layout": "Et*4|t*3L"}},
        2,
        "pipeline.layout",
        "expected one E, one L, 8 t and 0 m; got Et*4|t*3L",
    ),
]

GIVEN_UP = [
    ({"data_parallel": {"instances": 2, "sharding": "none"}}, 4, "data_parallel.instances", "a sharded optimizer"),
    ({"model": MOE, "parallel": {"ep": 2}, "data_parallel": {"instances": 4}}, 4, "data_parallel.instances", "the 2 copies of an expert"),
    ({"recompute": {"granularity": "selective", "layers": 2}}, 2, "recompute.layers", "granularity: full only"),
    ({"model": MOE, "experts": {"capacity_factor": 1.0}}, 2, "experts.capacity_factor", "alltoall or flex"),
    ({"model": MOE, "parallel": {"ep": 2}, "precision": {"dispatch": "fp8"}}, 2, "precision.dispatch", "alltoall or flex"),
    ({"model": MOE, "experts": {"dispatcher": "flex"}}, 2, "experts.dispatcher", "ep x etp above 1"),
    ({"model": MOE, "parallel": {"ep": 2}, "experts": {"shared_overlap": True}}, 2, "experts.shared_overlap", "alltoall or flex"),
    ({"model": MOE, "experts": {"pad_to_capacity": True}}, 2, "experts.pad_to_capacity", "capacity_factor"),
    ({"model": MOE, "experts": {"dispatcher": "all2all"}}, 2, "experts.dispatcher", "one of the dispatchers"),
    ({"experts": {"delay_wgrad": True}}, 2, "experts.delay_wgrad", "experts.overlap"),
    ({"data_parallel": {"sharding": "zero3"}, "kernels": {"connections": 1}}, 2, "kernels.connections", "more than 1"),
    ({"data_parallel": {"param_dtype": "fp8"}}, 2, "data_parallel.param_dtype", "8 bits or less"),
    ({"data_parallel": {"sharding": "none", "overlap_grad_reduce": True, "overlap_param_gather": True}}, 2,
     "data_parallel.overlap_param_gather", "a sharded optimizer"),
    ({"parallel": {"pp": 2}, "pipeline": {"warmup_flush": True}}, 2, "pipeline.warmup_flush", "overlap_p2p"),
    ({"parallel": {"pp": 4, "vpp": 2}, "pipeline": {"batch_p2p": True}}, 4, "pipeline.batch_p2p", "false with overlap_p2p"),
    ({"parallel": {"pp": 2}, "pipeline": {"layout": "Et*4|t*4L", "loss_as_layer": True}}, 2, "pipeline.layout", "it alone"),
    ({"parallel": {"pp": 2}, "pipeline": {"layout": "t*4|Et*4L"}}, 2, "pipeline.layout", "E at the beginning"),
    ({"parallel": {"pp": 2}, "pipeline": {"layout": "Et*4L|t*4"}}, 2, "pipeline.layout", "L in the last part"),
    ({"parallel": {"pp": 2}, "pipeline": {"first_stage_layers": 4, "embedding_as_layer": True}}, 2, "pipeline.first_stage_layers", "it or"),
    ({"parallel": {"pp": 2, "vpp": 2}, "pipeline": {"schedule": "gpipe"}}, 2, "pipeline.schedule", "expected interleaved"),
    ({"parallel": {"pp": 2}, "pipeline": {"schedule": "1f1c"}}, 2, "pipeline.schedule", "one of the schedules"),
    ({"parallel": {"tp": 2, "sequence_parallel": False, "tp_comm_overlap": True}}, 2, "parallel.tp_comm_overlap", "sequence_parallel"),
    ({"model": {**TINY, "kv_heads": 4}, "parallel": {"cp": 8, "cp_comm_type": "a2a"}}, 8, "model.kv_heads", "a2a exchanges heads"),
    ({"model": {**TINY, "window": 128}, "parallel": {"cp": 2}}, 2, "parallel.cp_comm_type", "all_gather or a2a"),
    ({"sequence": 510, "parallel": {"cp": 4}}, 4, "sequence", "2 x parallel.cp"),
    ({"sequence": 514, "parallel": {"tp": 4}}, 4, "sequence", "parallel.tp after the cut by cp"),
    ({"model": {**TINY, "kv_heads": 4, "heads": 12, "hidden": 768}, "parallel": {"tp": 6}}, 6, "model.kv_heads", "a multiple or a divisor"),
    ({"model": {**MOE, "mtp_layers": 2}, "parallel": {"ep": 2}, "experts": {"overlap": True, "dispatcher": "alltoall"}}, 2,
     "experts.overlap", "at most one multi-token module"),
    ({"model": MOE, "parallel": {"ep": 2}, "experts": {"overlap": True, "dispatcher": "alltoall"}, "recompute": {"granularity": "full"}}, 2,
     "experts.overlap", "none or selective"),
    ({"parallel": {"pp": 4, "vpp": 2}, "pipeline": {"group_size": 2}}, 4, "pipeline.group_size", "expected pp = 4 to 16 microbatches"),
]  # fmt: skip

REMARKED = [
    ({"parallel": {"tp": 8}}, 8, 4, "parallel.tp", "tensor parallelism of 8 crosses nodes of 4 GPUs"),
    ({"model": MOE, "parallel": {"ep": 8, "tp": 2, "etp": 1}}, 8, 8, "parallel.ep", "expert parallelism of 8 is above dp = 4"),
    ({"parallel": {"pp": 8}, "global_batch": 4}, 8, 8, "global_batch", "4 microbatches on 8 stages: the pipeline never fills"),
    ({"sequence": 768, "parallel": {"cp": 3}, "global_batch": 8}, 3, 8, "parallel.cp", "3 does not divide the 8 heads of a GPU"),
    ({"model": {**TINY, "kv_heads": 2}, "parallel": {"tp": 8}}, 8, 8, "parallel.tp", "8 GPUs share 2 key-value heads"),
    ({"parallel": {"cp": 2, "hierarchical_sizes": [2, 1]}}, 2, 8, "parallel.hierarchical_sizes", "has no effect"),
    ({"parallel": {"tp": 2}, "kernels": {"connections": 8}}, 2, 8, "kernels.connections", "Megatron refuses 8 with tp or cp"),
    ({"parallel": {"tp": 8}, "data_parallel": {"overlap_grad_reduce": True}}, 8, 8, "data_parallel.overlap_grad_reduce", "has no effect"),
    ({"data_parallel": {"sharding": "zero3", "overlap_grad_reduce": True}}, 8, 8, "data_parallel.sharding", "full sharding gathers"),
    ({"recompute": {"layers": 1}}, 2, 8, "recompute.layers", "has no effect with granularity: none"),
    ({"recompute": {"granularity": "full", "layers": 5}, "parallel": {"pp": 2}}, 2, 8, "recompute.layers", "5 is more than"),
    ({"model": MOE, "parallel": {"ep": 2}, "experts": {"dispatcher": "alltoall", "overlap": True}, "kernels": {"connections": 1}}, 2, 8,
     "kernels.connections", "with 1, exchanges with experts"),
    ({"model": MOE, "parallel": {"ep": 2}, "experts": {"dispatcher": "alltoall", "shared_overlap": True}}, 2, 8, "experts.shared_overlap",
     "has no effect"),
    ({"model": MOE, "parallel": {"ep": 2}, "experts": {"dispatcher": "alltoall", "overlap": True}, "global_batch": 2}, 2, 8,
     "experts.overlap", "has no effect with one microbatch"),
    ({"pipeline": {"scatter_gather": True}}, 2, 8, "pipeline.scatter_gather", "has no effect"),
    ({"model": MOE, "parallel": {"ep": 2}, "experts": {"imbalance": 1.3, "dispatcher": "alltoall"}}, 2, 8, "experts.imbalance", "the load"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "gpus", "field", "sentence"), REFUSED)
def test_refused(changes, gpus, field, sentence):
    found = [(f.field, f.sentence) for f in workload.check(training(BASE, **changes), gpus) if f.fatal]
    assert (field, sentence) in found


@pytest.mark.parametrize(("changes", "gpus", "field", "part"), GIVEN_UP)
def test_given_up(changes, gpus, field, part):
    found = [f.sentence for f in workload.check(training(BASE, **changes), gpus) if f.fatal and f.field == field]
    assert any(part in sentence for sentence in found), found


@pytest.mark.parametrize(("changes", "gpus", "per_node", "field", "start"), REMARKED)
def test_remarked(changes, gpus, per_node, field, start):
    found = workload.check(training(BASE, **changes), gpus, per_node)
    assert not any(f.fatal for f in found)
    assert any(f.field == field and f.sentence.startswith(start) for f in found)


def test_nothing_to_say():
    assert workload.check(training(BASE, parallel={"tp": 2, "pp": 2}), 8) == []
