"""Memory-bound kernels as PyTorch executes them: what they compute, and that they move the bytes that the kernel states."""

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: make test-torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

from torch.nn import functional  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from compute.kernels import GEMM_KINDS, Kernel  # noqa: E402
from compute.machine import Torch  # noqa: E402
from compute.operations import KINDS, elementwise, experts, loss  # noqa: E402
from compute.ways import LeftOut  # noqa: E402

NBYTES = 4_000_000
MEMORY_BOUND = [kind for kind in KINDS if kind not in (*GEMM_KINDS, "attention")]


class Uncompiled(Torch):
    """A CPU that runs functions as they stand instead of compiling them."""

    def compiled(self, function):
        return function


@pytest.fixture(scope="module")
def cpu():
    torch.manual_seed(1)
    return Uncompiled("cpu")


def exact(function, *inputs):
    """The function in double precision."""
    return function(*(x.double() if x.is_floating_point() else x for x in inputs))


def gradients(function, inputs, gradient):
    """Gradients of the inputs in double precision."""
    wide = [x.detach().double().requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*wide), wide, gradient.double())


def close(mine, wanted, rounding=2**-7):
    return torch.allclose(mine.double(), wanted.double(), rtol=rounding, atol=4 * rounding * wanted.double().abs().mean().item())


def prepared(cpu, kind, direction="fwd", nbytes=NBYTES, **fields):
    way = cpu.prepare(Kernel(kind, direction, nbytes=nbytes, **fields))
    return way, [x.clone() for x in way.inputs], way.call


class Counted(TorchDispatchMode):
    """Bytes that operations read and write, each its inputs and outputs once; of a table that is looked up, the rows that are."""

    nbytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns):
            return out
        name = func._schema.name.split("::")[1]
        tensors = {id(x): x for x in tree_leaves((args, kwargs or {})) if isinstance(x, torch.Tensor)}.values()
        written = sum(x.nbytes for x in tree_leaves(out) if isinstance(x, torch.Tensor))
        read = sum(x.nbytes for x in tensors)
        if name in ("index_select", "embedding", "gather", "index", "index_put_"):
            read, written = read - args[0].nbytes + (0 if name == "index_put_" else written), 0 if name == "index_put_" else written
        elif name in ("zeros_like", "new_zeros"):
            read = 0
        self.nbytes += read + written
        return out


CHAINS = {
    ("router", "fwd"): 3.0,  # of it 0.7 a cast that CUDA's softmax holds
    ("router", "bwd"): 2.65,
    ("unpermute", "fwd"): 1.08,
    ("unpermute", "bwd"): 2.56,
    ("clamp", "bwd"): 1.5,
    ("expert_bias", "fwd"): 1.4,
    ("expert_bias", "bwd"): 1.12,
}
"""Bytes of chains that Megatron runs operation by operation, over those that the model counts."""


@pytest.mark.parametrize("direction", ["fwd", "bwd"])
@pytest.mark.parametrize("kind", [kind for kind in MEMORY_BOUND if kind not in ("adam", "norm", "embedding")])
def test_the_stated_bytes_are_moved(cpu, kind, direction):
    way = cpu.prepare(Kernel(kind, direction, nbytes=NBYTES, groups=4 if kind == "expert_bias" else 1))
    if way.how == "torch.compile":
        moved = sum(x.nbytes for x in tree_leaves((way.inputs, way.call(*way.inputs))))
    else:
        with Counted() as counted:
            way.call(*way.inputs)
        moved = counted.nbytes
    assert moved / NBYTES == pytest.approx(CHAINS.get((kind, direction), 1.0), rel=0.03)


