"""Bytes on every link from telemetry against what the collectives must send, computed on a path of its own.

The expectation uses only how often each stage makes which call on how many bytes (`workload.tally`) and NCCL's byte counts of a ring:
each of R ranks sends n (R - 1) / R of an all-gather's output or a reduce-scatter's input of n bytes, twice that of an all-reduce; a message
is its bytes; a broadcast passes all but one of the ranks. In runs/h100_16.yaml tensor- and data-parallel groups lie inside a node and
pipeline neighbours on the same rail of two nodes. A few all-reduces of 4 bytes go everywhere.
"""

import numpy as np
import pytest

import netsim
from netsim.config import load
from netsim.simulate.model import build
from tests.telemetry_runs import RING, SMALL, simulated
from workload.api import tally

TINY = 2000
"""Bytes of the all-reduces over many GPUs."""
RANKS = {"tp": 4, "dp": 2}


@pytest.fixture(scope="module", params=["auto", "off"])
def case(request, tmp_path_factory):
    """The opened run and the tallies of its stages, folded and GPU by GPU."""
    out = tmp_path_factory.mktemp("bytes")
    settings = (*RING, f"simulate.fold={request.param}", "telemetry.operations=all")
    simulated(out, *settings)
    work = build(load("runs/h100_16.yaml", (*SMALL, *settings))).work
    with netsim.open_run(out) as run:
        yield run, [tally(work, stage) for stage in (0, 1)]


def ring(counts):
    """(bytes that every GPU of a stage sends inside its node, bytes of its broadcasts)."""
    each = broadcast = 0.0
    for (category, name), count in counts.items():
        operation, ranks = name.split(".")[1], RANKS.get(category, 1)
        if category == "pp" or "grad_norm" in name:
            continue
        share = count.nbytes * (ranks - 1) / ranks
        if operation == "broadcast":
            broadcast += count.nbytes
        else:
            each += 2 * share if operation == "all_reduce" else share
    return each, broadcast


def test_scale_up_links(case):
    run, stages = case
    nbytes, program = run["links/bytes"], run["gpus/program"]
    for stage, counts in enumerate(stages):
        each, broadcast = ring(counts)
        gpus = np.flatnonzero(program == stage)
        for way in (0, len(program)):  # link g leaves GPU g, link n + g reaches it
            carried = nbytes[way + gpus]
            assert (carried > each - 1).all() and (carried < each + broadcast + TINY).all()
            assert carried.sum() == pytest.approx(len(gpus) * each + len(gpus) * 3 / 4 * broadcast, abs=len(gpus) * TINY)


def test_nic_links(case):
    run, stages = case
    nbytes, name = run["links/bytes"], run["links/name"]
    for stage, counts in enumerate(stages):
        sent = sum(c.nbytes for (_, call), c in counts.items() if ".send." in call)
        received = sum(c.nbytes for (_, call), c in counts.items() if ".recv." in call)
        assert sent > 0 and received > 0
        up = np.array([n.startswith(f"nic n{stage}.") and "-> leaf" in n for n in name])
        down = np.array([n.startswith("leaf") and f"-> nic n{stage}." in n for n in name])
        assert up.sum() == down.sum() == 8
        assert nbytes[up] == pytest.approx(np.full(8, sent), abs=TINY)
        assert nbytes[down] == pytest.approx(np.full(8, received), abs=TINY)


def test_flows_send_what_links_carry(case):
    run, _ = case
    nbytes, tier, name = run["links/bytes"], run["links/tier"], run["links/name"]
    n = len(run["gpus/program"])
    leaves = np.array([t == "nic" and x.startswith("nic") for t, x in zip(tier, name, strict=True)])
    assert (run["flows/bytes"] * run["flows/alike"]).sum() == pytest.approx(nbytes[:n].sum() + nbytes[leaves].sum(), rel=1e-9)


def test_series_of_a_category_fit_its_operations(case):
    """No link carries pipeline traffic outside the pipeline's calls."""
    run, _ = case
    names = np.array([n.split(".")[0] for n in run["operations/names"]])
    calls = names[run["flows/call"]] == "pp"
    start, end = run["flows/start"][calls], run["flows/end"][calls]
    link = int(np.flatnonzero([n.startswith("nic n0.0 ->") for n in run["links/name"]])[0])
    busy = np.flatnonzero(run.series(link) > TINY)
    width = run.interval_ps
    for k in busy:
        assert ((start < (k + 1) * width) & (end > k * width)).any()
