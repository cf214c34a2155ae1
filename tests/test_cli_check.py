"""`check` tells configuration, sizes and memory, and refuses with file and line what a layout, a fabric or a GPU cannot do."""

import json
import re
from pathlib import Path

import pytest
import yaml

from netsim.cli.main import main
from netsim.config import from_data, load
from netsim.study.points import points, read
from tests.conftest import Cli

BASE = Path(__file__).parent / "golden" / "base.yaml"
RUNS = Path(__file__).resolve().parent.parent / "runs"


PICTURE = RUNS.parent / "docs" / "telemetry" / "page.png"


@pytest.mark.parametrize("page", ["README.md", "docs/studies.md"])
def test_files_of_the_pages_work_as_they_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path, page: str) -> None:
    root = RUNS.parent
    (text,) = re.findall(r"^```yaml\n(.*?)^```", (root / page).read_text(), re.MULTILINE | re.DOTALL)
    file = tmp_path / "file.yaml"
    file.write_text(text.replace("base: ../", f"base: {RUNS}/"))
    if page == "README.md":
        assert main(["check", str(file)]) == 0, capsys.readouterr().err
    else:
        assert [point.problem for point in points(read(file), file)] == [""] * 24


def test_sizes_and_configuration(netsim: Cli) -> None:
    shown = netsim("check", BASE, "--json", "--set", "simulate.fold=off")
    assert shown.returncode == 0, shown.stderr
    text, last = shown.stdout.rstrip("\n").rsplit("\n", 1)
    facts = json.loads(last)
    assert from_data(facts["config"]) == load(BASE, ["simulate.fold=off"])
    assert from_data(yaml.safe_load(text.split("\n\n")[0])) == load(BASE, ["simulate.fold=off"])
    sizes = facts["sizes"]
    assert (sizes["nodes"], sizes["GPUs"], sizes["NICs"], sizes["planes"]) == (2, 16, 16, 8)
    assert sizes["scale_up links"] == sizes["host links"] == sizes["nic links"] == 2 * 16
    assert sizes["operations per iteration"] > 16 * 12
    (memory,) = facts["memory"]
    assert memory["weights"] + memory["gradients"] + memory["optimizer"] < memory["peak"] < 80 * 2**30
    assert facts["problems"] == []


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["workload.parallel.pp=3"], f"{BASE}:23:3: workload.parallel: expected tp x pp x cp = 12 to divide the 16 GPUs"),
        (["workload.parallel.dp=3"], "--set workload.parallel.dp: expected tp x pp x cp x dp = 16 GPUs, so 4; got 3"),
        (["workload.global_batch=33"], "--set workload.global_batch: expected a multiple of micro_batch x dp"),
        (["workload.model.layers=11", "workload.parallel.pp=2"], "layers"),
        (["topology.builder=rail_optimized"], "--set topology.builder: expected one of"),
        (["topology.nodes=100000", "topology.segment=64"], "topology."),
        (["compute.device.memory=256 MiB"], "--set compute.device.memory: expected at least"),
        (["compute.device.tables=[absent]"], "absent"),
        (["compute.step_times={stage_forward: [1 ms, 1 ms], stage_backward: [1 ms, 1 ms]}"], "expected 1 entries (virtual stages); got 2"),
        (["workload.parallel.etp=1000000007"], "--set workload.parallel.etp: expected etp x ep x pp of at most the 16 GPUs"),
        (["workload.global_batch=400000000"], "--set workload.global_batch: expected at most 65,536 microbatches"),
        (["network.engine=packet", "network.pfc.xoff=7"], "network.pfc: expected xoff of at least a packet"),
        (["network.engine=packet", "network.pfc.headroom=1 GiB"], "--set network.pfc.headroom: expected to leave a packet (4160 B) of"),
        (["network.engine=packet", "network.congestion_control.name=dqcn"], "expected one of dcqcn, hpcc, none, swift; got 'dqcn'"),
        (
            ["topology.builder=dual_plane", "topology.planes=1000000007"],
            "--set topology.planes: expected a whole number between 1 and 65536",
        ),
        (["topology.builder=custom", 'topology.edges="a\\0"'], "topology.edges: expected a CSV file of cables; got 'a\\x00'"),
        ([f"nccl.NCCL_GRAPH_FILE={PICTURE}"], "expected NCCL's graphs in XML or JSON; got 'utf-8' codec"),
        (["workload.pipeline.layout=Et*99999999999|L"], "--set workload.pipeline.layout: expected at most 100,000 parts and layers"),
        (["workload.pipeline.layout=(t*9999)*9999"], "--set workload.pipeline.layout: expected at most 100,000 parts and layers"),
        (["compute.device.peak.bf16=0 TFLOPS"], "--set compute.device.peak.bf16: expected a compute rate above 0; got 0"),
        (["nccl.NCCL_GRAPH_FILE=absent.xml"], "absent.xml: nccl.NCCL_GRAPH_FILE: expected a file that can be read"),
        (["compute=null", "workload={kind: traffic, pattern: incast, fan_in: 4}"], "expected a way from nic n0.3 to nic n0.0"),
        (["compute=null", "workload={kind: traffic, pattern: shift, shift: 16}"], "--set workload: expected a shift that leaves no"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_cannot_be(capsys: pytest.CaptureFixture[str], settings: list[str], line: str) -> None:
    assert main(["check", str(BASE), *(word for setting in settings for word in ("--set", setting))]) == 2
    assert line in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["compute.device.arch=rubin", "workload.parallel.hierarchical_sizes=[1, 2]"])
def test_what_can_be(capsys: pytest.CaptureFixture[str], setting: str) -> None:
    assert main(["check", str(BASE), "--set", setting]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("file", sorted(RUNS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_run_file_of_the_project_is_sound(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert main(["check", str(file)]) == 0, capsys.readouterr().err


def test_a_block_that_is_no_python_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("def forward(:\n")
    assert main(["check", str(BASE), "--set", f"workload.model.blocks=[{tmp_path / 'wrong.py'}]"]) == 2
    assert "wrong.py: expected a Python file; got a mistake: invalid syntax" in capsys.readouterr().err
