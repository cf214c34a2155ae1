"""Whole training iterations: folding against every GPU, laws of time and bytes, physical bounds, known byte counts."""

import json

import numpy as np
import pytest

from netsim.config import load
from netsim.progress import Progress
from netsim.simulate import simulate
from netsim.simulate.model import build, slowdown
from netsim.simulate.packets import external
from netsim.telemetry.read import open_run

SMALL = ("topology.nodes=4", "workload.model.layers=8", "workload.global_batch=32")
LAYOUTS = {
    "tp8 pp2 dp2": ("workload.parallel.tp=8", "workload.parallel.pp=2", "workload.parallel.dp=2"),
    "tp2 pp4 dp4": ("workload.parallel.tp=2", "workload.parallel.pp=4", "workload.parallel.dp=4"),
    "tp1 dp32": ("workload.parallel.tp=1", "workload.parallel.pp=1", "workload.parallel.dp=32"),
    "cp2": ("workload.parallel.tp=4", "workload.parallel.pp=2", "workload.parallel.cp=2", "workload.parallel.dp=2"),
    "interleaved": ("workload.parallel.tp=8", "workload.parallel.pp=4", "workload.parallel.vpp=2", "workload.parallel.dp=1"),
    "ecmp": ("workload.parallel.tp=8", "workload.parallel.pp=2", "workload.parallel.dp=2", "topology.routing=ecmp"),
    "experts": (
        "topology.use=dgx_h100_superpod", "workload.model.use=mixtral_8x7b", "workload.parallel.tp=1", "workload.parallel.pp=2",
        "workload.parallel.dp=16", "workload.parallel.ep=8",
    ),
    "experts in one stage": (
        "topology.use=dgx_h100_superpod", "workload.model.use=deepseek_v3", "workload.model.dense_layers=4", "workload.parallel.tp=1",
        "workload.parallel.pp=2", "workload.parallel.dp=16", "workload.parallel.ep=16", "workload.model.mtp_layers=0",
    ),
    "slow gpu": (
        "workload.parallel.tp=8", "workload.parallel.pp=2", "workload.parallel.dp=2", "simulate.slow_gpus=[{gpu: 27, factor: 1.3}]",
    ),
    "slow link": (
        "workload.parallel.tp=8", "workload.parallel.pp=2", "workload.parallel.dp=2",
        "topology.faults=[{link: nic n2.3 -> leaf r3.s0, rate: 10 Gbps}]",
    ),
    "slow link for a while": (
        "workload.parallel.tp=8", "workload.parallel.pp=2", "workload.parallel.dp=2",
        "topology.faults=[{link: nic n2.3 -> leaf r3.s0, rate: 2 Gbps, from: 50 ms, until: 200 ms}]",
    ),
}  # fmt: skip


def run(folder, *settings):
    """Simulate the small run under some settings; returns (summary, opened result)."""
    folder.mkdir(exist_ok=True)
    summary = simulate(load("runs/h100_16.yaml", (*SMALL, *settings)), folder, Progress())
    return summary, open_run(folder)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_folded_equals_every_gpu(layout, tmp_path):
    settings = LAYOUTS[layout]
    folded, few = run(tmp_path / "folded", *settings)
    full, all_ = run(tmp_path / "full", *settings, "simulate.fold=off")
    with few, all_:
        assert full["gpus_simulated"] == 32
        assert folded["iteration_time_s"] == pytest.approx(full["iteration_time_s"], rel=1e-9)
        assert few["links/bytes"] == pytest.approx(all_["links/bytes"], rel=1e-9)
        assert few["gpus/end"] == pytest.approx(all_["gpus/end"], rel=1e-9)
        assert few["gpus/exposed"] == pytest.approx(all_["gpus/exposed"], rel=1e-6, abs=1000)
        assert few["gpus/timers"] == pytest.approx(all_["gpus/timers"], rel=1e-6, abs=1000)
        for name, over in full["timers"].items():
            assert folded["timers"][name] == pytest.approx(over, rel=1e-6, abs=1e-9)
        if not layout.startswith("slow"):
            assert folded["gpus_simulated"] < 32


