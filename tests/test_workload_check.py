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

REMARKED = [
    ({"parallel": {"tp": 8}}, 8, 4, "parallel.tp", "tensor parallelism of 8 crosses nodes of 4 GPUs"),
    ({"model": MOE, "parallel": {"ep": 8, "tp": 2, "etp": 1}}, 8, 8, "parallel.ep", "expert parallelism of 8 is above dp = 4"),
    ({"parallel": {"pp": 8}, "global_batch": 4}, 8, 8, "global_batch", "4 microbatches on 8 stages: the pipeline never fills"),
]


@pytest.mark.parametrize(("changes", "gpus", "field", "sentence"), REFUSED)
def test_refused(changes, gpus, field, sentence):
    found = [(f.field, f.sentence) for f in workload.check(training(BASE, **changes), gpus) if f.fatal]
    assert (field, sentence) in found


@pytest.mark.parametrize(("changes", "gpus", "per_node", "field", "start"), REMARKED)
def test_remarked(changes, gpus, per_node, field, start):
    found = workload.check(training(BASE, **changes), gpus, per_node)
    assert not any(f.fatal for f in found)
    assert any(f.field == field and f.sentence.startswith(start) for f in found)


def test_nothing_to_say():
    assert workload.check(training(BASE, parallel={"tp": 2, "pp": 2}), 8) == []
