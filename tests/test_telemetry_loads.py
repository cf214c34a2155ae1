"""What is said of operations, flows, queues: which calls loaded a link, what was exposed, how long queues were, what was sent again."""

import csv
from itertools import pairwise

import numpy as np
import pytest

import netsim as package
from netsim.config import load
from netsim.progress import Progress
from netsim.report.loaders import Loaders
from netsim.simulate import simulate
from tests.telemetry_runs import simulated

PACKETS = ("network.engine=packet", "workload.global_batch=2", "workload.model.layers=2")


@pytest.fixture(scope="module", params=["flow", "off", "packet"])
def folder(request, tmp_path_factory):
    """A run folded, GPU by GPU, and on the packet engine."""
    out = tmp_path_factory.mktemp(request.param)
    simulated(out, *{"flow": (), "off": ("simulate.fold=off",), "packet": PACKETS}[request.param], "telemetry.operations=all")
    return out


def test_exposed_time_of_operations_is_that_of_their_gpu(folder):
    with package.open_run(folder) as run:
        gpu, category, waited = (run[f"operations/{name}"] for name in ("gpu", "category", "exposed"))
        kernels = run["operations/flow"] < 0
        other = run.names("categories").index("other")
        category = np.where(kernels, other, category)  # a wait for a kernel of another stream is no communication
        for g in np.unique(gpu).tolist():
            mine = gpu == g
            total = np.bincount(category[mine], weights=waited[mine], minlength=len(run.names("categories")))
            assert total.tolist() == run["gpus/exposed"][g].tolist()
        assert waited.max() > 0


def test_calls_account_for_all_bytes(folder):
    """By category and by call: what loaded a link adds up to what it carried; headers of packets are not a call's."""
    with package.open_run(folder) as run:
        total, tier = run["links/bytes"], run["links/tier"]
        assert run["links/load"].sum(axis=1) == pytest.approx(total, rel=1e-5)
        sets, nbytes = run["links/loads"], run["loads/bytes"]
        of_set = np.bincount(run["loads/set"], weights=nbytes, minlength=sets.max() + 1)
        said = np.where(sets < 0, 0.0, of_set[sets])
        headers = np.where((tier == "scale_up") | (tier == "host") | (run.attributes["engine"] == "flow"), 1.0, 4160 / 4096)
        assert said * headers == pytest.approx(total, rel=1e-3, abs=2000)
        assert total[tier == "host"].sum() > 0


def test_a_nic_is_loaded_by_the_pipeline_only(folder):
    with package.open_run(folder) as run:
        names, loaders = list(run["links/name"]), Loaders(run)
        up = names.index("nic n0.3 -> leaf r3.s0")
        first = loaders.of(up)[0]
        assert first["call"] == "pp.sendrecv.forward" and first["stage"] == 0 and first["share"] > 0.99
        batches = run.config["workload"]["global_batch"] // 2
        assert first["microbatch"] == (f"0-{batches - 1}" if batches > 1 else "0")
        calls = (run["operations/names"][run["flows/call"]] == "pp.sendrecv.forward").nonzero()[0]
        start, end = run["flows/start"][calls[0]] * 1e-12, run["flows/end"][calls[0]] * 1e-12
        assert loaders.of(up, (start, end))[0]["microbatch"] == "0"
        mine = (run["loads/name"] == run["flows/call"][calls[0]]) & (run["loads/stage"] == 0) & (run["loads/microbatch"] == 0)
        begun = run["loads/first"][mine] - run["flows/start"][calls[0]]
        assert (begun > 1e6).all() and (begun < 1e8).all(), "bytes move some microseconds after the start, once a kernel is launched"
        path = run["paths/link"][run["paths/path"] == run["flows/path"][calls[0]]]
        assert [names[link].partition(" -> ")[2].split()[0] for link in path] == ["nic", "leaf", "nic", "n1.g0"]


