"""Plain traffic from run file to result files, against closed forms."""

import csv
import json

import numpy as np
import pytest

from netsim.config import load
from netsim.errors import InputError
from netsim.network.packet.engine import PacketEngine
from netsim.progress import Progress
from netsim.simulate import simulate
from netsim.telemetry.read import open_run

FABRIC = ("workload.pattern=permutation", "workload.size=2 MiB", "workload.seed=1")
FLUID = (*FABRIC, "network.engine=flow", "topology.switch.latency=0")


def run(folder, *settings, file="runs/incast_64.yaml"):
    """Simulate traffic on 128 hosts of a three-tier fat tree with k = 8; returns (summary, rows of flows.csv)."""
    summary = simulate(load(file, settings), folder, Progress())
    with open(folder / "flows.csv", encoding="utf-8") as table:
        return summary, list(csv.DictReader(table))


def matrix(*pairs):
    """Settings for explicit flows of 2 MiB between NICs."""
    flows = ", ".join(f"{{src: {a}, dst: {b}, bytes: 2 MiB}}" for a, b in pairs)
    return "workload.pattern=matrix", f"workload.flows=[{flows}]"


def fct(rows):
    return [float(row["fct_us"]) for row in rows]


@pytest.mark.parametrize(("pair", "us"), [((0, 1), 42.943), ((0, 4), 43.943), ((0, 127), 44.943)])
def test_one_fluid_flow_takes_its_bytes_and_its_path(pair, us, tmp_path):
    _, rows = run(tmp_path, *FLUID, *matrix(pair))
    assert fct(rows) == [pytest.approx(us, abs=5e-4)]


def test_two_fluid_flows_into_one_host_share_its_link(tmp_path):
    _, rows = run(tmp_path, *FLUID, *matrix((1, 0), (2, 0)))
    assert fct(rows) == pytest.approx([84.886, 84.886], abs=5e-4)


def test_shift_without_collisions_is_as_fast_as_one_flow(tmp_path):
    _, rows = run(tmp_path, *FLUID, "workload.pattern=shift", "topology.routing=dmodk")
    assert len(rows) == 128
    assert fct(rows) == pytest.approx([44.943] * 128, abs=5e-4)


@pytest.mark.parametrize(("pair", "us"), [((0, 1), 45.2842), ((0, 4), 48.6531), ((0, 127), 52.0221)])
def test_one_packet_flow_has_the_closed_form(pair, us, tmp_path):
    # 512 packets of 83.2 ns: P s + (L-1) s + 2 (L d + (L-1) w) + L a
    _, rows = run(tmp_path, *FABRIC, *matrix(pair))
    assert fct(rows) == [pytest.approx(us, abs=5e-5)]


def test_lossless_incast_never_idles_its_bottleneck(tmp_path):
    summary, _ = run(tmp_path, "workload.fan_in=8", "network.congestion_control.name=none")
    assert summary["drops"] == 0
    assert summary["fct_us"]["max"] == pytest.approx(178.051, rel=1e-3)


def test_engines_carry_the_same_bytes(tmp_path):
    (tmp_path / "p").mkdir()
    (tmp_path / "f").mkdir()
    packets, rows = run(tmp_path / "p", *FABRIC, "workload.size=64 KiB")
    fluid, others = run(tmp_path / "f", *FLUID, "workload.size=64 KiB")
    assert [r["dst"] for r in rows] == [r["dst"] for r in others]
    # 16 packets a flow, each with 64 bytes of header
    assert packets["network_bytes"] == fluid["network_bytes"] * (4096 + 64) / 4096
    with open_run(tmp_path / "p") as result:
        assert (result["flows/end"] > result["flows/start"]).all()
        assert result["links/bytes"].sum() >= 2 * packets["network_bytes"]


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_completion_times_count_from_the_start_of_each_flow(engine, tmp_path):
    flows = "workload.flows=[{src: 0, dst: 1, bytes: 2 MiB, start: 70 us}, {src: 2, dst: 3, bytes: 1 MiB, start: 10 us}]"
    settings = ("workload.pattern=matrix", flows, f"network.engine={engine}", "telemetry.interval=10 us")
    summary, rows = run(tmp_path, *settings)
    first, second = fct(rows)
    assert 42 < first < 47 and 21 < second < 26
    assert [float(row["end_us"]) - float(row["start_us"]) for row in rows] == pytest.approx([first, second])
    said = summary["fct_us"]
    assert (said["min"], said["max"], said["mean"]) == pytest.approx((second, first, (first + second) / 2), abs=1e-5)
    assert said["p99"] == pytest.approx(second + 0.99 * (first - second), abs=1e-5)
    wire = 2**21 * (4160 / 4096 if engine == "packet" else 1)
    assert summary["network_bytes"] == pytest.approx(1.5 * wire) and summary["end_s"] == pytest.approx((70 + first) * 1e-6)
    with open_run(tmp_path) as result:
        series = result.series(list(result["links/name"]).index("nic n0.0 -> leaf 0"))
        assert np.flatnonzero(series)[0] == 7, "an interval holds what moved in it"
        assert series[8:11] == pytest.approx([500_000] * 3, rel=0.01)


