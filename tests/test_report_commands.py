"""links, trace, report and compare on a small run, as a user types them."""

import csv
import io
import json

import numpy as np
import pytest

import netsim as package
from netsim.report import data, figures, heat
from netsim.report.spans import operations, recorded, spans
from tests.telemetry_runs import simulated, traffic


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    simulated(out)
    return out


@pytest.fixture(scope="module")
def packets(tmp_path_factory):
    out = tmp_path_factory.mktemp("packets")
    simulated(out, "network.engine=packet", "workload.global_batch=2", "workload.model.layers=2")
    return out


def test_links_lists_the_busiest_first(netsim, folder):
    result = netsim("links", folder)
    assert result.returncode == 0, result.stderr
    assert "busiest links" in result.stdout and "scale_up" in result.stdout
    rows = json.loads(netsim("links", folder, "--json").stdout.splitlines()[-1])["links"]
    used = [row["utilisation"] for row in rows]
    assert used == sorted(used, reverse=True)
    assert sum(row["alike"] for row in rows) <= 96
    assert rows[0]["load"].get("tp", 0) > 0.5


def test_links_of_a_tier_rail_and_window(netsim, folder):
    rows = list(csv.DictReader(io.StringIO(netsim("links", folder, "--tier", "nic", "--rail", "3", "--csv").stdout)))
    assert {row["tier"] for row in rows} == {"nic"} and {row["rail"] for row in rows} == {"3"}
    with package.open_run(folder) as run:
        half = f"{run.end_ps // 2}ps"
        total = run["links/bytes"][0]
    first, last = (json.loads(netsim("links", folder, "--json", "--window", w).stdout) for w in (f"0ps:{half}", f"{half}:"))
    name = "n0.g0 -> scale-up n0"
    parts = [row["bytes"] for part in (first, last) for row in part["links"] if row["link"] == name]
    if len(parts) == 2:  # else another link stands for it in one of the halves
        assert sum(parts) == pytest.approx(total, rel=1e-3)
    assert all(0 < row["utilisation"] <= 1 for part in (first, last) for row in part["links"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("links", "--tier", "spin"), "did you mean 'spine'?"),
        (("links", "--rail", "9"), "expected a rail of this run (0 to 7); got 9"),
        (("links", "--window", "5ms"), "expected two times in order such as 10ms:20ms; got '5ms'"),
        (("links", "--window", "2h:3h"), "the first before the end"),
        (("links", "--top", "0"), "expected a number of links from 1; got 0"),
        (("trace", "--window", "2h:3h"), "the first before the end"),
        (("trace", "--rank", "\u00b2"), "--rank: expected numbers such as 0,8,16; got '\u00b2'"),
        (("trace", "--rank", "3"), "expected recorded GPUs (0, 8); got 3"),
        (("trace", "--category", "forwards"), "did you mean 'forward'?"),
        (("compare",), "expected two runs or more; got 1"),
    ],
)
def test_wrong_words_are_one_line(netsim, folder, words, message):
    result = netsim(words[0], folder, *words[1:])
    assert result.returncode == 2
    assert message in result.stderr and result.stderr.count("\n") == 1


def test_a_trace_that_cannot_be_written_leaves_nothing(netsim, folder, tmp_path):
    (tmp_path / "taken").mkdir()
    result = netsim("trace", folder, "-o", tmp_path / "taken")
    assert result.returncode == 2 and "expected a place that can be written; got: is a directory" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_packet_runs_have_queues(netsim, packets):
    with package.open_run(packets) as run:
        nic = run["links/tier"] == "nic"
        assert run["links/queue_max"][nic].max() > 0
        assert run["series/queue_max"].max() >= run["links/queue_max"][nic].max()
        assert data.queue_cdf(run)["nic"][1][-1] == pytest.approx(1)
        rows = run["links/series"][nic]
        assert run["series/bytes"][rows[rows >= 0]].sum() == pytest.approx(run["links/bytes"][nic].sum())
    assert " queue " in netsim("links", packets, "--tier", "nic").stdout


def test_plain_traffic(netsim, tmp_path):
    traffic(tmp_path)
    rows = json.loads(netsim("links", tmp_path, "--json").stdout.splitlines()[-1])["links"]
    assert rows[0]["link"].startswith("leaf") and rows[0]["utilisation"] > 0.9
    with package.open_run(tmp_path) as run:
        assert run["links/queue_max"].max() > 0
        assert {name for name, draw in figures.FIGURES.items() if draw(run) is not None} == {"completion", "utilisation", "utilisation_cdf"}
    result = netsim("report", tmp_path, "--html", tmp_path / "page.html")
    assert result.returncode == 0, result.stderr
    assert "8 slices" in netsim("trace", tmp_path).stdout
    assert "plain traffic has flows between NICs" in netsim("trace", tmp_path, "--rank", "0").stderr


