"""The same bytes on any number of ranks, and jobs that end when a rank does."""

import json
import os
import signal

import pytest

import netsim
from tests.conftest import PATIENCE_S, ROOT, filled, start, until

pytestmark = pytest.mark.mpi

SMALL = ("topology.nodes=4", "workload.global_batch=4", "workload.parallel.tp=4", "workload.parallel.pp=2", "workload.parallel.dp=4")
MODEL = tuple(f"workload.model.{shape}" for shape in ("layers=2", "hidden=128", "heads=8", "ffn=256", "vocab=512"))
CUT = ("simulate.partition=cut", "simulate.nics_per_rank=1")
TRAINING = ("runs/h100_16.yaml", *SMALL, *MODEL, "workload.sequence=128", "network.engine=packet", *CUT)
FAULT = "topology.faults=[{link: nic n1.2 -> leaf r2.s0, rate: 50 Gbps}]"
GONE = "topology.faults=[{link: leaf r2.s0 -> spine 1, from: 200 us, until: 900 us}]"
ACROSS = ("topology.use=dgx_h100_superpod", "topology.segment=1", "nccl.NCCL_CROSS_NIC=1", "nccl.NCCL_PXN_DISABLE=1")
ONE_STAGE = ("workload.parallel.pp=1", "workload.parallel.dp=8", "workload.global_batch=8")  # few horizons
CASES = {
    "flow": ((*TRAINING, "network.engine=flow"), (3,)),
    "packet": (TRAINING, (2, 8)),
    "kernel times vary, a slow link": ((*TRAINING, "simulate.jitter=0.05", FAULT), (3,)),
    "rails share spines, links fail and return": ((*TRAINING, "topology.use=dgx_h100_superpod", "topology.segment=1", GONE), (3, 8)),
    "rails are crossed": ((*TRAINING, *ACROSS, *ONE_STAGE, "simulate.jitter=0.05"), (2, 32)),
    "one switch for all rails": ((*TRAINING, "topology.use=single_tor", "topology.segment=1"), (3,)),
    "packets are sprayed, lost and sent again": (
        (*TRAINING, "network.flow_control=none", "network.spreading=spray", "network.recovery.mode=selective", "topology.segment=2"), (3,)
    ),
    "traffic": (("runs/permutation_1024.yaml", "topology.nodes=128", "workload.size=256 KiB", *CUT), (2, 32)),
}  # fmt: skip
"""Name -> (run, ranks beside 1 on which the results must be the same)."""
WHOLE_PLANES = ("packet", "kernel times vary, a slow link")
VARYING = ("wall_s", "telemetry_s", "ranks", "parallel")


def simulate(settings, ranks, folder):
    """Run on so many ranks; returns the result file's bytes and the summary."""
    file, *settings = settings
    words = ["-m", "netsim", "run", str(ROOT / file), "--quiet", "--out", str(folder)]
    for setting in settings:
        words += ["--set", setting]
    process = start(ranks, words, ROOT, {})
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out + err
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["ranks"] == ranks
    return (folder / "result.h5").read_bytes(), summary


@pytest.mark.parametrize("case", CASES)
def test_same_bytes_on_any_number_of_ranks(case, tmp_path):
    settings, numbers = CASES[case]
    one, alone = simulate(settings, 1, tmp_path / "1")
    for ranks in numbers:
        many, summary = simulate(settings, ranks, tmp_path / str(ranks))
        assert {k: v for k, v in summary.items() if k not in VARYING} == {k: v for k, v in alone.items() if k not in VARYING}
        assert many == one, f"result.h5 differs on {ranks} ranks"
        if "parallel" in summary:
            together = summary["parallel"]
            assert together["exchanges"] > 0
            assert together["cut_bytes"] == sum(together["cut_bytes_of_pairs"].values())
            assert (together["cut_bytes"] > 0) == (case not in WHOLE_PLANES), together


def test_bytes_that_cross_are_those_on_links_between_the_parts(tmp_path):
    settings, _ = CASES["traffic"]
    _, summary = simulate(settings, 2, tmp_path)
    pairs = summary["parallel"]["cut_bytes_of_pairs"]
    assert set(pairs) == {"0 > 1", "1 > 0"}
    spread = 128 * 256 * 1024  # every host sends once; about half of them to the other half
    assert all(0.2 * spread < nbytes < 0.8 * spread for nbytes in pairs.values())


def test_killed_rank_ends_the_job_and_leaves_a_spool_to_read(tmp_path):
    simulate(TRAINING, 1, tmp_path / "warm")
    settings = [w for s in (*TRAINING[1:], "simulate.iterations=100000", "telemetry.interval=1 ms") for w in ("--set", s)]
    process = start(2, ["-m", "netsim", "run", str(ROOT / TRAINING[0]), "--quiet", "--out", str(tmp_path / "out"), *settings], ROOT, {})
    spool = tmp_path / "out" / "spool"
    until(process, filled(spool / "frame.json", spool / "samples-bytes-1.bin"))
    ranks = [pid for pid in _descendants(process.pid) if _runs_netsim(pid)]
    assert len(ranks) == 2
    os.kill(int(ranks[-1]), signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert not (tmp_path / "out" / "result.h5").exists()
    with netsim.open_run(tmp_path / "out") as run:
        assert not run.complete and run["links/bytes"].sum() > 0


def _descendants(pid):
    """Process numbers of all children, deep."""
    from pathlib import Path

    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [child, *_descendants(child)]
    return found


def _runs_netsim(pid):
    from pathlib import Path

    return b"netsim" in Path(f"/proc/{pid}/cmdline").read_bytes() and b"python" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
