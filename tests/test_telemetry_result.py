"""Result files: what the channel table says is what is in them, what is read is what was carried, and nobody opens the wrong file."""

import subprocess
import sys
from typing import get_args
from unittest.mock import patch

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import netsim
from netsim.config.telemetry import Choice
from netsim.errors import InputError
from netsim.telemetry import loads as loading
from netsim.telemetry import series
from netsim.telemetry.channels import BY_PATH, CHOICES
from netsim.telemetry.series import Loads, Log
from netsim.telemetry.size import at_most
from netsim.telemetry.write import result_file
from tests.telemetry_runs import simulated


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("result")
    simulated(out)
    return out


def test_choices_of_the_run_file_are_those_of_the_table():
    assert set(get_args(Choice)) == {"all", *CHOICES}


def test_file_is_what_the_table_declares(folder):
    sizes: dict[str, int] = {}
    with netsim.open_run(folder) as run:
        chosen = ("", "series", "loads", "operations", "flows", "memory")
        expected = {p for p, c in BY_PATH.items() if c.choice in chosen and "queue" not in p}
        expected -= {p for p in BY_PATH if p.split("/")[1] in ("ecn", "pause_ps", "drops", "reordered", "resent", "src", "dst")}
        assert set(run.channels) == expected
        for path in run.channels:
            channel, shape = BY_PATH[path], run.shape(path)
            assert len(shape) == len(channel.axes), path
            for axis, n in zip(channel.axes, shape, strict=True):
                assert sizes.setdefault(axis, n) == n, (path, axis)
        assert sizes["category"] == len(run.names("categories"))
    with h5py.File(folder / "result.h5") as file:
        assert file["links/rate"].attrs["unit"] == "B/s"
        assert list(file["series/bytes"].attrs["axes"]) == ["series", "interval"]


def test_series_add_up_to_the_bytes_of_every_link(folder):
    with netsim.open_run(folder) as run:
        total = run["links/bytes"]
        over_time = np.array([run.series(i).sum() for i in range(len(total))])
        assert over_time == pytest.approx(total, rel=1e-5, abs=1)
        assert run["links/load"].sum(axis=1) == pytest.approx(total, rel=1e-6)
        assert run.shape("series/bytes")[0] < len(total) / 2  # shared


def test_flows_are_the_calls_of_recorded_operations(folder):
    with netsim.open_run(folder) as run:
        flow, begin, end = run["operations/flow"], run["operations/begin"], run["operations/end"]
        calls = flow >= 0
        assert (run["flows/start"][flow[calls]] == begin[calls]).all()
        assert (run["flows/end"][flow[calls]] == end[calls]).all()
        names = run["operations/names"]
        assert (names[run["flows/call"]][flow[calls]] == names[run["operations/name"][calls]]).all()
        sends = run["operations/stream"] == run.names("streams").index("pp_send_next")
        assert (np.bincount(flow[calls])[flow[sends]] == 2).all()


def test_pandas_and_xarray(folder):
    pytest.importorskip("pandas")
    pytest.importorskip("xarray")
    with netsim.open_run(folder) as run:
        operations = run.pandas("operations")
        assert set(operations.category) >= {"forward", "backward", "tp"}
        assert list(run.pandas("links").columns)[:2] == ["name", "tier"]
        array = run.xarray("series/bytes")
        assert array.dims == ("series", "interval") and array.attrs["units"] == "B"
        assert float(array.interval[1]) == pytest.approx(500e-6)


def test_only_what_was_chosen_is_recorded(tmp_path):
    simulated(tmp_path, "telemetry.channels=[operations]")
    with netsim.open_run(tmp_path) as run:
        assert {p.split("/")[0] for p in run.channels} == {"links", "gpus", "operations"}
        with pytest.raises(InputError, match="not recorded: see telemetry"):
            run["series/bytes"]


def test_wrong_channel_names_the_right_one(folder):
    with netsim.open_run(folder) as run, pytest.raises(InputError, match="did you mean 'links/bytes'"):
        run["links/byte"]


def test_wrong_files(tmp_path):
    with pytest.raises(InputError, match="there is none"):
        netsim.open_run(tmp_path / "nothing")
    (tmp_path / "text.h5").write_text("no HDF5")
    with pytest.raises(InputError, match="truncated or of another kind"):
        netsim.open_run(tmp_path / "text.h5")
    with h5py.File(tmp_path / "other.h5", "w"):
        pass
    with pytest.raises(InputError, match="expected a file of type 'netsim-result'; got 'none'"):
        netsim.open_run(tmp_path / "other.h5")
    with result_file(tmp_path / "new.h5", {}) as writer:
        writer.file.attrs["version"] = (99, 0)
    with pytest.raises(InputError, match=r"expected version 1 of the result format; got 99\.0"):
        netsim.open_run(tmp_path / "new.h5")


def test_nothing_is_left_of_a_file_that_failed(tmp_path):
    with pytest.raises(RuntimeError), result_file(tmp_path / "result.h5", {}) as writer:
        writer.put("links/rate", [1.0])
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_hdf5_is_imported_when_a_run_is_opened():
    text = "import sys, netsim; assert 'h5py' not in sys.modules; netsim.open_run; assert 'h5py' in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True)