def test_links_that_switches_chose_have_the_mix_of_their_tier(tmp_path):
    simulated(tmp_path, *PACKETS, "topology.use=dgx_h100_superpod", "topology.segment=1", "network.spreading=spray")
    with package.open_run(tmp_path) as run:
        load, nbytes = run["links/load"], run["links/bytes"]
        assert ((nbytes > 0) & (run["links/tier"] == "spine")).sum() > 8
        assert load.sum(axis=1) == pytest.approx(nbytes, rel=1e-5)


def test_calls_say_how_many_packets_were_sent_again(tmp_path):
    """One link of stage 1 is slow and its queue short: what is dropped there is sent again, by the calls that use it."""
    slow = ("topology.faults=[{link: leaf r2.s0 -> nic n1.2, rate: 100 Gbps}]", "topology.switch.buffer=1 MiB")
    loss = ("network.flow_control=none", "network.recovery.mode=selective", "network.congestion_control.name=none")
    simulated(tmp_path, *PACKETS, *slow, *loss, "telemetry.operations=all")
    with package.open_run(tmp_path) as run:
        link = list(run["links/name"]).index("leaf r2.s0 -> nic n1.2")
        again, drops = run["flows/resent"], run["links/drops"]
        assert np.flatnonzero(drops).tolist() == [link] and again.sum() >= drops.sum() > 0
        for flow in np.flatnonzero(again):
            assert link in run["paths/link"][run["paths/path"] == run["flows/path"][flow]]


def test_several_iterations(tmp_path):
    for kept, expected in (("last", [2]), ("all", [0, 1, 2]), ("[0, 2]", [0, 2])):
        simulated(tmp_path / kept, "simulate.iterations=3", f"telemetry.iterations={kept}")
        with package.open_run(tmp_path / kept) as run:
            turn, end = run["operations/iteration"], run["operations/end"]
            assert np.unique(turn).tolist() == expected
            assert (end > 0).all()
            for earlier, later in pairwise(expected):
                first = run["operations/gpu"] == 0
                assert end[first & (turn == earlier)].max() <= run["operations/start"][first & (turn == later)].min()
            exposed = run["gpus/exposed"][0].sum()
            waited = run["operations/exposed"][run["operations/gpu"] == 0].sum()
            assert waited == exposed if kept == "all" else waited == pytest.approx(exposed * len(expected) / 3, rel=0.1)


def incast(folder, *settings):
    """Two flows of 1 MiB into one NIC of a fat tree."""
    folder.mkdir(parents=True, exist_ok=True)
    flows = "workload.flows=[{src: 1, dst: 0, bytes: 1 MiB}, {src: 2, dst: 0, bytes: 1 MiB}]"
    more = ("workload.pattern=matrix", flows, "network.congestion_control.name=none", "network.ecn=null", "telemetry.interval=5 us")
    return simulate(load("runs/incast_64.yaml", (*more, *settings)), folder, Progress())


def test_mean_queue_of_an_incast(tmp_path):
    """Both send at the rate of the link that they share: the queue grows at that rate until they have ended, then drains at it.

    Each sends 1 MiB, so the queue's peak is one flow's bytes (with headers), and its integral that times the time of one flow.
    """
    incast(tmp_path, "topology.switch.buffer=64 MiB", "network.flow_control=none", "network.sharing=static")
    with package.open_run(tmp_path) as run:
        link = [str(n) for n in run["links/name"]].index("leaf 0 -> nic n0.0")
        wire = 256 * 4160
        assert run["links/queue_max"][link] == pytest.approx(wire, rel=0.02)
        assert run["links/queue_mean"][link] * run.end_ps * 1e-12 == pytest.approx(wire * wire / 50e9, rel=0.02)
        series = run.series(link, "queue_mean")
        assert series.sum() * run.interval_ps == pytest.approx(run["links/queue_mean"][link] * run.end_ps, rel=1e-3)
        assert series.argmax() == pytest.approx(len(series) / 2, abs=1)
        assert (series <= run.series(link, "queue_max") + 1).all()


