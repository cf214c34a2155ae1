"""When ranks share a plane: what it costs alone, what it would cost together, and how often that is looked at."""

import numpy as np
import pytest

from netsim.network.partition import LOOK_S, Look


@pytest.mark.parametrize(("hand_over_us", "shares"), [(5, True), (40, False)])
def test_planes_are_shared_where_hand_overs_cost_less_than_they_save(hand_over_us, shares):
    # 10,000 windows of 100 us on one rank: 1 s; on four 0.25 s, and 0.05 or 0.4 s of hand-overs besides, of which 0.5 s are the limit
    look = Look(4, 1e-6 * hand_over_us * 1.5)
    assert look.pays(np.array([1.0, 0, 0, 0]), 10_000) is shares


def test_what_was_looked_at_before_counts_no_more():
    look = Look(4, 50e-6)
    assert not look.pays(np.array([1.0, 0, 0, 0]), 20_000)  # 50 us a window: no gain
    assert not look.pays(np.array([1.0 + LOOK_S / 2, 0, 0, 0]), 20_001)  # not yet
    assert look.pays(np.array([1.5, 0, 0, 0]), 20_500)  # 1 ms a window


def test_planes_that_are_spread_over_ranks_already_gain_little():
    assert not Look(4, 1e-9).pays(np.array([0.9, 1.0, 0.4, 0.2]), 1)


def test_two_ranks_never_share():
    assert not Look(2, 0.0).pays(np.array([1000.0, 0.0]), 1)
