"""Runs that do not end: killed, told to stop, out of disk space. What is left reads like a whole run, and says that it is none."""

import json
import os
import signal

import numpy as np
import pytest

import netsim as package
from netsim.config import load
from netsim.errors import InputError
from netsim.progress import Progress
from netsim.simulate import record, simulate
from netsim.telemetry.spool import Spool, read_happened
from tests.conftest import PATIENCE_S, filled, start, until
from tests.telemetry_runs import SMALL, simulated, traffic

LONG = ("run", "runs/h100_16.yaml", *(w for s in (*SMALL, "simulate.iterations=100000", "telemetry.interval=10 ms") for w in ("--set", s)))


def commands_say_incomplete(netsim, out, tmp_path):
    """All commands that read a result read what is left, and say that it is not whole."""
    page, trace = tmp_path / "p.html", tmp_path / "t"
    for words in (("links", out), ("report", out, "--html", page), ("trace", out, "-o", trace), ("compare", out, out)):
        result = netsim(*words)
        assert result.returncode == 0, result.stderr
        assert "INCOMPLETE" in result.stdout


@pytest.fixture
def going(tmp_path):
    """A long run that has been under way for a while: its process and its folder."""
    simulated(tmp_path / "warm")  # compiles what the process would have to
    process = start(1, ["-m", "netsim", *LONG, "--out", str(tmp_path / "out")], os.getcwd(), {})
    log = tmp_path / "out" / "spool" / "log.bin"
    until(process, lambda: log.exists() and log.stat().st_size > 1 << 20)
    yield process, tmp_path / "out"
    process.kill()
    process.communicate()


def test_killed_run_is_read_from_its_spool(going, netsim, tmp_path):
    process, out = going
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (out / "result.h5").exists()
    with package.open_run(out) as run:
        assert not run.complete and run.end_ps > 0
        assert (run["operations/end"] > 0).sum() > 100
        assert (run["flows/end"] <= run.end_ps).all() and len(run["flows/end"]) > 100
        link = int(np.argmax(run["links/bytes"]))
        assert run.series(link).sum() == pytest.approx(run["links/bytes"][link], rel=1e-4)
    commands_say_incomplete(netsim, out, tmp_path)


def test_sigterm_writes_what_there_is(going):
    process, out = going
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143
    assert sorted(p.name for p in out.iterdir()) == ["result.h5", "summary.json"]
    assert json.loads((out / "summary.json").read_text())["complete"] is False
    with package.open_run(out) as run:
        assert not run.complete
        link = int(np.argmax(run["links/bytes"]))
        assert run.series(link).sum() == pytest.approx(run["links/bytes"][link], rel=0.02)  # moved bytes are booked as calls end


PLAIN = {
    "packet": ("runs/permutation_1024.yaml", "workload.size=64 MiB", "network.congestion_control.name=none", "telemetry.interval=1 us"),
    "flow": ("runs/incast_64.yaml", "workload.pattern=all_to_all", "workload.size=1 MiB", "network.engine=flow"),
}


@pytest.fixture(params=list(PLAIN))
def flows_going(request, tmp_path):
    """Plain traffic that has been under way for a while: its process and its folder."""
    file, *settings = PLAIN[request.param]
    words = [w for s in settings for w in ("--set", s)]
    process = start(1, ["-m", "netsim", "run", file, *words, "--out", str(tmp_path / "out"), "--quiet"], os.getcwd(), {})
    spool = tmp_path / "out" / "spool"

    def moved():
        if not (spool / "frame.json").exists():
            return False
        happened = read_happened(spool)
        return happened.moved.sum() + happened.counters.get("bytes", np.zeros(1)).sum() > 0

    until(process, moved)
    yield process, tmp_path / "out"
    process.kill()
    process.communicate()


def test_killed_traffic_is_read_from_its_spool(flows_going, netsim, tmp_path):
    process, out = flows_going
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (out / "result.h5").exists()
    with package.open_run(out) as run:
        assert not run.complete and run.end_ps > 1
        link = int(np.argmax(run["links/bytes"]))
        assert run["links/bytes"][link] > 0
        assert run.series(link).sum() == pytest.approx(run["links/bytes"][link], rel=1e-4)
    commands_say_incomplete(netsim, out, tmp_path)