def test_one_slow_gpu_slows_the_iteration(tmp_path):
    plain, _ = run(tmp_path / "plain", *LAYOUTS["tp8 pp2 dp2"])
    slow, _ = run(tmp_path / "slow", *LAYOUTS["slow gpu"])
    assert slow["iteration_time_s"] > 1.1 * plain["iteration_time_s"]


def test_stragglers_are_slower_and_seeded(tmp_path):
    """A factor per GPU for the whole run, of at least 1; named GPUs are slower on top; every GPU is played."""
    def slow(seed, *settings):
        config = load("runs/h100_16.yaml", (*SMALL, f"seed={seed}", "simulate.stragglers=0.05", *settings))
        return slowdown(config, 32)

    assert (slow(1) >= 1).all() and (slow(1) != slow(2)).all() and (slow(1) == slow(1)).all()
    named = slow(1, "simulate.slow_gpus=[{gpu: 3, factor: 1.5}]") / slow(1)
    assert named.tolist() == pytest.approx([1.5 if gpu == 3 else 1 for gpu in range(32)])
    plain, _ = run(tmp_path / "plain", *LAYOUTS["tp1 dp32"])
    uneven, _ = run(tmp_path / "uneven", *LAYOUTS["tp1 dp32"], "simulate.stragglers=0.05")
    assert uneven["gpus_simulated"] == 32 and uneven["iteration_time_s"] > plain["iteration_time_s"]
    over = uneven["timers"]["forward-compute"]
    assert over["max_s"] / over["min_s"] == pytest.approx(slow(1).max() / slow(1).min(), rel=0.02)


def test_time_of_every_gpu_is_accounted_for(tmp_path):
    _, result = run(tmp_path / "run", *LAYOUTS["tp2 pp4 dp4"], "simulate.jitter=0.05")
    with result:
        used = result["gpus/busy"].sum(axis=1) + result["gpus/exposed"].sum(axis=1) + result["gpus/bubble"]
        # kernels beside the compute stream (scaling of gradients) count as busy without occupying it
        assert (used >= result["gpus/end"]).all()
        assert used == pytest.approx(result["gpus/end"], rel=0.02)


def test_timers_are_those_of_megatron(tmp_path):
    summary, result = run(tmp_path / "run", *LAYOUTS["tp8 pp2 dp2"])
    with result:
        timers = result.xarray("gpus/timers")
        least, most = timers.min("gpu"), timers.max("gpu")
        idle = result["gpus/end"] - timers.values.sum(axis=1)
        assert (idle >= 0).all(), "timers divide the time of the compute stream up to its end"
        for name, over in summary["timers"].items():
            assert (over["min_s"], over["max_s"]) == (float(least.sel(timer=name)) * 1e-12, float(most.sel(timer=name)) * 1e-12)
    # the first stage receives no activations and the last one sends none; both wait for what one call sends and receives
    assert summary["timers"]["forward-recv"]["min_s"] == 0 < summary["timers"]["forward-recv"]["max_s"]
    expected = {"forward-compute", "backward-compute", "forward-send-backward-recv", "backward-send-forward-recv", "all-grads-sync"}
    assert expected <= set(summary["timers"])
    assert "params-all-gather" in summary["timers"] and "optimizer" in summary["timers"]


def test_too_little_memory_is_a_warning(tmp_path):
    from netsim.report.summary import render

    plain, _ = run(tmp_path / "plain", *LAYOUTS["tp8 pp2 dp2"])
    small, _ = run(tmp_path / "small", *LAYOUTS["tp8 pp2 dp2"], "compute.device.memory=1 GiB")
    assert small["complete"] and small["iteration_time_s"] == plain["iteration_time_s"]
    assert "OUT OF MEMORY: the GPU has 1.0 GiB; peak in " + small["peak_memory_where"] in " ".join(render(small).split())
    assert "OUT OF MEMORY" not in render(plain)