def test_compare_tells_what_changed(netsim, folder, tmp_path):
    simulated(tmp_path / "slow", "topology.link.rate=100 Gbps")
    result = netsim("compare", folder, tmp_path / "slow")
    assert result.returncode == 0, result.stderr
    assert "topology.link.rate" in result.stdout and "100 Gbps" in result.stdout
    found = json.loads(netsim("compare", folder, tmp_path / "slow", "--json").stdout)
    assert [name for name, _ in found["config"]] == ["topology.link.rate"]
    before, after = dict(found["time_s"])["exposed pp"]
    assert after > 2 * before
    assert "configuration: no difference" in netsim("compare", folder, folder).stdout


def test_breakdown_adds_up_to_the_iteration(folder):
    with package.open_run(folder) as run:
        stages, seconds = data.breakdown(run)
        assert stages == [0, 1]
        assert seconds.sum(axis=1) == pytest.approx(run.summary["iteration_time_s"], rel=0.01)


def test_spans_cover_every_microbatch(folder):
    with package.open_run(folder) as run:
        for ops in operations(run, recorded(run)):
            found = spans(ops)
            for name in ("forward-compute", "backward-compute"):
                assert sorted(int(m) for n, m in zip(found.name, found.microbatch, strict=True) if n == name) == [0, 1, 2, 3]
            assert (found.end[:-1] <= found.start[1:]).all()


def test_heat_keeps_the_bytes(folder):
    with package.open_run(folder) as run:
        h = heat.heat(run, 37)
        tier, rate, nbytes = run["links/tier"], run["links/rate"], run["links/bytes"]
        for g, (name, rail) in enumerate(zip(h.tier, h.rail, strict=True)):
            mine = (tier == name) & (run["links/rail"] == rail)
            assert h.links[g] == mine.sum()
            assert (h.mean[g] * np.diff(h.t_s)).sum() == pytest.approx((nbytes[mine] / rate[mine]).mean(), rel=1e-4)
            assert (h.highest[g] >= h.mean[g] - 1e-9).all()


def test_figures(netsim, folder, packets, tmp_path):
    pytest.importorskip("matplotlib")
    result = netsim("report", folder, "--figures", tmp_path / "figures")
    assert result.returncode == 0, result.stderr
    assert {p.stem for p in (tmp_path / "figures").iterdir()} == set(figures.FIGURES)
    for path in (tmp_path / "figures").iterdir():
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 5000
    with package.open_run(packets) as run:
        figure = figures.completion(run)
        assert [ax.get_xlabel() for ax in figure.axes] == ["completion time (us)", "fill of a queue in an interval (KiB)"]


def test_trace_opens_and_closes_every_slice(netsim, folder, tmp_path):
    proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    result = netsim("trace", folder, "-o", tmp_path / "run.perfetto-trace")
    assert result.returncode == 0, result.stderr
    trace = proto.Trace.FromString((tmp_path / "run.perfetto-trace").read_bytes())
    names, processes, threads, counters = {}, {}, {}, {}
    open_, last, ends = {}, {}, {}
    for packet in trace.packet:
        for entry in packet.interned_data.event_names:
            names[entry.iid] = entry.name
        track = packet.track_descriptor
        if track.HasField("process"):
            processes[track.uuid] = track.process.process_name
        elif track.HasField("thread"):
            threads[track.uuid] = track.thread.thread_name
        elif track.HasField("counter"):
            counters[track.uuid] = track.name
        if packet.HasField("track_event"):
            event = packet.track_event
            uuid = event.track_uuid
            assert packet.timestamp >= last.get(uuid, 0)
            last[uuid] = packet.timestamp
            if event.type == event.TYPE_SLICE_BEGIN:
                assert uuid in threads and event.name_iid in names
                open_[uuid] = open_.get(uuid, 0) + 1
                for flow in event.flow_ids:
                    ends.setdefault(flow, set()).add(uuid)
            elif event.type == event.TYPE_SLICE_END:
                open_[uuid] -= 1
                assert open_[uuid] >= 0
            else:
                assert uuid in counters
    assert not any(open_.values())
    assert sorted(processes.values()) == ["links", "stage 0, GPU 0", "stage 1, GPU 8"]
    assert {"compute", "pp_send_next", "pp_recv_prev"} <= set(threads.values())
    assert {"forward-compute", "backward-compute", "forward-send", "forward-recv", "all-grads-sync"} <= set(names.values())
    assert "memory allocated" in counters.values() and "nic: highest utilisation" in counters.values()
    joined = [sorted(threads[uuid][:7] for uuid in tracks) for tracks in ends.values()]
    assert joined.count(["pp_recv", "pp_send"]) == 8  # four microbatches forward and four back between two stages


def test_trace_of_a_part(netsim, folder, tmp_path):
    pytest.importorskip("perfetto")
    sizes = []
    for words in ((), ("--rank", "8"), ("--rank", "8", "--category", "pp"), ("--rank", "8", "--window", "10ms:20ms")):
        out = tmp_path / "t"
        assert netsim("trace", folder, "-o", out, *words).returncode == 0
        sizes.append(out.stat().st_size)
    assert sizes[0] > sizes[1] > max(sizes[2:])
