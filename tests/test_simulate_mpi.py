"""The same bytes on any number of ranks, and jobs that end when a rank does."""

import json
import signal
import time

import pytest

from tests.conftest import ROOT, start

pytestmark = pytest.mark.mpi

SMALL = ("topology.nodes=4", "workload.model.layers=4", "workload.global_batch=8")
LAYOUT = ("workload.parallel.tp=4", "workload.parallel.pp=2", "workload.parallel.dp=4")
TRAINING = ("runs/h100_16.yaml", *SMALL, *LAYOUT)
CASES = {
    "flow": TRAINING,
    "packet": (*TRAINING, "network.engine=packet"),
    "packet, kernel times vary": (*TRAINING, "network.engine=packet", "simulate.jitter=0.05"),
    "packet, links fail": (
        *TRAINING, "network.engine=packet", "topology.faults=[{link: nic n1.2 -> leaf r2.s0, rate: 50 Gbps}]",
    ),
    "packet, across rails": (
        *TRAINING, "network.engine=packet", "topology.use=dgx_h100_superpod", "nccl.NCCL_CROSS_NIC=1", "nccl.NCCL_PXN_DISABLE=1",
    ),
    "traffic": ("runs/permutation_1024.yaml", "workload.size=256 KiB"),
}  # fmt: skip
VARYING = ("wall_s", "telemetry_s", "ranks", "parallel")


def simulate(case, ranks, folder):
    """Run a case on so many ranks; returns (result file's bytes, summary less what varies)."""
    file, *settings = CASES[case]
    words = ["-m", "netsim", "run", str(ROOT / file), "--quiet", "--out", str(folder)]
    for setting in settings:
        words += ["--set", setting]
    process = start(ranks, words, ROOT, {})
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, out + err
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["ranks"] == ranks
    return (folder / "result.h5").read_bytes(), {k: v for k, v in summary.items() if k not in VARYING}


@pytest.mark.parametrize("case", CASES)
def test_same_bytes_on_any_number_of_ranks(case, tmp_path):
    one = simulate(case, 1, tmp_path / "1")
    for ranks in (2, 3, 8) if case == "packet" else (3,):
        many = simulate(case, ranks, tmp_path / str(ranks))
        assert many[1] == one[1]
        assert many[0] == one[0], f"result.h5 differs on {ranks} ranks"


def test_planes_are_shared_out(tmp_path):
    simulate("packet", 4, tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["parallel"]["exchanges"] > 0


def test_killed_rank_ends_the_job(tmp_path):
    words = ["-m", "netsim", "run", str(ROOT / "runs/h100_1024.yaml"), "--quiet", "--out", str(tmp_path), "--set", "network.engine=packet"]
    process = start(2, words, ROOT, {})
    time.sleep(8)
    children = [int(p) for p in _descendants(process.pid) if _runs_netsim(p)]
    assert children, "no rank is running"
    import os

    os.kill(children[-1], signal.SIGKILL)
    began = time.monotonic()
    process.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert process.returncode != 0
    assert not (tmp_path / "result.h5").exists()


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