def test_intervals_are_doubled_until_the_series_fit(tmp_path, monkeypatch):
    incast(tmp_path / "fine")
    with package.open_run(tmp_path / "fine") as run:
        rows, bins = run.shape("series/bytes")
    monkeypatch.setattr("netsim.telemetry.frame.LARGEST", rows * bins // 3)
    incast(tmp_path / "coarse")
    with package.open_run(tmp_path / "fine") as fine, package.open_run(tmp_path / "coarse") as coarse:
        assert coarse.interval_ps == 4 * fine.interval_ps
        link = [str(n) for n in fine["links/name"]].index("leaf 0 -> nic n0.0")
        for channel, combine in (("bytes", np.sum), ("queue_max", np.max), ("queue_mean", np.mean)):
            values = fine.series(link, channel)
            fours = np.append(values, np.zeros(-len(values) % 4)).reshape(-1, 4)
            assert values.max() > 0 and coarse.series(link, channel) == pytest.approx(combine(fours, axis=1), rel=1e-6)


@pytest.mark.parametrize("mode", ["go_back_n", "selective"])
def test_what_was_sent_again(mode, tmp_path):
    """A queue that holds eighty packets drops some; every packet beyond those of the two messages was sent again."""
    small = ("network.flow_control=none", f"network.recovery.mode={mode}", "topology.switch.buffer=4 MiB", "network.sharing=static")
    summary = incast(tmp_path, *small)
    with package.open_run(tmp_path) as run:
        nic = np.array([str(n).startswith("nic") for n in run["links/name"]])
        sent = run["links/bytes"][nic].sum() / 4160
        assert run["links/drops"].sum() > 0
        assert run["flows/resent"].sum() == sent - 512 == summary["resent"] > 0


def test_traffic_has_series_and_loads(tmp_path):
    for engine in ("flow", "packet"):
        incast(tmp_path / engine, f"network.engine={engine}")
        with package.open_run(tmp_path / engine) as run:
            link = [str(n) for n in run["links/name"]].index("leaf 0 -> nic n0.0")
            assert run.series(link).sum() == pytest.approx(run["links/bytes"][link], rel=1e-6)
            assert run["links/bytes"][link] == (2 << 20) * (4160 / 4096 if engine == "packet" else 1)
            found = Loaders(run).of(link)
            assert [one["call"] for one in found] == ["flow 0 (nic 1 to 0)", "flow 1 (nic 2 to 0)"]
            assert run["paths/link"][run["paths/path"] == 0].tolist()[-1] == link
    with open(tmp_path / "flow" / "flows.csv", encoding="utf-8") as table:
        assert [row["dst"] for row in csv.DictReader(table)] == ["0", "0"]


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_loads_tell_iterations_apart(tmp_path, engine):
    """All iterations call the same, and each loads links later; those that are not kept are told together."""
    settings = (*(PACKETS if engine == "packet" else ()), "simulate.iterations=4", "telemetry.iterations=[1, 3]")
    simulated(tmp_path, *settings)
    with package.open_run(tmp_path) as run:
        columns = [run[f"loads/{name}"] for name in ("set", "name", "stage", "microbatch", "part", "bytes", "first", "iteration")]
    turn = columns.pop()
    others, second, fourth = (np.stack([column[turn == k].astype(float) for column in columns]) for k in (-1, 1, 3))
    assert set(turn.tolist()) == {-1, 1, 3}
    assert others[:5].tolist() == second[:5].tolist() == fourth[:5].tolist()
    assert others[5] == pytest.approx(2 * second[5]) and second[5] == pytest.approx(fourth[5])
    assert (others[6] < second[6]).all() and (second[6] < fourth[6]).all()


def test_iterations_in_one_place_are_told_together(tmp_path):
    simulated(tmp_path, "simulate.iterations=2")
    with package.open_run(tmp_path) as run:
        assert set(run["loads/iteration"].tolist()) == {-1}