def test_the_stated_bytes_of_tables_states_and_norms(cpu):
    gradient, weight, first, second = cpu.prepare(Kernel("adam", nbytes=NBYTES)).inputs
    assert sum(x.nbytes for x in (gradient, weight, weight, first, first, second, second)) == pytest.approx(NBYTES, rel=0.03)
    words, table = cpu.prepare(Kernel("embedding", nbytes=NBYTES)).inputs
    assert len(words) * table.shape[1] * 4 == pytest.approx(NBYTES, rel=0.03) and len(table) > len(words)
    table, words, gradient = cpu.prepare(Kernel("embedding", "bwd", nbytes=NBYTES)).inputs
    assert table.dtype == torch.float32 and gradient.numel() * 8 == pytest.approx(NBYTES, rel=0.03) and len(words) == len(gradient)
    for direction, passes in (("fwd", 4), ("bwd", 6)):
        x = cpu.prepare(Kernel("norm", direction, nbytes=NBYTES)).inputs[passes == 6]
        assert x.numel() * passes == pytest.approx(NBYTES, rel=0.03) and x.dtype == torch.bfloat16


@pytest.mark.parametrize("nbytes", [4096, 65536, 1_000_003, 3 * 10**9])
@pytest.mark.parametrize("per", [2, 4, 6.25, 38])
def test_shapes_hold_the_bytes_of_small_and_large_kernels(nbytes, per):
    rows, width = elementwise.shape(nbytes, per)
    assert rows * width * per == pytest.approx(nbytes, rel=0.5 / rows + 1e-9) and (rows >= 50 or width == 16)


def test_norms(cpu):
    way, (x, weight), call = prepared(cpu, "norm")
    assert way.how == "RMSNorm"
    assert close(call(x, weight), exact(lambda x, w: functional.rms_norm(x, (x.shape[1],), w, 1e-5), x, weight))
    way, (gradient, x, _, _, weight), _ = prepared(cpu, "norm", "bwd")
    assert way.how == "LayerNorm"  # RMSNorm's own backward kernel is CUDA's
    dx, dw, db = way.call(*way.inputs)
    wanted = gradients(lambda x, w: functional.layer_norm(x, (x.shape[1],), w, None), (x, weight), gradient)
    assert close(dx, wanted[0], 2**-5) and close(dw, wanted[1], 2**-5) and close(db, gradient.double().sum(0), 2**-5)


def test_the_backward_kernel_of_rmsnorm_has_the_inputs_that_cuda_takes():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        gradient, x, weight = (torch.randn(*size, dtype=torch.bfloat16, device="meta") for size in ((64, 32), (64, 32), (32,)))
        way = next(iter(elementwise._norm_back(gradient, x, weight)))
        dx, dw = way.call(*way.inputs)
    assert dx.shape == x.shape and dw.shape == weight.shape and way.inputs[2].dtype == torch.float32


def test_activations(cpu):
    _, (x,), call = prepared(cpu, "swiglu")
    a, b = x.double().chunk(2, -1)
    assert close(call(x), a / (1 + torch.exp(-a)) * b)
    _, (gradient, x), call = prepared(cpu, "swiglu", "bwd")
    assert close(call(gradient, x), gradients(elementwise.swiglu_of, (x,), gradient)[0], 2**-5)
    _, (x,), call = prepared(cpu, "gelu")
    assert close(call(x), exact(lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3))), x))
    _, (gradient, x), call = prepared(cpu, "gelu", "bwd")
    assert close(call(gradient, x), gradients(lambda x: functional.gelu(x, approximate="tanh"), (x,), gradient)[0])


def test_rotation_turns_pairs_and_backward_turns_them_back(cpu):
    _, (x, cos, sin), call = prepared(cpu, "rope")
    half = x.shape[-1] // 2
    complex_x = torch.complex(x[..., :half].double(), x[..., half:].double())
    turned = complex_x * torch.complex(cos[..., :half].double(), sin[..., :half].double())
    assert close(call(x, cos, sin), torch.cat((turned.real, turned.imag), -1))
    _, (gradient, cos, sin), call = prepared(cpu, "rope", "bwd")
    wanted = gradients(lambda x: elementwise.rotated(x, cos.double(), -sin.double()), (gradient,), gradient)[0]
    assert close(call(gradient, cos, sin), wanted)


