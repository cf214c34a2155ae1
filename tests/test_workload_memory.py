"""Memory against closed forms, and against published measurements."""

import pytest

import workload
from netsim.config.workload import Kernels
from tests.workload_cases import build, training
from workload.evaluate import training_of
from workload.layout import layout_of
from workload.memory import memory_of
from workload.programs import play_all
from workload.shape import Shape
from workload.tape import Tables

GPT = {"kind": "training", "model": "megatron_22b", "sequence": 2048, "global_batch": 32, "micro_batch": 4}


@pytest.mark.parametrize(("layout", "recompute", "attention", "per_layer"), [
    ({"tp": 8}, {}, "unfused", lambda sbh, t, score: sbh / t * (34 + score)),
    ({"tp": 8, "sequence_parallel": False}, {}, "unfused", lambda sbh, t, score: sbh * (10 + 24 / t + score / t)),
    ({"tp": 1}, {}, "unfused", lambda sbh, t, score: sbh * (34 + score)),
    ({"tp": 8}, {}, "flash", lambda sbh, t, score: 34 * sbh / t),
    ({"tp": 8, "sequence_parallel": False}, {}, "flash", lambda sbh, t, score: sbh * (10 + 24 / t)),
    ({"tp": 8}, {"granularity": "full"}, "unfused", lambda sbh, t, score: 2 * sbh / t),
    ({"tp": 8, "sequence_parallel": False}, {"granularity": "full"}, "unfused", lambda sbh, t, score: 2 * sbh),
])  # fmt: skip
def test_activations_of_a_layer(monkeypatch, layout, recompute, attention, per_layer):
    """Korthikanti et al., arXiv 2205.05198, table 2: the difference that one more layer makes."""
    s, b, h, a, t = 2048, 4, 6144, 64, layout["tp"]
    held = []
    for layers in (2, 3):
        model = workload.load_model("megatron_22b", layers=layers)
        section = training(GPT, model=model.__dict__, parallel=layout, recompute=recompute, kernels={"attention": attention})
        tables = Tables()
        shape = Shape(section, layout_of(section, t))
        stages, programs = play_all(shape, tables)
        held.append(memory_of(shape, stages[0], programs[0], [n for n, _ in tables.segments]).activations)
    expected = per_layer(s * b * h, t, 5 * a * s / h)
    assert held[1] - held[0] == pytest.approx(expected, rel=0.01)


def _held(layers: int, gpus: int, **parallel) -> tuple[Shape, list[int]]:
    """Activations of every stage of a 22B model with so many layers, flash attention and sequence parallelism."""
    model = workload.load_model("megatron_22b", layers=layers)
    section = training({**GPT, "global_batch": 128}, model=model.__dict__, parallel={"tp": 8, **parallel})
    tables = Tables()
    shape = Shape(section, layout_of(section, gpus))
    played = zip(*play_all(shape, tables), strict=True)
    return shape, [memory_of(shape, stage, program, [n for n, _ in tables.segments]).activations for stage, program in played]


def test_activations_outside_layers():
    """Korthikanti et al., section 4.3: mask of the embedding's dropout, final norm, output layer and logits in 32 bits."""
    (shape, [two]), (_, [three]) = _held(2, 8), _held(3, 8)
    s, b, h, t = 2048, 4, 6144, 8
    assert two - 2 * (three - two) == pytest.approx(s * b * h / t * (1 + 4 * (1 + shape.vocab / h)), rel=1e-3)


@pytest.mark.parametrize(("vpp", "factor"), [(1, 1), (2, 1 + 3 / 8)])
def test_the_first_stage_holds_activations_of_all_layers(vpp, factor):
    """Korthikanti et al., section 4.2.3: all layers' of one microbatch, 1 + (p - 1) / (p v) times with interleaving."""
    _, held = _held(48, 32, pp=4, vpp=vpp)
    assert held[0] == pytest.approx(48 * 34 * 2048 * 4 * 6144 / 8 * factor, rel=0.01)


MEASURED = [
    ("llama3-70b", {"tp": 1, "pp": 2}, 16, 4096, "fused CE (TE)", 12, 66.55),
    ("llama3-70b", {"tp": 2}, 16, 4096, "fused CE (TE)", 12, 60.68),
    ("llama3-70b", {"tp": 8}, 4, 4096, "fused CE (TE)", 12, 28.29),
    ("deepseekv2", {"ep": 8}, 32, 4096, "fused CE (TE); capacity factor 1", 4, 45.63),
    ("deepseekv2", {"ep": 4, "pp": 2}, 16, 4096, "fused CE (TE); capacity factor 1", 4, 44.70),
    ("llama3-70b", {"tp": 2, "cp": 4}, 4, 32768, "fused CE (TE); CP=a2a", 12, 68.43),
    ("llama3-70b", {"cp": 8}, 4, 131072, "fused CE (TE); CP=a2a", 12, 147.99),
]
"""Peak allocation on 8 B200, GiB: model, layout, global batch, sequence, notes, layers, measured. SimuMax v1.2, docs/b200."""


@pytest.mark.parametrize(("model", "layout", "batch", "sequence", "notes", "layers", "measured"), MEASURED)
def test_peak_within_two_percent(model, layout, batch, sequence, notes, layers, measured):
    sizes = {k: str(layout.get(k, 1)) for k in ("tp", "pp", "vpp", "cp", "ep", "etp")}
    row = {"model": model, "seq_len": str(sequence), "gbs": str(batch), "mbs": "1", "other": f"layers={layers}; {notes}", **sizes}
    section = training_of(row)
    tables = Tables()
    s = Shape(section, layout_of(section, 8))
    stages, programs = play_all(s, tables)
    names = [n for n, _ in tables.segments]
    peak = max(memory_of(s, stage, program, names).peak for stage, program in zip(stages, programs, strict=True))
    assert peak / 2**30 == pytest.approx(measured, rel=0.02)


def test_weight_cache_holds_every_shape_once(monkeypatch):
    section = training({**GPT, "model": "llama3_70b", "micro_batch": 1}, parallel={"tp": 2})
    cached = build(monkeypatch, section, 2).memory[0].cache
    assert cached == 2 * (10240 * 8192 + 8192 * 8192 + 57344 * 8192 + 8192 * 28672) // 2
    assert Kernels().wgrad_cache
