"""The three worked layouts: operations, bytes, buckets and parameters of every stage, counted from the programs."""

import pytest

import workload
from tests.workload_cases import GPT3, LLAMA70, MIXTRAL, OVERLAP, build, training
from workload.layout import layout_of
from workload.programs import stages
from workload.shape import Shape
from workload.step import stage_params


def grouped(work, stage):
    """Operations and payload bytes by category and operation; small calls by name."""
    out = {}
    for (category, name), count in workload.tally(work, stage).items():
        for key in ((category, name.split(".")[1]), name):
            ops, nbytes = out.get(key, (0, 0))
            out[key] = (ops + count.ops, nbytes + count.nbytes)
    return out


def of_stage(section, n_gpus, stage):
    s = Shape(section, layout_of(section, n_gpus))
    return stages(s)[stage], stage_params(s, stages(s)[stage].held)


@pytest.fixture
def gpt3(monkeypatch):
    return build(monkeypatch, training(GPT3, data_parallel=OVERLAP), 1024)


@pytest.fixture
def llama(monkeypatch):
    return build(monkeypatch, training(LLAMA70, data_parallel=OVERLAP), 1024)


@pytest.fixture
def mixtral(monkeypatch):
    return build(monkeypatch, training(MIXTRAL, data_parallel=OVERLAP), 64)


def test_gpt3_parameters():
    section = training(GPT3)
    sums = [sum(p.numel for p in of_stage(section, 1024, r)[1]) for r in (0, 3, 7)]
    assert sums == [2_822_731_776, 2_718_922_752, 2_797_590_528]
    layer = [p.numel for p in of_stage(section, 1024, 3)[1] if p.layer == 40]
    assert sum(layer) == 226_576_896


