"""Max-min filling: systems solved by hand, and the laws that characterise the optimum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.kernels.maxmin import solve


def paces(links_of, capacity, cap=None, coef=None):
    """Solve a system given as the list of links of every bundle."""
    ptr = np.cumsum([0] + [len(links) for links in links_of])
    idx = np.array([link for links in links_of for link in links], np.int32)
    coefs = np.ones(len(idx)) if coef is None else np.array([c for row in coef for c in row], float)
    n, m = len(links_of), len(capacity)
    caps = np.full(n, np.inf) if cap is None else np.array(cap, float)
    pace = np.zeros(n)
    solve(ptr, idx, coefs, np.array(capacity, float), caps, pace, np.zeros(m), np.zeros(m))
    return pace


def test_parking_lot():
    # one long flow over three links, one short flow on each: the long one gets half of the first link to saturate
    assert paces([[0, 1, 2], [0], [1], [2]], [10, 10, 10]).tolist() == [5, 5, 5, 5]


def test_two_levels():
    # link 0 (10) holds flows 0, 1, 2; link 1 (20) holds flows 2, 3: 10/3 each, then flow 3 takes what is left
    assert paces([[0], [0], [0, 1], [1]], [10, 20]) == pytest.approx([10 / 3, 10 / 3, 10 / 3, 50 / 3])


def test_cap_frees_capacity():
    assert paces([[0], [0]], [10], cap=[2, np.inf]).tolist() == [2, 8]


def test_weights_count_connections():
    # a ring that crosses link 0 three times against a single flow: equal pace per connection
    assert paces([[0], [0]], [12], coef=[[3], [1]]).tolist() == [3, 3]


def test_dead_link_stops_only_its_own():
    assert paces([[0], [1], [0, 1]], [0, 6]).tolist() == [0, 6, 0]


def test_no_limit_is_infinite():
    assert np.isinf(paces([[]], [1])).all()


@st.composite
def systems(draw):
    """Random bundles over random links, with weights and some caps."""
    n_links = draw(st.integers(1, 8))
    n = draw(st.integers(1, 12))
    links = [draw(st.lists(st.integers(0, n_links - 1), min_size=1, max_size=n_links, unique=True)) for _ in range(n)]
    coef = [[draw(st.sampled_from([0.25, 1.0, 2.0, 7.0])) for _ in row] for row in links]
    capacity = [draw(st.floats(0.5, 100)) for _ in range(n_links)]
    cap = [draw(st.sampled_from([np.inf, 0.3, 5.0])) for _ in range(n)]
    return links, coef, capacity, cap


@settings(max_examples=300, deadline=None)
@given(systems())
def test_optimality(system):
    links, coef, capacity, cap = system
    pace = paces(links, capacity, cap, coef)
    used = np.zeros(len(capacity))
    for row, weights, x in zip(links, coef, pace, strict=True):
        for link, a in zip(row, weights, strict=True):
            used[link] += a * x
    assert (used <= np.array(capacity) * (1 + 1e-9)).all(), "a link above its capacity"
    for b, row in enumerate(links):
        at_cap = pace[b] >= cap[b] * (1 - 1e-9)
        bottleneck = any(
            used[link] >= capacity[link] * (1 - 1e-9)
            and pace[b] >= max(pace[o] for o, other in enumerate(links) if link in other) * (1 - 1e-9)
            for link in row
        )
        assert at_cap or bottleneck, f"bundle {b} could go faster"
