"""What backward passes do beside or behind their GEMMs, by frameworks: sums of input gradients, sums over microbatches."""

import pytest

from compute.api import Kernel, flops
from tests.workload_cases import LLAMA70, TINY, build, replay, training
from workload.api import kernels as needed
from workload.layout import layout_of
from workload.memory import cache, gradient_bytes
from workload.ops import gemm, wgrad
from workload.programs import stages
from workload.shape import Shape

BASE = {"kind": "training", "model": TINY, "sequence": 512, "global_batch": 16}


@pytest.mark.parametrize(("parallel", "exposed"), [({"sequence_parallel": False}, 1), ({"sequence_parallel": True}, 0), ({"tp": 1}, 0)])
def test_sums_behind_weight_gradients_are_waited_for(monkeypatch, parallel, exposed):
    """QKV and FC1 of 8 layers and the head, in 16 microbatches, with sums shorter than any GEMM; nothing with sequence parallelism."""
    took = {}
    for beside in (True, False):
        section = training(BASE, parallel={"tp": 2, **parallel, "async_allreduce": beside})
        took[beside] = replay(build(monkeypatch, section, 2), lambda call: 1_000)[0]
    assert took[False] - took[True] == exposed * 16 * (2 * 8 + 1) * 1_000


@pytest.mark.parametrize(("dtype", "per_element"), [("fp32", 2 + 4 + 4), ("bf16", 2 + 2 + 2)])
def test_gradients_are_added_up_by_a_kernel_of_their_own(dtype, per_element):
    section = training(BASE, data_parallel={"grad_dtype": dtype}, kernels={"gradient_accumulation_fusion": False})
    one = gemm(512, 2048, 1024, "bf16", "wgrad")
    apart = wgrad(Shape(section, layout_of(section, 2)), one)
    assert apart == (one._replace(accumulate=False), Kernel("memory", "bwd", nbytes=per_element * 2048 * 1024))
    fused = training(BASE, data_parallel={"grad_dtype": dtype})
    assert wgrad(Shape(fused, layout_of(fused, 2)), one) == (one,) and one.accumulate


@pytest.mark.parametrize("model", ["llama3_70b", "deepseek_v2"])
def test_no_weight_gradient_adds_up_without_the_fusion(model, h100):
    """Linear layers, experts, routers and latent projections: as many FLOPs, nothing added up inside a GEMM."""
    case = {**LLAMA70, "model": model, "parallel": {}}
    found = {fused: needed(training(case, kernels={"gradient_accumulation_fusion": fused}), 64, 8, h100) for fused in (True, False)}
    assert not any(k.accumulate for k in found[False])
    plain = {k._replace(accumulate=False) for k in found[True] if flops(k)}
    assert plain == {k for k in found[False] if flops(k)} and any(k.accumulate for k in found[True])


def test_one_weight_gradient_is_alive_where_it_is_not_added_up_at_once():
    section = training(BASE, kernels={"gradient_accumulation_fusion": False})
    s = Shape(section, layout_of(section, 2))
    sizes = gradient_bytes(s, stages(s)[0])
    assert cache(s, stages(s)[0]) == max(sizes) == 2 * 512 * 2 * 2048
    fused = training(BASE)
    assert cache(Shape(fused, s.lay), stages(s)[0]) == sum(sizes) > max(sizes)


@pytest.fixture
def h100():
    from compute.evaluate import device_of

    return device_of("h100")
