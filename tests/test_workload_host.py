"""The host that issues kernels, and GPUs that differ."""

import numpy as np
import pytest

import workload
from compute.api import Device, Kernel, launches
from compute.evaluate import device_of
from netsim.kernels.structs import COMM, HOST
from tests.workload_cases import TINY, training
from workload.api import slowest


def device(**figures: object) -> Device:
    """The H100 with some figures of its card changed."""
    from dataclasses import replace

    h100 = device_of("h100")
    return h100._replace(card=replace(h100.card, **figures))


def built(graphs: str = "none", **figures: object) -> workload.Workload:
    """Two microbatches on two GPUs."""
    section = training({"kind": "training", "model": TINY, "sequence": 512, "global_batch": 4}, kernels={"graphs": graphs})
    return workload.build(section, 2, 8, device(**figures))


def test_the_host_takes_its_time_for_every_launch():
    """Time of the host rows is proportional to the figure of the card, and every block of kernels waits for its own."""
    slow, fast = built(host=20_000_000), built(host=10_000_000)
    mine = slow.programs.kind == HOST
    assert mine.sum() == (fast.programs.kind == HOST).sum() > 0
    np.testing.assert_array_equal(slow.programs.duration[mine], 2 * fast.programs.duration[mine])
    waited = set(slow.programs.dep_idx[slow.programs.dep_idx >= 0].tolist())
    assert set(np.flatnonzero(mine).tolist()) <= waited


def test_a_graph_of_the_whole_iteration_needs_no_host():
    assert not (built("iteration").programs.kind == HOST).any()


def test_graphs_of_layers_cost_less():
    plain, graphs = built(), built("layers")
    assert graphs.programs.duration[graphs.programs.kind == HOST].sum() < plain.programs.duration[plain.programs.kind == HOST].sum()


def test_kernels_do_not_change_with_the_host():
    slow, none = built(host=20_000_000), built(host=0)
    of = [w.programs.duration[(w.programs.kind != HOST) & (w.programs.kind != COMM)].sum() for w in (slow, none)]
    assert of[0] == of[1]


def test_experts_are_launched_one_by_one_unless_fused():
    one = Kernel("grouped_gemm", "fwd", "bf16", 128, 256, 64, groups=16)
    assert launches(one) - launches(one._replace(groups=8)) == 4
    assert launches(one._replace(batch=1)) == 1
    assert launches(one._replace(dtype="mxfp8")) > 2 * launches(one)


@pytest.mark.parametrize(("n", "expected"), [(1, 0.0), (2, 0.5642), (8, 1.4236), (64, 2.3437), (1024, 3.2427)])
def test_the_slowest_of_many(n, expected):
    """Means of the largest of n normal numbers (tables of order statistics; simulated for 64 and 1024)."""
    assert (slowest(0.01, n) - 1) / 0.01 == pytest.approx(expected, abs=0.03)


def test_only_compute_bound_kernels_go_at_the_pace_of_the_slowest():
    even, uneven = built(spread=0.0), built(spread=0.1)
    ratio = uneven.segments.kernel_ps / even.segments.kernel_ps
    bound = np.array([k.kind in ("gemm", "attention") for k in even.segments.kernels])
    np.testing.assert_allclose(ratio[bound], slowest(0.1, 2), rtol=1e-3)
    np.testing.assert_array_equal(ratio[~bound], 1.0)


def test_a_ring_of_context_parallelism_merges_its_steps():
    section = training({"kind": "training", "model": TINY, "sequence": 512, "global_batch": 2}, parallel={"cp": 2})
    work = workload.build(section, 2, 8, device())
    kinds = [k.kind for k in work.segments.kernels]
    assert kinds.count("merge") >= 4
    plain = built()
    assert "merge" not in [k.kind for k in plain.segments.kernels]