def test_one_launch_queue_lets_collectives_run_beside_gemms(tmp_path):
    # before Blackwell a collective launched beside a GEMM comes after it unless there is one queue; Blackwell does not need that
    hopper, blackwell = (), ("compute.device.use=b200",)
    one, more = ("workload.kernels.connections=1",), ("workload.kernels.connections=8",)
    found = {
        (gpu, n): run(tmp_path / f"{gpu}{n}", *LAYOUTS["tp8 pp2 dp2"], *device, *queues)[0]["exposed_s"]["tp"]
        for gpu, device in (("hopper", hopper), ("blackwell", blackwell))
        for n, queues in (("default", ()), ("one", one), ("more", more))
    }
    assert found["hopper", "default"] == found["hopper", "one"] < 0.9 * found["hopper", "more"]
    assert found["blackwell", "default"] == found["blackwell", "more"] == pytest.approx(found["blackwell", "one"], rel=0.01)


def test_links_are_never_above_their_rate(tmp_path):
    _, result = run(tmp_path / "run", *LAYOUTS["tp2 pp4 dp4"], "topology.routing=ecmp", "telemetry.interval=1 ms")
    with result:
        rate, row = result["links/rate"], result["links/series"]
        series = result["series/bytes"]
        for link in np.flatnonzero(row >= 0):
            assert series[row[link]].max() <= rate[link] * 1e-3 * (1 + 1e-6)
            assert series[row[link]].sum() == pytest.approx(result["links/bytes"][link], rel=1e-4)


def test_iteration_is_not_faster_than_physics(tmp_path):
    summary, result = run(tmp_path / "run", *LAYOUTS["tp8 pp2 dp2"])
    with result:
        flops = summary["tflops_per_gpu"] * 1e12 * summary["iteration_time_s"]
        assert summary["iteration_time_s"] > flops / (summary["peak_tflops"] * 1e12)
        nic = result["links/tier"] == "nic"
        assert summary["iteration_time_s"] > (result["links/bytes"][nic] / result["links/rate"][nic]).max()


def test_bytes_of_gpt3_nics_are_those_of_the_worked_example(tmp_path):
    # GPT-3 175B, TP 8, PP 8, DP 16: a GPU of a middle stage sends by its NIC what a ring of 16 makes of 10,875,691,008 bytes of
    # gradients and 5,437,845,504 of parameters, an activation and a gradient of 6,291,456 bytes per microbatch, and a few words for
    # the gradient norm
    summary = simulate(load("runs/h100_1024.yaml", ["network.engine=flow"]), tmp_path, Progress())
    with open_run(tmp_path) as result:
        names = list(result["links/name"])
        sent = result["links/bytes"][names.index("nic n40.3 -> leaf r3.s1")]
    expected = 10_195_960_320 + 5_097_980_160 + 2 * 603_979_776
    assert expected <= sent <= expected * (1 + 1e-5) + 1e5
    at_peak = summary["tflops_per_gpu"] * summary["iteration_time_s"] / summary["peak_tflops"]
    assert summary["iteration_time_s"] > 10_195_960_320 / 50e9 + at_peak


def test_interval_follows_from_kernel_times(tmp_path):
    summary, _ = run(tmp_path / "run", *LAYOUTS["tp8 pp2 dp2"])
    origin = summary["kernel_times"]
    assert origin["exact"] + origin["interpolated"] + origin["roofline"] == pytest.approx(1)
    assert summary["iteration_time_s_low"] < summary["iteration_time_s"] < summary["iteration_time_s_high"]
    assert len(origin["missed"]) == 10
    assert all(entry["runs"] % 16 == 0 for entry in origin["missed"]), "kernels of a stage run on its 16 GPUs alike"
    assert sum(entry["share"] for entry in origin["missed"]) < 1