def test_sigterm_stops_traffic(flows_going):
    process, out = flows_going
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143
    assert sorted(p.name for p in out.iterdir()) == ["flows.csv", "result.h5", "summary.json"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["complete"] is False and summary["flows_done"] < summary["flows"]
    with package.open_run(out) as run:
        assert not run.complete and (run["flows/end"] > 0).sum() == summary["flows_done"]


PACKETS = ("network.engine=packet", "workload.model.layers=2", "workload.global_batch=2")


@pytest.mark.mpi
def test_ranks_stop_together(tmp_path):
    simulated(tmp_path / "warm", *PACKETS)
    settings = [w for s in (*PACKETS, "simulate.iterations=100000") for w in ("--set", s)]
    process = start(2, ["-m", "netsim", "run", "runs/h100_16.yaml", *settings, "--out", str(tmp_path / "out")], os.getcwd(), {})
    try:
        until(process, filled(tmp_path / "out" / "spool" / "samples-bytes-1.bin"))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    # Open MPI's launcher ends with a code of its own when it is told to stop
    assert process.returncode == 143 if "openmpi" not in os.environ.get("MPIRUN", "") else process.returncode
    with package.open_run(tmp_path / "out") as run:
        assert not run.complete and run["links/bytes"].sum() > 0


@pytest.mark.mpi
def test_telemetry_does_not_depend_on_the_number_of_ranks(netsim, tmp_path):
    settings = [w for s in PACKETS for w in ("--set", s)]
    for ranks in (1, 2):
        result = netsim("run", os.path.abspath("runs/h100_16.yaml"), *settings, "--out", tmp_path / str(ranks), "--quiet", ranks=ranks)
        assert result.returncode == 0, result.stderr
    with package.open_run(tmp_path / "1") as one, package.open_run(tmp_path / "2") as two:
        assert one.channels == two.channels and "series/queue_max" in one
        for channel in one.channels:
            assert (one[channel] == two[channel]).all(), channel


@pytest.mark.parametrize("engine", ["flow", "packet"])
@pytest.mark.parametrize("file", ["h100_16", "incast_64"])
def test_a_run_whose_time_is_over_writes_what_it_has(file, engine, tmp_path):
    settings = SMALL if file == "h100_16" else ("workload.pattern=all_to_all", "workload.hosts=64")
    run = load(f"runs/{file}.yaml", (*settings, f"network.engine={engine}", "simulate.max_wall=1 us"))
    assert simulate(run, tmp_path, Progress())["complete"] is False
    assert json.loads((tmp_path / "summary.json").read_text())["complete"] is False
    with package.open_run(tmp_path) as result:
        assert not result.complete


def limited(room: int) -> str:
    """A limit on the size of files stands for a disk without room: the operating system's answer takes the same way."""
    return f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room})); "


def test_no_room_for_the_spool_is_one_line(python, tmp_path):
    settings = [w for s in SMALL for w in ("--set", s)]
    words = ("run", os.path.abspath("runs/h100_16.yaml"), *settings, "--out", tmp_path / "out", "--quiet")
    result = python("-c", limited(20_000) + "from netsim.cli.main import main; sys.exit(main())", *words)
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1
    assert str(tmp_path / "out") in result.stderr and "file too large" in result.stderr
    assert not (tmp_path / "out").exists()


def test_no_room_later_ends_the_run_with_what_there_is(python, tmp_path):
    simulated(tmp_path / "warm")
    words = ("run", os.path.abspath("runs/h100_16.yaml"), *LONG[2:], "--out", tmp_path / "out", "--quiet")
    result = python("-c", limited(3 << 20) + "from netsim.cli.main import main; sys.exit(main())", *words)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
    assert str(tmp_path / "out") in result.stderr and "file too large" in result.stderr
    with package.open_run(tmp_path / "out") as run:
        assert not run.complete and run["links/bytes"].sum() > 0


NO_ROOM_ON_ONE = """
import resource, sys
from netsim.cli import main
from netsim.telemetry.spool import Spool

sample = Spool.sample

def limited(self, *counted):
    if self.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    sample(self, *counted)

Spool.sample = limited
sys.exit(main.main())
"""


