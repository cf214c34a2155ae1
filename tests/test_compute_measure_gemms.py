"""Matrix products and attention as PyTorch executes them: layouts, precisions, sums into fp32, and masks, against double precision."""

import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: make test-torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

from compute.kernels import Kernel, attended_pairs  # noqa: E402
from compute.machine import Torch  # noqa: E402
from compute.operations import attention, gemm  # noqa: E402
from compute.ways import LeftOut  # noqa: E402

M, N, K = 96, 160, 128
DIRECTIONS = ("fwd", "dgrad", "wgrad")


@pytest.fixture(scope="module")
def cpu():
    torch.manual_seed(1)
    return Torch("cpu")


def product(direction, a, b):
    """x w', dy w or dy' x in double precision."""
    a, b = a.double(), b.double()
    return {"fwd": lambda: a @ b.mT, "dgrad": lambda: a @ b, "wgrad": lambda: a.mT @ b}[direction]()


def close(mine, exact, rounding=2**-8):
    """Equal within the rounding of the result, and that of sums."""
    return torch.allclose(mine.double(), exact, rtol=rounding, atol=4 * rounding * exact.abs().mean().item())


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_products_in_the_layouts_of_training(cpu, dtype, direction):
    way = cpu.prepare(Kernel("gemm", direction, dtype, M, N, K))
    stored = {"fwd": [(M, K), (N, K)], "dgrad": [(M, K), (K, N)], "wgrad": [(K, M), (K, N)]}[direction]
    assert [tuple(x.shape) for x in way.inputs] == stored and all(x.is_contiguous() for x in way.inputs)
    out = way.call(*way.inputs)
    assert out.shape == (M, N) and out.dtype == way.inputs[0].dtype and close(out, product(direction, *way.inputs))


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_a_weight_gradient_is_added_to_an_fp32_gradient(cpu, dtype):
    way = cpu.prepare(Kernel("gemm", "wgrad", dtype, M, N, K, accumulate=True))
    dy, x, total = way.inputs
    before = total.double()
    way.call(*way.inputs)
    assert total.dtype == torch.float32 and total.shape == (M, N) and close(total.double() - before, product("wgrad", dy, x), 2**-7)


def test_the_fused_sum_comes_first_and_is_only_on_cuda(cpu):
    first, second = gemm.gemm(cpu, Kernel("gemm", "wgrad", "bf16", M, N, K, accumulate=True))
    assert first.how == "torch.addmm into fp32" and second.how.endswith("by a kernel of its own")
    with pytest.raises(NotImplementedError, match=r"aten::addmm\.dtype_out"):
        first.call(*first.inputs)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_8_bits_multiply_rows_by_rows(cpu, direction):
    way = cpu.prepare(Kernel("gemm", direction, "fp8", M, N, K, accumulate=direction == "wgrad"))
    a, b = way.inputs
    assert a.shape == (M, K) and b.shape == (N, K)
    assert a.dtype == (torch.float8_e4m3fn if direction == "fwd" else torch.float8_e5m2) and b.dtype == torch.float8_e4m3fn
    out = way.call(a, b)
    assert out.dtype == (torch.float32 if direction == "wgrad" else torch.bfloat16)
    assert close(out, product("fwd", a.float(), b.float()))
    assert ("not added" in way.how) == (direction == "wgrad")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("batch", [0, 1, 4])
def test_groups_are_products_of_their_own(cpu, direction, batch):
    way = cpu.prepare(Kernel("grouped_gemm", direction, "bf16", 32, 48, 64, groups=4, batch=batch))
    a, b = way.inputs
    stored_a, stored_b = {"fwd": ((32, 64), (48, 64)), "dgrad": ((32, 64), (64, 48)), "wgrad": ((64, 32), (64, 48))}[direction]
    out = way.call(a, b)
    assert way.how == ("torch.bmm" if batch == 4 else "torch._grouped_mm")
    assert close(out.reshape(4, 32, 48), product(direction, a.reshape(4, *stored_a), b.reshape(4, *stored_b)))


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_groups_go_one_by_one_where_no_kernel_takes_them_together(cpu, dtype):
    way = cpu.prepare(Kernel("grouped_gemm", "wgrad", dtype, 32, 48, 64, groups=3, accumulate=True))
    assert way.how.startswith("one by one, torch.")
    before = [x.double() for x in way.inputs[2::3]]
    out = way.call(*way.inputs)
    assert len(out) == 3 and all(x.shape == (32, 48) and x.dtype == torch.float32 for x in out)
    if dtype == "bf16":
        added = [x.double() - y for x, y in zip(out, before, strict=True)]
        assert all(close(x, product("wgrad", *way.inputs[3 * i : 3 * i + 2]), 2**-7) for i, x in enumerate(added))