def test_sums_copies_softmax(cpu):
    for kind, direction in (("residual", "fwd"), ("residual", "bwd"), ("merge", "bwd"), ("bias", "fwd")):
        _, (x, y), call = prepared(cpu, kind, direction)
        assert close(call(x, y), x.double() + y.double())
    _, (x,), call = prepared(cpu, "bias", "bwd")
    assert close(call(x), x.double().sum(0), 2**-5)
    for kind in ("copy", "memory"):
        way, (x,), call = prepared(cpu, kind)
        assert torch.equal(call(x), x) and call(*way.inputs).data_ptr() != way.inputs[0].data_ptr()
    _, (x,), call = prepared(cpu, "softmax")
    assert close(call(x), x.double().softmax(-1))
    _, (gradient, y), call = prepared(cpu, "softmax", "bwd")
    wide, dy = y.double(), gradient.double()
    assert close(call(gradient, y), wide * (dy - (dy * wide).sum(-1, keepdim=True)), 2**-5)


def test_a_partial_output_is_merged_by_the_sums_of_both(cpu):
    _, (out, part, total, own), call = prepared(cpu, "merge")
    assert close(call(out.clone(), part, total, own), out.double() + part.double() * torch.exp((own - total).double()), 2**-6)


def test_casts(cpu):
    _, (x,), call = prepared(cpu, "cast")
    assert x.dtype == torch.float32 and torch.equal(call(x), x.bfloat16())
    way, (x, *_), call = prepared(cpu, "cast", dtype="fp8", groups=3)
    (y, z), *rest = call(*way.inputs)
    assert len(rest) == 2 and torch.equal(y, x.to(torch.float8_e4m3fn)) and torch.equal(z.float(), y.t().float()) and z.is_contiguous()
    with pytest.raises(LeftOut, match="no conversion to nvfp4"):
        cpu.prepare(Kernel("cast", dtype="nvfp4", nbytes=NBYTES))


@pytest.mark.parametrize(("dtype", "block"), [("mxfp8", 32), ("fp8_blockwise", 128)])
def test_blocks_are_scaled_by_powers_of_two(cpu, dtype, block):
    _, (x,), call = prepared(cpu, "cast", dtype=dtype)
    ((y, z, of_rows, of_columns),) = call(x)
    rows = torch.exp2(of_rows.double() - 127).expand(-1, -1, block).reshape(x.shape)
    columns = torch.exp2(of_columns.double() - 127).expand(-1, block, -1).reshape(x.shape)
    for back in (y.double() * rows, z.t().double() * columns):
        assert (back - x.double()).abs().max() <= x.double().abs().max() / 16
    assert y.double().abs().reshape(len(x), -1, block).amax(-1).min() >= 208  # the upper half of what e4m3 holds is used


def test_adam(cpu):
    way = cpu.prepare(Kernel("adam", nbytes=NBYTES))
    gradient, weight, first, second = (x.clone() for x in way.inputs)
    parameter = torch.nn.Parameter(weight.clone())
    parameter.grad = gradient
    reference = torch.optim.AdamW([parameter], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, eps=1e-8)
    reference.state[parameter] = state = {"step": torch.tensor(0.0), "exp_avg": first.clone(), "exp_avg_sq": second.clone()}
    reference.step()
    new, one, two = way.call(*way.inputs)
    assert close(new, parameter.detach(), 1e-5) and close(one, state["exp_avg"], 1e-5) and close(two, state["exp_avg_sq"], 1e-5)
    assert not torch.equal(new, weight)


def test_embedding(cpu):
    _, (words, table), call = prepared(cpu, "embedding")
    assert torch.equal(call(words, table), table[words])
    _, (table, words, gradient), call = prepared(cpu, "embedding", "bwd")
    assert close(call(table.clone(), words, gradient), table + torch.zeros_like(table).index_add(0, words, gradient.float()), 1e-5)


@pytest.mark.parametrize("how", ["unfused", "fused"])
def test_the_loss_and_its_gradient(how):
    cpu = Uncompiled("cpu", how)
    way, (logits, target), call = prepared(cpu, "cross_entropy")
    value, probabilities = call(logits, target)
    assert way.how.startswith(f"{how} loss")
    assert close(value, functional.cross_entropy(logits.double(), target, reduction="none"), 1e-5)
    assert close(probabilities, logits.double().softmax(-1), 1e-5)
    way, (_, target, gradient), call = prepared(cpu, "cross_entropy", "bwd")
    logits, gradient = torch.randn(way.inputs[0].shape), torch.rand_like(gradient)
    wanted = gradients(lambda x: functional.cross_entropy(x, target, reduction="none"), (logits,), gradient)[0]
    mine = call(logits.softmax(-1), target, gradient)
    assert mine.dtype == torch.bfloat16 and close(mine, wanted)


