"""Patterns of plain traffic, and the ready runs that use them."""

from pathlib import Path

import numpy as np
import pytest

from netsim.config.traffic import Row, Traffic
from netsim.errors import InputError
from netsim.network.traffic import derangement, expand
from tests.packet_cases import MIB, PLAIN, ends, tree

RUNS = Path(__file__).parents[1] / "runs"


def test_permutation_sends_and_receives_once_each_and_never_to_itself():
    for n in (2, 3, 100):
        flows = expand(Traffic("traffic", "permutation"), n, 7)
        assert sorted(flows.dst.tolist()) == flows.src.tolist() == list(range(n))
        assert (flows.src != flows.dst).all()
    assert derangement(50, 1).tolist() != derangement(50, 2).tolist()


def test_all_to_all_is_every_ordered_pair_once():
    flows = expand(Traffic("traffic", "all_to_all", hosts=5), 9)
    assert len({*zip(flows.src.tolist(), flows.dst.tolist(), strict=True)}) == 20
    assert (flows.src != flows.dst).all() and flows.src.max() == 4


def test_shift_and_spacing():
    flows = expand(Traffic("traffic", "shift", shift=3, spacing=10), 8)
    assert ((flows.src + 3) % 8 == flows.dst).all()
    assert flows.start_ps.tolist() == [10 * i for i in range(8)]
    with pytest.raises(InputError, match=r"workload\.shift"):
        expand(Traffic("traffic", "shift", shift=8), 8)


def test_matrix_is_taken_as_it_is():
    flows = expand(Traffic("traffic", "matrix", flows=(Row(0, 3, 5, 7), Row(2, 1, 6))), 4)
    assert [column.tolist() for column in flows] == [[0, 2], [3, 1], [5, 6], [7, 0]]
    with pytest.raises(InputError, match=r"workload\.flows\.0\.dst: expected a NIC below 3; got 3"):
        expand(Traffic("traffic", "matrix", flows=(Row(0, 3, 5, 7),)), 3)


def test_incast_of_eight_is_the_reference_case():
    flows = expand(Traffic("traffic", "incast", MIB, fan_in=8), 128)
    assert ends(tree(), PLAIN, flows).max() == 178_050_880
    full = expand(Traffic("traffic", "incast", fan_in=127, target=5), 128)
    assert sorted(full.src.tolist()) == [h for h in range(128) if h != 5]
    with pytest.raises(InputError, match=r"workload\.fan_in"):
        expand(Traffic("traffic", "incast", fan_in=128), 128)


@pytest.mark.parametrize("name", ["permutation_1024", "incast_64"])
def test_ready_runs_load(name):
    from netsim.config import load

    run = load(RUNS / f"{name}.yaml")
    assert run.network.engine == "packet"
    assert isinstance(run.workload, Traffic)
    assert np.all(expand(run.workload, run.topology.nodes).nbytes == run.workload.size)
