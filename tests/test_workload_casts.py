"""Kernels between GEMMs that follow from the precision, the activation and the rotary embedding."""

import pytest

from compute.api import Kernel
from netsim.config.workload import Training
from netsim.kernels.structs import COMPUTE
from tests.workload_cases import LLAMA70, TINY, training
from workload.blocks import layer
from workload.layout import layout_of
from workload.ops import casts, casts_normed, rope, transposed
from workload.shape import Shape
from workload.tape import CALL, KIND, STREAM, Tables, Tape


def shape(arch: str = "", **changes: object) -> Shape:
    section = training({"kind": "training", "model": TINY, "sequence": 512, "global_batch": 8}, **changes)
    return Shape(section, layout_of(section, 8), arch)


def kernels(section: Training, n_gpus: int = 64, arch: str = "") -> list[Kernel]:
    """All kernels of both passes of a layer, in order."""
    s = Shape(section, layout_of(section, n_gpus), arch)
    found: list[Kernel] = []
    for kind, record in (("forward", layer.forward), ("backward", layer.backward)):
        tables = Tables()
        tape = Tape(tables, kind, s.group_sizes())
        record(tape, s, 4)
        rows = tape.block().rows[0].tolist()
        listed, segments = list(tables.kernels), list(tables.segments)
        found += [listed[k] for row in rows if row[KIND] == COMPUTE for k in segments[row[CALL]][1]]
    return found


@pytest.mark.parametrize(
    ("precision", "passes"),
    [
        ({"gemm": "bf16"}, []),
        ({"gemm": "fp8"}, [4000]),
        ({"gemm": "fp8", "fp8_recipe": "tensorwise"}, [2000, 4000]),
        ({"gemm": "mxfp8"}, [4062]),
        ({"gemm": "nvfp4"}, [2000, 2562, 2562]),
    ],
)
def test_passes_of_a_cast_by_hand(precision: dict[str, str], passes: list[int]) -> None:
    """A thousand elements: maximum, row-wise and column-wise copies with their scales."""
    s = shape(precision=precision)
    assert [k.nbytes for k in casts(s, 1000, precision["gemm"])] == passes


def test_norms_write_what_they_can() -> None:
    """Delayed scaling and MXFP8 are fused into the norm; scales of the tensor and NVFP4 are not."""
    for precision, fused in (("fp8", True), ("mxfp8", True), ("nvfp4", False), ("fp8_blockwise", False)):
        assert bool(casts_normed(shape(precision={"gemm": precision}), 1000, precision)) != fused
    current = shape(precision={"gemm": "fp8", "fp8_recipe": "tensorwise"})
    assert casts_normed(current, 1000, "fp8") == casts(current, 1000, "fp8")


def test_a_layer_in_nvfp4_casts_both_normed_inputs_too() -> None:
    """Forward 2 (after norms) + 2 (row-parallel), backward 4, each of three kernels; MXFP8 leaves out the first two."""
    for precision, count in (("nvfp4", 24), ("mxfp8", 6)):
        section = training(LLAMA70, precision={"gemm": precision})
        assert sum(k.kind == "cast" for k in kernels(section)) == count


def test_inputs_are_transposed_before_blackwell_only() -> None:
    """Whatever the number of launch queues."""
    for connections in (1, 8):
        queues = {"kernels": {"connections": connections}}
        assert transposed(shape("hopper", **queues), 1000, "fp8")[0].nbytes == 2000
        assert not transposed(shape("blackwell", **queues), 1000, "fp8") and not transposed(shape("hopper", **queues), 1000, "bf16")


def test_rotary_embedding_apart_moves_six_times_as_much() -> None:
    assert rope(1000, fused=True).nbytes == 4000 and rope(1000, fused=False).nbytes == 24000
    assert rope(1000, False, "bwd", interleaved=True).nbytes == 38000


def test_yarn_is_never_one_kernel() -> None:
    """The factor on cosine and sine is beyond the fused kernel, whatever the run asks for."""
    moved = {}
    for position in ("rope", "yarn"):
        section = training(LLAMA70, model=training(LLAMA70).model.__class__(**vars(training(LLAMA70).model) | {"position": position}))
        moved[position] = sum(k.nbytes for k in kernels(section) if k.kind == "rope")
    assert moved["yarn"] == pytest.approx(moved["rope"] * (24 + 26) / 8)


def test_a_clamped_activation_makes_the_host_wait() -> None:
    """Its offset is copied from the host, and its down projection has a bias in 32 bits; neither with fused experts."""
    case = {
        "kind": "training", "model": "gpt_oss_20b", "sequence": 1024, "global_batch": 8, "parallel": {"ep": 8},
        "experts": {"dispatcher": "alltoall"},
    }  # fmt: skip
    waits = {}
    for fused in (False, True):
        s = Shape(section := training(case, kernels={"fused_experts": fused}), layout_of(section, 8))
        tape = Tape(Tables(), "forward", s.group_sizes(), hosted=True)
        layer.forward(tape, s, 1)
        waits[fused] = len(tape.block().rows[STREAM["host"]])
    assert waits[False] == waits[True] + 1
    biased = [k for k in kernels(training(case), 8) if k.kind == "expert_bias"]
    rows = 1024 * 4
    assert [k.nbytes for k in biased] == [28 * rows * 2880, 40 * rows * 2880]