def test_the_bytes_of_the_merged_loss_are_near_those_of_its_parts():
    (logits, target), wide = Uncompiled("cpu", "fused").prepare(Kernel("cross_entropy", nbytes=NBYTES)).inputs, 4
    parts = (2 + wide) + 2 * wide + 2 * wide  # maximum with the cast, exponentials, share
    assert parts <= loss.FUSED <= parts + wide and logits.numel() * loss.FUSED == pytest.approx(NBYTES, rel=0.03)
    assert len(target) == len(logits)


def test_the_loss_of_transformer_engine_is_left_out(cpu):
    with pytest.raises(LeftOut, match="Triton kernel of TransformerEngine"):
        Uncompiled("cpu", "te").prepare(Kernel("cross_entropy", nbytes=NBYTES))


def test_router(cpu):
    _, (logits,), call = prepared(cpu, "router")
    kept, where, counts = call(logits)
    scores = logits.double().softmax(-1)
    assert (where.sum(-1) == experts.TOP_K).all() and torch.equal(counts, where.sum(0)) and torch.equal(where, kept > 0)
    assert close(kept, scores * where, 1e-5) and (scores.masked_fill(where, 0).amax(-1) <= scores.masked_fill(~where, 1).amin(-1)).all()
    way, (gradient, logits), _ = prepared(cpu, "router", "bwd")
    chosen = experts.routed(logits)[1]
    assert close(way.call(*way.inputs)[0], gradients(lambda x: x.softmax(-1) * chosen, (logits,), gradient)[0], 2**-5)


def test_rows_are_permuted_weighed_and_added_up(cpu):
    for direction in ("fwd", "bwd"):
        _, (x, order), call = prepared(cpu, "permute", direction)
        assert torch.equal(call(x, order), x[order]) and torch.equal(order.sort()[0], torch.arange(len(x)))
    _, (x, probs, token), call = prepared(cpu, "unpermute")
    tokens = len(x) // experts.TOP_K
    wanted = torch.zeros(tokens, x.shape[1], dtype=torch.double).index_add(0, token, x.double() * probs.double())
    assert close(call(x, probs, token), wanted, 2**-5)
    way, (gradient, x, probs, token), _ = prepared(cpu, "unpermute", "bwd")
    dx, dp = way.call(*way.inputs)
    rows = gradient.double()[token]
    assert close(dx, rows * probs.double()) and close(dp, (rows * x.double()).sum(-1, keepdim=True), 2**-4)


def test_clamps(cpu):
    _, (x,), call = prepared(cpu, "clamp")
    x = x * 8
    a, b = x.chunk(2, -1)
    assert torch.equal(call(x), torch.cat((a.clamp(max=7), b.clamp(-7, 7)), -1)) and call(x).min() < -7
    way, (gradient, x), _ = prepared(cpu, "clamp", "bwd")
    assert torch.equal(way.call(*way.inputs)[0], gradient.where(x.abs() <= 7, 0))


def test_biases_of_experts(cpu):
    _, (x, probs, biases), call = prepared(cpu, "expert_bias", groups=4)
    own = biases.double().repeat_interleave(len(x) // 4, 0)
    assert call(x, probs, biases).dtype == x.dtype and close(call(x, probs, biases), x.double() + own * probs.double())
    way, (gradient, x, probs, biases), _ = prepared(cpu, "expert_bias", "bwd", groups=4)
    dx, dp, db = way.call(*way.inputs)
    own, dy = biases.double().repeat_interleave(len(x) // 4, 0), gradient.double()
    assert torch.equal(dx, gradient) and close(dp, (dy * own).sum(-1, keepdim=True), 2**-5)
    assert close(db, (dy * probs.double()).reshape(4, -1, x.shape[1]).sum(1), 2**-5)