class Imagined:
    """A GPU that checks shapes, layouts and scales but computes nothing."""

    device, capability, loss = "cuda", (10, 0), "unfused"

    def random(self, *shape, dtype="bf16"):
        return torch.randn(*shape, device="cuda", dtype={"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype])


@pytest.mark.parametrize("shape", [(256, 384, 512), (4096, 7168, 2304), (128, 128, 128)])
@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp8_blockwise", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_gpu_takes_operands_and_scales_as_they_are(dtype, direction, shape):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        for kind, groups in (("gemm", 1), ("grouped_gemm", 2)):
            kernel = Kernel(kind, direction, dtype, *shape, groups=groups)
            way = next(iter((gemm.grouped if groups > 1 else gemm.gemm)(Imagined(), kernel)))
            out = way.call(*way.inputs)
            results = out if isinstance(out, list) else [out]
            assert sum(x.numel() for x in results) == groups * shape[0] * shape[1] and results[0].device.type == "cuda"
            if dtype not in ("bf16", "fp8") or direction == "wgrad":
                assert results[0].dtype == (torch.float32 if direction == "wgrad" and dtype != "bf16" else torch.bfloat16)


@pytest.mark.parametrize("dtype", ["fp8_blockwise", "mxfp8", "nvfp4"])
def test_block_scales_are_left_out_with_the_reason_where_they_cannot_run(cpu, dtype, monkeypatch):
    with pytest.raises(LeftOut, match="scaled_mm: "):
        cpu.prepare(Kernel("gemm", "fwd", dtype, 128, 128, 128))
    monkeypatch.delattr(torch.nn.functional, "scaled_mm")
    with pytest.raises(LeftOut, match=r"^PyTorch .* has no torch.nn.functional.scaled_mm$"):
        cpu.prepare(Kernel("gemm", "fwd", dtype, 128, 128, 128))


def attended(q, k, v, causal):
    """Softmax attention in double precision; the mask aligns the ends."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(scores.shape[-1] - scores.shape[-2])
        scores = scores.masked_fill(~seen, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2)


CASES = [
    Kernel("attention", batch=2, seq_q=64, seq_kv=64, heads=4, kv_heads=4, head_dim=32),
    Kernel("attention", batch=1, seq_q=64, seq_kv=64, heads=8, kv_heads=2, head_dim=32, head_dim_v=32),
    Kernel("attention", batch=1, seq_q=64, seq_kv=64, heads=4, kv_heads=4, head_dim=48, head_dim_v=32),
    Kernel("attention", batch=1, seq_q=32, seq_kv=72, heads=8, kv_heads=2, head_dim=32),
    Kernel("attention", batch=1, seq_q=32, seq_kv=72, heads=4, kv_heads=4, head_dim=48, head_dim_v=32),
    Kernel("attention", batch=2, seq_q=64, seq_kv=32, heads=8, kv_heads=2, head_dim=32, causal=False),
    Kernel("attention", batch=1, seq_q=64, seq_kv=64, heads=4, kv_heads=2, head_dim=48, head_dim_v=32, causal=False),
]


@pytest.mark.parametrize("kernel", CASES, ids=str)
def test_attention_of_grouped_heads_other_widths_and_masks_at_the_end(cpu, kernel):
    way = cpu.prepare(kernel)
    q, k, v = way.inputs
    assert q.shape == (kernel.batch, kernel.seq_q, kernel.heads, kernel.head_dim)
    assert k.shape == (kernel.batch, kernel.seq_kv, kernel.kv_heads, kernel.head_dim)
    assert v.shape == (*k.shape[:3], kernel.head_dim_v or kernel.head_dim)
    assert close(way.call(q, k, v), attended(q.double(), k.double(), v.double(), kernel.causal))


@pytest.mark.parametrize("kernel", CASES, ids=str)
def test_gradients_of_attention_alone(cpu, kernel):
    way = cpu.prepare(kernel._replace(direction="bwd"))
    wide = [x.double().requires_grad_() for x in way.inputs[:3]]
    exact = torch.autograd.grad(attended(*wide, kernel.causal), wide, way.inputs[3].double())
    for _ in range(2):  # the graph is kept
        assert all(x.shape == y.shape and close(x, y, 2**-6) for x, y in zip(way.call(*way.inputs), exact, strict=True))


def test_the_mask_holds_as_many_pairs_as_the_model_counts():
    kernel = Kernel("attention", batch=1, seq_q=5, seq_kv=9, heads=1, kv_heads=1, head_dim=4)
    assert int(torch.ones(5, 9).tril(4).sum()) == attended_pairs(kernel)


def libraries(capability, kernel):
    machine = SimpleNamespace(device="cuda", capability=capability)
    return [library for _, library, _ in attention._forwards(machine, kernel)]


def test_the_library_of_the_architecture_is_tried_first_and_cudnn_never_with_the_mask_at_the_end():
    assert libraries((9, 0), CASES[0]) == ["cudnn", "flash-attn 2", "memory-efficient"]
    assert libraries((8, 0), CASES[0]) == ["flash-attn 2", "cudnn", "memory-efficient"]
    assert libraries((10, 0), CASES[3]) == ["flash-attn 2", "memory-efficient"]
    assert libraries((9, 0), CASES[5])[0] == "cudnn"


def test_the_flash_attn_package_goes_before_the_copy_in_pytorch(monkeypatch):
    def flash_attn_func(q, k, v, causal):
        return attended(q.double(), k.double(), v.double(), causal).to(q.dtype)

    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(flash_attn_func=flash_attn_func))
    cpu_as_gpu = SimpleNamespace(device="cuda", capability=(8, 0), random=lambda *shape: torch.randn(*shape, dtype=torch.bfloat16))
    way = next(iter(attention.attention(cpu_as_gpu, CASES[3]._replace(direction="bwd"))))
    assert (way.how, way.library) == ("flash-attn", "flash-attn 2")
    assert [x.shape for x in way.call(*way.inputs)] == [x.shape for x in way.inputs[:3]]
