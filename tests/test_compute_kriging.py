"""The kriging kernel against its definition solved by NumPy, and laws of the estimate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compute.kriging import DIMS, NEIGHBOURS, NUGGET, estimate


def oracle(at, x, y):
    """The bordered system of the module's docstring, for one point."""
    near = np.argsort(((x - at) ** 2).sum(axis=1), kind="stable")[:NEIGHBOURS]
    n = len(near)
    gaps = np.sqrt(((x[near][:, None] - x[near][None]) ** 2).sum(axis=2))
    system = np.ones((n + 1, n + 1))
    system[:n, :n] = np.where(np.eye(n, dtype=bool), 0.0, NUGGET + gaps)
    system[n, n] = 0.0
    right = np.append(NUGGET + np.sqrt(((x[near] - at) ** 2).sum(axis=1)), 1.0)
    weight = np.linalg.solve(system, right)
    return weight[:n] @ y[near], max(weight @ right, NUGGET)


def points(seed, count):
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 3, (count, DIMS)), rng.normal(size=count)


@given(seed=st.integers(0, 10**6), count=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_equals_the_definition(seed, count):
    x, y = points(seed, count)
    at = np.random.default_rng(seed + 1).uniform(-1, 4, (3, DIMS))
    mean, variance, hit = estimate(at, np.zeros(3, np.int64), np.array([0, count]), x, y)
    expected = [oracle(row, x, y) for row in at]
    assert mean == pytest.approx([e[0] for e in expected], abs=1e-8)
    assert variance == pytest.approx([e[1] for e in expected], rel=1e-7)
    assert list(hit) == [-1, -1, -1]


@given(seed=st.integers(0, 10**6), shift=st.floats(-5, 5))
@settings(max_examples=30, deadline=None)
def test_a_constant_added_to_all_rows_is_added_to_the_estimate(seed, shift):
    x, y = points(seed, 20)
    at, family, ptr = np.full((1, DIMS), 1.3), np.zeros(1, np.int64), np.array([0, 20])
    assert estimate(at, family, ptr, x, y + shift)[0] == pytest.approx(estimate(at, family, ptr, x, y)[0] + shift, abs=1e-9)


def test_measured_points_are_returned_as_they_are_and_skipped_on_request():
    x, y = points(3, 25)
    family, ptr = np.zeros(25, np.int64), np.array([0, 25])
    mean, variance, hit = estimate(x, family, ptr, x, y)
    assert list(mean) == list(y) and not variance.any() and list(hit) == list(range(25))
    left_out = estimate(x, family, ptr, x, y, np.arange(25))
    assert (left_out[2] == -1).all() and (left_out[1] >= NUGGET).all()
    assert left_out[0][4] == pytest.approx(oracle(x[4], np.delete(x, 4, 0), np.delete(y, 4))[0])


def test_families_do_not_see_each_other_and_none_gives_nothing():
    x, y = points(5, 12)
    at = np.full((3, DIMS), 1.0)
    mean, _, _ = estimate(at, np.array([0, 1, -1]), np.array([0, 5, 12]), x, y)
    assert mean[0] == pytest.approx(oracle(at[0], x[:5], y[:5])[0])
    assert mean[1] == pytest.approx(oracle(at[0], x[5:], y[5:])[0])
    assert mean[2] == 0.0


def test_uncertainty_grows_away_from_the_data():
    x, y = points(7, 30)
    at = np.array([[1.5] * DIMS, [6.0] * DIMS, [12.0] * DIMS])
    variance = estimate(at, np.zeros(3, np.int64), np.array([0, 30]), x, y)[1]
    assert variance[0] < variance[1] < variance[2]