def test_figures_are_means_over_gpus_of_one_iteration(tmp_path):
    summary, result = run(tmp_path / "run", *LAYOUTS["tp2 pp4 dp4"], "simulate.iterations=3")
    with result:
        assert summary["iterations"] == 3 and summary["iteration_time_s"] == pytest.approx(result.end_ps * 1e-12 / 3)
        work = result.config["workload"]
        assert summary["tokens_per_s"] == pytest.approx(work["global_batch"] * work["sequence"] / summary["iteration_time_s"])
        assert summary["mfu"] == pytest.approx(summary["tflops_per_gpu"] / summary["peak_tflops"])
        names, program = result.names("categories"), result["gpus/program"]
        for stage, said in [(None, summary), *enumerate(summary["stages"])]:
            gpus = np.flatnonzero((program == stage) | (stage is None))
            means = (result[f"gpus/{which}"][gpus].mean(axis=0) * 1e-12 / 3 for which in ("busy", "exposed"))
            busy, exposed = (dict(zip(names, mean.tolist(), strict=True)) for mean in means)
            assert said["compute_s"] == pytest.approx(sum(busy[name] for name in ("forward", "backward", "recompute", "other")))
            assert said["optimizer_s"] == pytest.approx(busy["optimizer"]) and busy["optimizer"] > 0
            assert said["bubble_s"] == pytest.approx(result["gpus/bubble"][gpus].mean() * 1e-12 / 3)
            assert said["exposed_s"] == {name: pytest.approx(exposed[name]) for name in ("tp", "pp", "dp", "ep", "cp")}
            if stage is None:
                assert summary["other_s"] == pytest.approx(exposed["other"] + exposed["optimizer"])
        busiest = [link["utilisation"] for link in summary["busiest_links"]]
        share = result["links/bytes"] / result["links/rate"] / (result.end_ps * 1e-12)
        assert busiest == sorted(busiest, reverse=True) and busiest[0] == pytest.approx(share.max(), abs=1e-3)


def test_summary_has_the_promised_names(tmp_path):
    run(tmp_path / "run", *LAYOUTS["tp8 pp2 dp2"])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    names = (
        "iteration_time_s tokens_per_s tflops_per_gpu mfu peak_tflops gpus engine wall_s ranks exposed_s compute_s bubble_s optimizer_s "
        "network_bytes peak_memory_gib version config_hash"
    )
    assert set(names.split()) <= set(summary)
    assert set(summary["exposed_s"]) == {"tp", "pp", "dp", "ep", "cp"}


def test_same_seed_same_bytes(tmp_path):
    for name in ("a", "b"):
        run(tmp_path / name, *LAYOUTS["tp2 pp4 dp4"], "simulate.jitter=0.1")
    assert (tmp_path / "a" / "result.h5").read_bytes() == (tmp_path / "b" / "result.h5").read_bytes()


def test_packets_agree_with_the_fluid(tmp_path):
    fluid, _ = run(tmp_path / "fluid", *LAYOUTS["tp8 pp2 dp2"])
    packets, result = run(tmp_path / "packets", *LAYOUTS["tp8 pp2 dp2"], "network.engine=packet")
    with result:
        assert packets["iteration_time_s"] == pytest.approx(fluid["iteration_time_s"], rel=0.03)
        nic = result["links/tier"] == "nic"
        assert result["links/bytes"][nic].sum() > fluid["network_bytes"] * 2  # headers on top
        row = result["links/series"]
        for link in np.flatnonzero(nic & (row >= 0)):
            assert result["series/bytes"][row[link]].sum() == pytest.approx(result["links/bytes"][link], rel=1e-4)


CROSSED = ("topology.use=dgx_h100_superpod", "nccl.NCCL_CROSS_NIC=1", "nccl.NCCL_PXN_DISABLE=1")


def test_calls_of_a_packet_over_several_rails_stay_with_the_fluid():
    """The norm of the gradients, a few bytes, or it alone would tie rails together; messages between stages and buckets are packets."""
    model = build(load("runs/h100_16.yaml", (*SMALL, *LAYOUTS["cp2"], *CROSSED, "network.engine=packet")))
    moved = external(model, 4096)
    sizes = {0: [], 1: []}
    for place in np.flatnonzero(model.table.call_plan >= 0).tolist():
        plan = model.table.plans[model.table.call_plan[place]]
        outside = plan.edge_nic_src >= 0
        if outside.any():
            rails = np.unique(np.r_[plan.edge_nic_src[outside], plan.edge_nic_dst[outside]])
            sizes[int(moved[place])].append((len(rails), int(plan.edge_bytes[outside].max())))
        else:
            assert moved[place] == 0
    assert sizes[0] and all(rails > 1 and nbytes <= 4096 for rails, nbytes in sizes[0])
    assert sizes[1] and any(rails == 1 for rails, _ in sizes[1]) and max(nbytes for _, nbytes in sizes[1]) > 1 << 20
