"""The fluid kernel against a short simulation that solves the whole network at every event."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.kernels import flow, maxmin
from netsim.network.flow.fluid import Fluid
from netsim.network.flow.state import state

NO_CHANGES = (np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0))


def fluid(capacity, bundles, volumes, launch=0, fill=0):
    """One footprint and one call per entry of `bundles` (a list of bundles, each a dict link -> coef)."""
    sizes = [len(b) for b in bundles]
    flat = [b for footprint in bundles for b in footprint]
    return Fluid(
        capacity=np.array(capacity, float),
        footprint_ptr=np.cumsum([0, *sizes]).astype(np.int64),
        bundle_ptr=np.cumsum([0] + [len(b) for b in flat]).astype(np.int64),
        node_link=np.array([link for b in flat for link in b], np.int32),
        node_coef=np.array([c for b in flat for c in b.values()], float),
        call_footprint=np.arange(len(bundles), dtype=np.int32),
        call_ptr=np.cumsum([0, *sizes])[:-1].astype(np.int64),
        call_launch=np.full(len(bundles), launch, np.int64),
        call_fill=np.full(len(bundles), fill, np.int64),
        volume=np.array([v for row in volumes for v in row], float),
        volume_cap=np.full(len(flat), np.inf),
    )


def play(structure, starts, changes=NO_CHANGES, shared=True):
    """Completion time of every call, started at the given times."""
    f = state(structure, changes, shared)
    ends = {}
    queue = sorted((t, call) for call, t in enumerate(starts))
    while True:
        t = flow.next_time(f)
        while queue and queue[0][0] <= t:
            start, call = queue.pop(0)
            flow.start(f, call, start)
            t = flow.next_time(f)
        if t == flow.NEVER:
            return [ends.get(call) for call in range(len(starts))], f
        flow.step(f, t)
        for footprint in f.done[: f.scalar[flow.DONE]]:
            ends[int(footprint)] = int(t)


def oracle(structure, starts):
    """Float times (ps) by solving everything at every event."""
    s = structure
    n = len(s.bundle_ptr) - 1
    owner = np.repeat(np.arange(len(s.footprint_ptr) - 1), np.diff(s.footprint_ptr))
    left, live = s.volume.copy(), np.zeros(n, bool)
    begin = np.array([starts[o] + s.call_launch[o] for o in owner], float)
    end = np.full(n, np.nan)
    t = 0.0
    while np.isnan(end).any():
        on = np.flatnonzero(live)
        pace = np.zeros(n)
        if len(on):
            ptr = np.cumsum([0] + [s.bundle_ptr[b + 1] - s.bundle_ptr[b] for b in on])
            pick = np.concatenate([np.arange(s.bundle_ptr[b], s.bundle_ptr[b + 1]) for b in on])
            got = np.zeros(len(on))
            m = len(s.capacity)
            maxmin.solve(ptr, s.node_link[pick], s.node_coef[pick], s.capacity, s.volume_cap[on], got, np.zeros(m), np.zeros(m))
            pace[on] = got
        finish = np.where(live & (pace > 0), t + left / np.where(pace > 0, pace, 1) * 1e12, np.inf)
        arrive = np.where(~live & np.isnan(end), begin, np.inf)
        nxt = min(finish.min(), arrive.min())
        left = left - pace * (nxt - t) * 1e-12
        t = nxt
        done = live & (finish <= t + 1e-6)
        end[done] = t
        live[done] = False
        live[~live & np.isnan(end) & (begin <= t)] = True
    return [end[owner == f].max() + s.call_fill[f] for f in range(len(starts))]


def test_one_flow_is_launch_plus_bytes_plus_fill():
    ends, f = play(fluid([50e9], [[{0: 1.0}]], [[2**21]], launch=3_000, fill=7_000), [1_000])
    assert ends == [1_000 + 3_000 + int(np.ceil(2**21 / 50e9 * 1e12)) + 7_000]
    assert f.moved.tolist() == [2**21]


def test_two_flows_share_then_one_speeds_up():
    # 10 B/s: both at 5 until the short one ends at 2 s (10 B each moved); then 10 B/s for the remaining 10 B
    ends, _ = play(fluid([10.0], [[{0: 1.0}], [{0: 1.0}]], [[10], [20]]), [0, 0])
    assert ends == [2 * 10**12, 3 * 10**12]


def test_ring_moves_at_the_pace_of_its_slowest_link():
    # a ring over links of 8, 4 and 2 B/s that crosses the first twice: min(8/2, 4, 2) = 2
    ends, _ = play(fluid([8.0, 4.0, 2.0], [[{0: 2.0, 1: 1.0, 2: 1.0}]], [[6]]), [0])
    assert ends == [3 * 10**12]


def test_ideal_network_never_shares():
    ends, _ = play(fluid([10.0], [[{0: 1.0}], [{0: 1.0}]], [[10], [20]]), [0, 0], shared=False)
    assert ends == [10**12, 2 * 10**12]


def test_link_that_slows_down_and_recovers():
    changes = (np.array([10**12, 2 * 10**12]), np.array([0, 0], np.int32), np.array([5.0, 10.0]))
    ends, _ = play(fluid([10.0], [[{0: 1.0}]], [[25]]), [0], changes)
    assert ends == [3 * 10**12]  # 10 + 5 + 10


def test_footprint_is_reused_by_the_next_call():
    one = fluid([10.0], [[{0: 1.0}]], [[10]])
    f = state(one, NO_CHANGES)
    flow.start(f, 0, 0)
    while flow.next_time(f) != flow.NEVER:
        flow.step(f, flow.next_time(f))
    flow.start(f, 0, 5 * 10**12)
    t = 0
    while flow.next_time(f) != flow.NEVER:
        t = flow.next_time(f)
        flow.step(f, t)
    assert t == 6 * 10**12
    assert f.moved.tolist() == [20.0]


@st.composite
def scenarios(draw):
    """Random calls of one to three bundles over random links, started at random times."""
    n_links = draw(st.integers(1, 6))
    capacity = [draw(st.sampled_from([1e9, 3e9, 10e9])) for _ in range(n_links)]
    bundles, volumes, starts = [], [], []
    for _ in range(draw(st.integers(1, 8))):
        count = draw(st.integers(1, 3))
        rows = [draw(st.dictionaries(st.integers(0, n_links - 1), st.sampled_from([0.5, 1.0, 2.0]), min_size=1)) for _ in range(count)]
        bundles.append(rows)
        volumes.append([draw(st.sampled_from([1e3, 1.5e4, 1e5])) for _ in range(count)])
        starts.append(draw(st.integers(0, 40)) * 1_000_000)
    return fluid(capacity, bundles, volumes, launch=2_000_000, fill=1_000_000), starts


@settings(max_examples=150, deadline=None)
@given(scenarios())
def test_against_oracle(scenario):
    structure, starts = scenario
    ends, f = play(structure, starts)
    assert ends == pytest.approx(oracle(structure, starts), rel=1e-9, abs=len(starts) * 20)
    assert f.moved == pytest.approx(structure.volume)
    logged = np.zeros(len(f.moved))
    rows = slice(0, f.scalar[flow.LOG])
    np.add.at(logged, f.log_bundle[rows], f.log_pace[rows] * (f.log_t1[rows] - f.log_t0[rows]) * 1e-12)
    assert logged == pytest.approx(structure.volume, rel=1e-6, abs=0.1), "the log of transfers must add up to the bytes moved"
