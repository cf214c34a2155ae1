"""PyTorch as the machine: every kind of kernel that a run has, timing on a GPU's events, compilers, and a table from file to file."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: make test-torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

from compute import tables  # noqa: E402
from compute.kernels import Kernel  # noqa: E402
from compute.machine import WARM_S, Torch  # noqa: E402
from compute.operations import COMPILED, KINDS, elementwise  # noqa: E402
from compute.ways import LeftOut, Way  # noqa: E402
from netsim.cli.main import main  # noqa: E402
from tests.test_compute_measure import TINY  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
CHOICES = [
    ("gpt3_5b", ["workload.kernels.attention=unfused", "workload.precision.activations=fp16"]),
    ("gpt_oss_20b", ["workload.precision.gemm=fp8_blockwise", "workload.experts.dispatcher=alltoall"]),
    ("gpt_oss_20b", ["workload.precision.gemm=mxfp8", "workload.experts.dispatcher=flex"]),
    ("mixtral_8x7b", ["workload.precision.gemm=nvfp4", "workload.kernels.fused_experts=true"]),
    ("deepseek_v2", ["workload.precision.gemm=fp8", "workload.kernels.cross_entropy=te"]),
]
MODELS = sorted(path.stem for path in (ROOT / "workload/models").glob("*.yaml"))


def kernels_of(file, settings):
    from compute.api import load_device
    from netsim.config import load
    from netsim.config.workload import Training
    from workload.api import kernels

    run = load(str(ROOT / file), settings)
    gpus = run.topology.nodes * run.topology.gpus_per_node
    return kernels(run.workload, gpus, run.topology.gpus_per_node, load_device(run.compute)) if isinstance(run.workload, Training) else []


def of(model, cp=1):
    """Settings of a ready model on whatever GPUs there are."""
    return [f"workload.model={{use: {model}}}", f"workload.parallel={{tp: 1, pp: 1, cp: {cp}}}", "workload.sequence=1024"]


def test_every_kind_of_every_ready_model_and_run_has_an_operation():
    found = {kernel for path in sorted((ROOT / "runs").glob("*.yaml")) for kernel in kernels_of(f"runs/{path.name}", [])}
    for model in MODELS:
        found |= set(kernels_of("runs/h100_16.yaml", of(model)))
    for model, how in CHOICES:
        found |= set(kernels_of("runs/h100_16.yaml", [*of(model, cp=2), *how]))
    kinds = {kernel.kind for kernel in found}
    assert len(found) > 1000 and kinds <= KINDS.keys() and KINDS.keys() - kinds <= {"bias", "copy"}
    assert set(COMPILED) < KINDS.keys()


def test_kernels_are_those_of_the_gpu_that_runs_them():
    """Eight-bit inputs that were gathered are transposed before Blackwell, with one launch queue or more."""
    found = {}
    for card in ("h100", "gb200"):
        for queues in (1, 8):
            settings = ["workload.precision.gemm=fp8", f"workload.kernels.connections={queues}", f"compute.device={{use: {card}}}"]
            found[card, queues] = set(kernels_of("runs/h100_16.yaml", settings))
    assert found["h100", 1] == found["h100", 8] and found["gb200", 1] == found["gb200", 8] < found["h100", 1]
    assert {(k.kind, k.direction, k.dtype) for k in found["h100", 1] - found["gb200", 1]} == {("cast", "bwd", "fp8")}


def test_a_kind_that_nobody_knows_is_left_out():
    with pytest.raises(LeftOut, match="no operation of this kind"):
        Torch("cpu").prepare(Kernel("teleport", nbytes=8))


def test_what_does_not_fit_is_left_out(monkeypatch):
    machine = Torch("cpu")
    monkeypatch.setattr(machine, "random", lambda *shape, **how: (_ for _ in ()).throw(torch.cuda.OutOfMemoryError("full")))
    with pytest.raises(LeftOut, match="does not fit into memory"):
        machine.prepare(Kernel("norm", nbytes=10**6))


def test_without_a_gpu_the_command_offers_the_cpu(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert main(["device", "measure", str(ROOT / "runs/h100_16.yaml")]) == 2
    assert capsys.readouterr().err == (
        f"device measure: expected a CUDA device (or --on cpu, to try it out); got none (torch {torch.__version__})\n"
    )


def test_a_fused_kind_is_compiled_and_computes_what_its_function_says():
    machine = Torch("cpu")
    for nbytes in (60_000, 240_000):  # a second shape is compiled for its sizes, too
        way = machine.prepare(Kernel("swiglu", "bwd", nbytes=nbytes))
        assert way.how == "torch.compile"
        wanted = elementwise.swiglu_back(*(x.float() for x in way.inputs))
        assert torch.allclose(way.call(*way.inputs).float(), wanted, rtol=2**-6, atol=2**-6)


def test_without_a_compiler_the_row_says_so(monkeypatch):
    machine = Torch("cpu")
    monkeypatch.setattr(machine, "compiled", lambda function: lambda *inputs: (_ for _ in ()).throw(RuntimeError("no C++ compiler")))
    assert machine.prepare(Kernel("rope", nbytes=60_000)).how == "PyTorch operation by operation"


def test_warm_up_takes_its_time():
    calls = []
    assert len(Torch("cpu").seconds(Way("", lambda: calls.append(0), ()), 7)) == 7
    assert len(calls) > 7 + 100 * WARM_S


def test_a_gpu_is_timed_cold_behind_a_sleep_and_read_once_at_the_end(monkeypatch):
    """The order of what a GPU is given, run by run, by a stand-in for torch.cuda; times are those between its events."""
    log, clock = [], [0]

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("event")
            clock[0] += 3
            self.at_ms = clock[0]

        def elapsed_time(self, end):
            assert log[-1] == "wait"
            return end.at_ms - self.at_ms

    machine = Torch("cpu")
    machine._flush = SimpleNamespace(zero_=lambda: log.append("flush"))
    cuda = SimpleNamespace(Event=Event, _sleep=lambda cycles: log.append(cycles), synchronize=lambda: log.append("wait"))
    machine.torch = SimpleNamespace(cuda=cuda)
    way = Way("", lambda x: log.append(x), ("kernel",))
    assert machine._between_events(way, 2, host_s=1e-5) == pytest.approx([3e-3, 3e-3])
    assert log == ["flush", 40_000, "event", "kernel", "event"] * 2 + ["wait"]


def test_the_state_of_a_gpu_is_read_from_nvidia_smi(tmp_path, monkeypatch):
    machine = Torch("cpu")
    assert machine.state() == ""
    machine.device = "cuda"
    bus = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0)
    machine.torch = SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda index: bus))
    script = tmp_path / "nvidia-smi"
    script.write_text('#!/bin/sh\ncase "$*" in *--id=00000000:1b:00.0*) echo "1755, 1980, 700.00";; *) exit 6;; esac\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert machine.state() == "SM clock 1755 of 1980 MHz, power limit 700.00 W"
    script.write_text("#!/bin/sh\nexit 9\n")
    assert machine.state() == ""


@pytest.fixture
def uncompiled(monkeypatch):
    """Compilers take longer than all the rest of a tiny run."""
    monkeypatch.setattr(Torch, "compiled", lambda machine, function: function)


def test_a_table_measured_on_a_cpu_answers_for_its_run(tmp_path, monkeypatch, capsys, uncompiled):
    import json

    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    assert main(["device", "measure", "tiny.yaml", "--on", "cpu", "--repeats", "2", "--out", "mine.csv", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "left out" not in out and "on a CPU, no GPU" in out
    rows = tables.read("mine.csv")
    assert {row.kernel for row in rows} == set(kernels_of(tmp_path / "tiny.yaml", []))
    assert all(row.source.startswith(f"measured on a CPU, no GPU (torch {torch.__version__}); ") for row in rows)

    Path("mine.yaml").write_text(TINY.replace("use: h100}", "use: h100, tables: [h100.csv, mine.csv]}"))
    assert main(["run", "mine.yaml", "--out", "result", "--quiet", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["kernel_times"]
    assert (found["exact"], found["missed"]) == (1.0, [])


def test_a_mixture_in_8_bits_is_measured_but_for_what_is_named(tmp_path, monkeypatch, capsys, uncompiled):
    monkeypatch.chdir(tmp_path)
    mixture = TINY.replace("vocab: 256}", "vocab: 256, experts: 4, top_k: 2, expert_ffn: 32}").replace(
        "  sequence: 64", "  precision: {gemm: fp8}\n  kernels: {cross_entropy: te}\n  experts: {dispatcher: alltoall}\n  sequence: 64"
    )
    Path("mixture.yaml").write_text(mixture)
    assert main(["device", "measure", "mixture.yaml", "--on", "cpu", "--repeats", "1", "--quiet"]) == 0
    left_out = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out")]
    assert [line.split(":")[1].split(" (")[0] for line in left_out] == [" cross_entropy fwd bf16", " cross_entropy bwd bf16"]
    kinds = {(row.kernel.kind, row.kernel.dtype) for row in tables.read("measured.csv")}
    assert {("grouped_gemm", "fp8"), ("router", "bf16"), ("permute", "bf16"), ("unpermute", "bf16"), ("cast", "fp8")} <= kinds


def test_the_package_imports_pytorch_only_for_the_machine():
    assert "torch" in sys.modules
    import subprocess

    code = "import sys, compute.measure, compute.machine, netsim.cli.device; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