@pytest.mark.mpi
def test_a_rank_that_alone_has_no_room_says_so(python, tmp_path):
    settings = [w for s in (*PACKETS, "simulate.iterations=100000", "telemetry.interval=10 us") for w in ("--set", s)]
    words = ("run", os.path.abspath("runs/h100_16.yaml"), *settings, "--out", tmp_path / "out", "--quiet")
    ended = python("-c", NO_ROOM_ON_ONE, *words, ranks=2)
    assert ended.returncode != 0
    assert f"{tmp_path / 'out' / 'spool'}: expected a place that can be written; got: file too large" in ended.stderr


def test_a_result_is_read_though_its_summary_could_not_be_written(tmp_path):
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(InputError, match=r"summary\.json: expected a place that can be written; got: is a directory"):
        simulated(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["result.h5", "summary.json"]
    with package.open_run(tmp_path) as run:
        assert run.complete


@pytest.mark.parametrize("settings", [(), PACKETS], ids=["flow", "packet"])
def test_the_spool_gets_all_transfers(settings, tmp_path, monkeypatch):
    kept, told = [], []
    append, happened = Spool.log, record.happened
    monkeypatch.setattr(Spool, "log", lambda self, part: (kept.append(part), append(self, part)))
    monkeypatch.setattr(record, "happened", lambda gpus, log, *more: (told.append(log), happened(gpus, log, *more))[1])
    simulated(tmp_path, *settings)
    for column, whole in zip(zip(*kept, strict=True), *told, strict=True):
        assert np.concatenate(column).tolist() == whole.tolist()


@pytest.fixture
def left(monkeypatch):
    """Runs leave their spool beside the result."""
    monkeypatch.setattr("netsim.telemetry.spool.HELD_S", 0.0)
    monkeypatch.setattr(Spool, "remove", lambda self: None)


@pytest.mark.parametrize("case", ["flow", "packet", "traffic"])
def test_the_spool_of_a_whole_run_says_what_its_result_says(case, left, tmp_path):
    if case == "traffic":
        traffic(tmp_path)
    else:
        simulated(tmp_path, *(PACKETS if case == "packet" else ()), "simulate.iterations=2")
    with package.open_run(tmp_path / "result.h5") as result, package.open_run(tmp_path) as spool:
        assert result.complete and not spool.complete and spool.end_ps >= result.end_ps
        assert spool.channels == result.channels and spool.interval_ps == result.interval_ps
        for channel in result.channels:
            one, other = result[channel], spool[channel]
            if channel.startswith("series/"):
                one, other = (np.array([run.series(i, channel[7:]) for i in range(len(run["links/series"]))]) for run in (result, spool))
                assert not other[:, one.shape[1] :].any()
                other = other[:, : one.shape[1]]
            if channel == "links/queue_mean":
                other = other * (spool.end_ps / result.end_ps)
            if channel not in ("links/series", "links/loads", "loads/set"):
                assert (one == other).all() if one.dtype.kind in "OSU" else other == pytest.approx(one, rel=1e-6), channel


def test_a_spool_that_ends_in_the_middle_is_read_up_to_there(left, tmp_path):
    simulated(tmp_path, *PACKETS)
    with package.open_run(tmp_path) as run:
        whole = run["links/bytes"].sum()
    for name in ("log.bin", "samples-bytes-0.bin"):
        file = tmp_path / "spool" / name
        for cut in (5, 16):
            os.truncate(file, file.stat().st_size - cut)
            with package.open_run(tmp_path) as run:
                assert 0 < run["links/bytes"].sum() <= whole
        assert run.path.name == "spool"


def test_a_spool_of_another_version_is_refused(left, tmp_path):
    simulated(tmp_path)
    head = tmp_path / "spool" / "frame.json"
    head.write_text(json.dumps(json.loads(head.read_text()) | {"version": [1, 99]}))
    with pytest.raises(InputError, match=r"expected the spool of a run of format 1\.\d+; got 1\.99"):
        package.open_run(tmp_path)


def test_no_room_for_the_result_is_one_line(python, tmp_path):
    text = """
import numpy as np
from pathlib import Path
from netsim.errors import InputError
from netsim.telemetry.write import result_file
try:
    with result_file(Path("result.h5"), {}) as writer:
        writer.put("links/rate", np.random.default_rng(0).random(100_000))
except InputError as error:
    print(error)
"""
    result = python("-c", limited(50_000) + text)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "result.h5: expected a place that can be written; got: file too large\n"
    assert list(tmp_path.iterdir()) == []