@st.composite
def logs(draw):
    """A network of a few bundles on a few links, and transfers among few distinct ones, so that links are often alike."""
    n_links, n_bundles = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    nodes = [draw(st.lists(st.tuples(st.integers(0, n_links - 1), st.sampled_from([1.0, 2.0])), max_size=4, unique_by=lambda n: n[0]))
             for _ in range(n_bundles)]  # fmt: skip
    loads = Loads(
        np.r_[0, np.cumsum([len(n) for n in nodes])].astype(np.int64),
        np.array([link for n in nodes for link, _ in n], np.int32),
        np.array([coef for n in nodes for _, coef in n], float),
    )
    transfer = st.tuples(st.integers(0, n_bundles - 1), st.integers(0, 3), st.integers(1, 3), st.sampled_from([1e12, 3e12]))
    rows = draw(st.lists(transfer, max_size=12))
    bundle, t0, length, pace = (np.array(column) for column in zip(*rows, strict=True)) if rows else (np.zeros(0, np.int64),) * 4
    t0, length, tag = 50 * t0.astype(np.int64), 50 * length.astype(np.int64), (bundle % 2).astype(np.int32)
    return Log(bundle.astype(np.int32), t0, t0 + length, pace.astype(float), tag), loads, n_links


@given(logs(), st.sampled_from([1, 2, 4096]))
def test_links_share_a_row_only_if_they_carried_the_same(case, at_a_time):
    log, loads, n_links = case
    interval, end = 70, 300
    bins = -(-end // interval)
    expected = np.zeros((n_links, bins))
    for bundle, t0, t1, pace, _ in zip(*log, strict=True):
        for at in range(loads.bundle_ptr[bundle], loads.bundle_ptr[bundle + 1]):
            for k in range(bins):
                inside = max(0, min(t1, (k + 1) * interval) - max(t0, k * interval))
                expected[loads.node_link[at], k] += loads.node_coef[at] * pace * inside * 1e-12
    row, rows = series.alike(log, loads, n_links)
    found = np.zeros((rows, bins))
    with patch.object(series, "BLOCK", at_a_time):
        for bin0, block in series.blocks(log, loads, row, rows, interval, end):
            found[:, bin0 : bin0 + block.shape[1]] += block
    for link in range(n_links):
        assert (found[row[link]] if row[link] >= 0 else np.zeros(bins)) == pytest.approx(expected[link])


@given(logs(), st.sampled_from([[0, 1], [1, -1], [0, 0], [-1, -1]]), st.sampled_from([0, 1 << 22]))
def test_calls_that_loaded_a_set_of_links_by_adding_up(case, key_of_tag, dense):
    log, loads, n_links = case
    row, rows = series.alike(log, loads, n_links)
    expected: dict[tuple[int, int], list[tuple[int, int, float]]] = {}
    for bundle, t0, t1, pace, tag in zip(*log, strict=True):
        for at in range(loads.bundle_ptr[bundle], loads.bundle_ptr[bundle + 1]):
            link = loads.node_link[at]
            if key_of_tag[tag] >= 0 and link == np.flatnonzero(row == row[link])[0]:
                expected.setdefault((row[link], key_of_tag[tag]), []).append((t0, t1, loads.node_coef[at] * pace * (t1 - t0) * 1e-12))
    with patch.object(loading, "DENSE", dense):
        found = loading.table(log, loads, row, rows, np.array(key_of_tag), 2)
    assert list(zip(found.set.tolist(), found.key.tolist(), strict=True)) == sorted(expected)
    for k, cell in enumerate(sorted(expected)):
        first, last, nbytes = zip(*expected[cell], strict=True)
        assert (found.first[k], found.last[k]) == (min(first), max(last)) and found.nbytes[k] == pytest.approx(sum(nbytes))


@pytest.mark.parametrize("field", ["none", *Log._fields[1:], "weight", "twice"])
def test_links_that_differ_in_one_thing_have_rows_of_their_own(field):
    """Two bundles with a link each and the same transfer, but for one field; or one with a second transfer."""
    log = Log(np.array([0, 1], np.int32), np.array([100, 100]), np.array([200, 200]), np.array([5e12, 5e12]), np.array([3, 3], np.int32))
    if field in Log._fields:
        getattr(log, field)[1] += 50
    elif field == "twice":
        log = Log(*(np.append(column, column[-1:]) for column in log))
    weight = np.array([1.0, 2.0 if field == "weight" else 1.0])
    row, rows = series.alike(log, Loads(np.arange(3), np.arange(2, dtype=np.int32), weight), 3)
    assert (row.tolist(), rows) == (([0, 0, -1], 1) if field == "none" else ([0, 1, -1], 2))


def test_size_is_bounded_and_the_file_keeps_within_it(folder):
    size = at_most(["all"], 8192, 0, 7 * 10**12, 100_000_000, False)
    assert size.series <= 1 << 28 and size.interval > 100_000_000
    with netsim.open_run(folder) as run:
        bound = at_most(["all"], run.shape("links/rate")[0], run.shape("operations/gpu")[0], run.end_ps, run.interval_ps, False)
    assert (folder / "result.h5").stat().st_size < bound.total + 100_000