def test_gpt3_tensor_parallel(gpt3):
    middle = grouped(gpt3, 3)
    assert middle["tp", "all_gather"] == (6_912, 347_892_350_976)
    assert middle["tp", "reduce_scatter"] == (4_608, 231_928_233_984)
    assert sum(n * b // n * 7 // 8 for n, b in (middle["tp", "all_gather"], middle["tp", "reduce_scatter"])) == 507_343_011_840
    first, last = grouped(gpt3, 0), grouped(gpt3, 7)
    assert first["tp.all_reduce.embedding"] == first["tp.all_gather.embedding_grad"] == (96, 96 * 50_331_648)
    assert (
        last["tp.all_gather.head"] == last["tp.all_gather.head_input"] == last["tp.reduce_scatter.head_input_grad"] == (96, 96 * 50_331_648)
    )
    assert sum(last[f"tp.all_reduce.loss_{x}"][0] for x in ("maximum", "target", "sum")) == 288
    assert last["tp.all_reduce.loss_sum"] == (96, 96 * 8_192)
    assert [grouped(gpt3, r)["tp.all_reduce.layernorm_grads"] for r in (0, 3, 7)] == [(1, 3_538_944), (1, 3_538_944), (1, 3_637_248)]


def test_gpt3_pipeline(gpt3):
    for stage in range(8):
        t = grouped(gpt3, stage)
        assert t.get("pp.send.forward", (0, 0)) == ((96, 603_979_776) if stage < 7 else (0, 0))
        assert t.get("pp.recv.forward", (0, 0)) == ((96, 603_979_776) if stage > 0 else (0, 0))
        assert t.get("pp.send.backward", (0, 0)) == ((96, 603_979_776) if stage > 0 else (0, 0))
        assert t.get("pp.recv.backward", (0, 0)) == ((96, 603_979_776) if stage < 7 else (0, 0))
        assert t.get("pp.all_reduce.embedding_grads") == ((1, 314_572_800) if stage in (0, 7) else None)


def test_gpt3_data_parallel(gpt3):
    t = [grouped(gpt3, r) for r in (0, 3, 7)]
    assert [x["dp", "reduce_scatter"] for x in t] == [(38, 11_290_927_104), (1, 10_875_691_008), (2, 11_190_362_112)]
    assert [x["dp", "all_gather"] for x in t] == [(38, 5_645_463_552), (1, 5_437_845_504), (2, 5_595_181_056)]
    assert t[1]["dp.all_reduce.dense_grad_norm"] == (1, 4)
    assert gpt3.calls.comm_ranks[gpt3.calls.name.index("dp.all_reduce.dense_grad_norm")] == 1024


def test_gpt3_buckets():
    section = training(GPT3, data_parallel=OVERLAP)
    first = [b.numel for b in of_stage(section, 1024, 0)[0].buffers[0].buckets]
    assert first[:4] == [75_509_760, 75_503_616, 56_652_288, 94_420_992] and first[-2:] == [44_077_056, 78_643_200] and len(first) == 38
    assert [b.numel for b in of_stage(section, 1024, 7)[0].buffers[0].buckets] == [78_643_200, 2_718_947_328]


def test_gpt3_interleaved(monkeypatch):
    work = build(monkeypatch, training(GPT3, data_parallel=OVERLAP, parallel={"vpp": 4}), 1024)
    size = 6_291_456
    for stage in range(8):
        t = grouped(work, stage)
        assert t["pp.send.forward"] == ((384, 384 * size) if stage < 7 else (288, 288 * size))
        assert t["pp.send.backward"] == ((384, 384 * size) if stage > 0 else (288, 288 * size))
        assert t["tp", "all_gather"][0] >= 6_912


def test_llama_parameters():
    section = training(LLAMA70)
    sums = [sum(p.numel for p in of_stage(section, 1024, r)[1]) for r in (0, 1, 3)]
    assert sums == [4_541_710_336, 4_278_517_760, 4_541_718_528]
    assert sum(p.numel for p in of_stage(section, 1024, 1)[1] if p.layer == 25) == 213_925_888


def test_llama_communication(llama):
    first, middle, last = (grouped(llama, r) for r in (0, 1, 3))
    assert middle["tp", "all_gather"] == (3_840, 3_840 * 67_108_864) and middle["tp", "reduce_scatter"] == (2_560, 2_560 * 67_108_864)
    assert middle["cp.ring_shift.kv"] == middle["cp.ring_shift.kv_again"] == middle["cp.ring_shift.kv_grad"] == (640, 640 * 4_194_304)
    assert middle["cp", "ring_shift"][1] == 8_053_063_680
    assert middle["pp.send.forward"] == (32, 536_870_912)
    assert [x["dp", "reduce_scatter"] for x in (first, middle, last)] == [(40, 18_166_841_344), (1, 17_114_071_040), (1, 18_166_874_112)]
    assert [x["dp", "all_gather"] for x in (first, middle, last)] == [(40, 9_083_420_672), (1, 8_557_035_520), (1, 9_083_437_056)]
    assert [x["tp.all_reduce.layernorm_grads"] for x in (middle, last)] == [(1, 1_310_720), (1, 1_343_488)]
    assert first["tp.reduce_scatter.embedding"] == first["tp.all_gather.embedding_grad"] == (32, 32 * 67_108_864)
    assert last["tp.all_gather.head"][0] == last["tp.all_gather.head_input"][0] == last["tp.reduce_scatter.head_input_grad"][0] == 32
    assert last["tp.all_reduce.loss_maximum"] == (32, 32 * 16_384)


def test_llama_buckets():
    sizes = [b.numel for b in of_stage(training(LLAMA70, data_parallel=OVERLAP), 1024, 0)[0].buffers[0].buckets]
    assert sizes[:5] == [176_160_768, 96_485_376, 117_440_512, 96_485_376, 117_440_512] and sizes[-1] == 300_957_696


def test_mixtral_parameters():
    section = training(MIXTRAL)
    for stage, dense in ((0, 466_944_000), (1, 335_872_000), (3, 466_948_096)):
        params = of_stage(section, 64, stage)[1]
        assert sum(p.numel for p in params if not p.expert) == dense
        assert sum(p.numel for p in params if p.expert) == 1_409_286_144


def test_mixtral_communication(mixtral):
    first, middle, last = (grouped(mixtral, r) for r in (0, 1, 3))
    hidden = [middle[f"ep.all_to_all.{x}"] for x in ("dispatch", "combine", "combine_grad", "dispatch_grad")]
    assert hidden == [(128, 128 * 67_108_864)] * 4 and sum(b for _, b in hidden) == 34_359_738_368
    assert [middle[f"ep.all_to_all.{x}"] for x in ("probs", "probs_grad")] == [(128, 128 * 32_768)] * 2
    assert middle["ep.all_gather.counts"] == (128, 128 * 512)
    assert middle["ep", "all_to_all"][0] == 768
    assert middle["pp.send.forward"] == (16, 536_870_912)
    assert [x["dp.reduce_scatter.dense_grads"] for x in (middle, first, last)] == [
        (1, 1_343_488_000),
        (9, 1_867_776_000),
        (1, 1_867_792_384),
    ]
    assert [x["dp.all_gather.dense_params"] for x in (middle, first, last)] == [(1, 671_744_000), (9, 933_888_000), (1, 933_896_192)]
    assert [x["dp.reduce_scatter.expert_grads"] for x in (first, middle)] == [(16, 5_637_144_576), (1, 5_637_144_576)]
    assert [x["dp.all_gather.expert_params"] for x in (first, middle)] == [(16, 2_818_572_288), (1, 2_818_572_288)]
    assert middle["dp.all_reduce.dense_grad_norm"] == middle["dp.all_reduce.expert_grad_norm"] == (1, 4)


def test_mixtral_buckets():
    buckets = of_stage(training(MIXTRAL, data_parallel=OVERLAP), 64, 0)[0].buffers[0].buckets
    assert [b.numel for b in buckets if not b.expert] == [41_984_000] * 8 + [131_072_000]
    assert [b.numel for b in buckets if b.expert] == [58_720_256, 117_440_512] * 8


def test_mixtral_allgather(monkeypatch):
    work = build(monkeypatch, training(MIXTRAL, experts={"dispatcher": "allgather"}), 64)
    t = grouped(work, 1)
    names = ("ep.all_gather.hidden", "ep.all_gather.hidden_grad", "ep.reduce_scatter.hidden", "ep.reduce_scatter.hidden_grad")
    assert [t[x] for x in names] == [(128, 128 * 268_435_456)] * 4
    assert sum(t[x][1] for x in names) * 7 // 8 == 120_259_084_288