def test_no_flow_beats_its_link(tmp_path):
    _, rows = run(tmp_path, *FABRIC)
    bound = 2**21 / 50e9 * 1e6
    assert min(fct(rows)) > bound
    assert np.mean(fct(rows)) > bound


def test_summary_file_is_what_is_returned(tmp_path):
    summary, rows = run(tmp_path, *FABRIC, "workload.size=4 KiB")
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert summary["flows"] == len(rows) == 128


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_link_that_slows_down_for_a_while(engine, tmp_path):
    # 2 MiB take 42 us at 400 Gbps; between 10 and 20 us the link has a tenth of it: 9 us more
    fault = "topology.faults=[{link: nic n0.0 -> leaf 0, rate: 40 Gbps, from: 10 us, until: 20 us}]"
    settings = (*FABRIC, *matrix((0, 1)), f"network.engine={engine}", "network.congestion_control.name=none")
    for name in ("plain", "faulty"):
        (tmp_path / name).mkdir()
    _, plain = run(tmp_path / "plain", *settings)
    _, faulty = run(tmp_path / "faulty", *settings, fault)
    assert fct(faulty)[0] - fct(plain)[0] == pytest.approx(9, rel=0.02)


def test_link_that_fails_and_returns(tmp_path):
    fault = "topology.faults=[{link: nic n0.0 -> leaf 0, rate: 0, from: 10 us, until: 25 us}]"
    _, rows = run(tmp_path, *FABRIC, *matrix((0, 1)), fault, "network.congestion_control.name=none")
    again = 0.883 + 1.466 + 1.3  # us: what was on the wire, the first packet after the return to the receiver, its word to the sender
    assert fct(rows) == [pytest.approx(45.2842 + 15 + again, abs=0.1)]


def test_link_that_is_gone_for_long(tmp_path):
    """Longer than a run may be silent: it goes on when the link returns, and is sampled then."""
    fault = "topology.faults=[{link: nic n0.0 -> leaf 0, rate: 0, from: 10 us, until: 300 ms}]"
    _, rows = run(tmp_path, *FABRIC, *matrix((0, 1)), fault, "network.congestion_control.name=none", "telemetry.interval=1 ms")
    assert fct(rows) == [pytest.approx(45.2842 + 300_000 - 10, abs=5)]
    with open_run(tmp_path) as result:
        link = list(result["links/name"]).index("nic n0.0 -> leaf 0")
        assert np.flatnonzero(result.series(link)).tolist() == [0, 300]
        assert result.series(link).sum() == pytest.approx(result["links/bytes"][link], rel=1e-6)


@pytest.mark.parametrize(("engine", "said"), [("flow", "1 flows that can never end"), ("packet", "every way between them has failed")])
def test_link_that_never_returns(engine, said, tmp_path):
    fault = "topology.faults=[{link: nic n0.0 -> leaf 0, rate: 0, from: 10 us}]"
    settings = (*FABRIC, *matrix((0, 1), (2, 3)), f"network.engine={engine}", "network.congestion_control.name=none")
    with pytest.raises(InputError, match=said):
        run(tmp_path, *settings, fault)


def test_flows_that_never_end_are_an_error(tmp_path, monkeypatch):
    """As in a deadlock: nothing moves any more, and a flow has not ended."""
    ends = PacketEngine.flow_ends
    monkeypatch.setattr(PacketEngine, "flow_ends", lambda self: np.where(np.arange(2) == 1, -1, ends(self)))
    with pytest.raises(InputError, match="1 flows can never end; a lossless network may be in deadlock"):
        run(tmp_path, *FABRIC, *matrix((0, 1), (2, 3)), "telemetry.interval=1 ms")
