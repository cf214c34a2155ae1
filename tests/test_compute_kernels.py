"""Operations, bytes and ideal times against figures worked out by hand."""

from dataclasses import replace

import pytest

from compute import cards
from compute.kernels import Kernel, attended_pairs, compute_s, filled, flops, ideal_s, moved_bytes, peak_of
from tests.test_compute_lookup import CARD


def test_gemm_counts_two_operations_per_product_in_every_group():
    assert flops(Kernel("gemm", m=3, n=5, k=7)) == 2 * 3 * 5 * 7
    assert flops(Kernel("grouped_gemm", m=3, n=5, k=7, groups=4)) == 4 * 2 * 3 * 5 * 7


@pytest.mark.parametrize(("q", "kv", "pairs"), [(4, 4, 10), (2, 4, 7), (4, 2, 3), (1, 9, 9)])
def test_causal_pairs_by_counting(q, kv, pairs):
    assert attended_pairs(Kernel("attention", seq_q=q, seq_kv=kv)) == pairs
    # the mask aligns the ends of both sequences: query i of q sees keys up to i + kv - q
    assert sum(max(0, i + kv - q + 1) for i in range(q)) == pairs


def test_attention_backward_executes_five_products_against_two():
    forward = Kernel("attention", batch=2, seq_q=128, seq_kv=128, heads=4, kv_heads=4, head_dim=64, causal=False)
    assert flops(forward) == 2 * 2 * 4 * 128 * 128 * (64 + 64)
    assert flops(forward._replace(direction="bwd")) == 2.5 * flops(forward)


def test_wgrad_into_fp32_reads_and_writes_the_gradient():
    plain = Kernel("gemm", "wgrad", m=100, n=200, k=300)
    assert moved_bytes(plain) == 2 * 300 * (100 + 200) + 4 * 100 * 200
    assert moved_bytes(plain._replace(accumulate=True)) - moved_bytes(plain) == 4 * 100 * 200


def test_attention_moves_queries_and_outputs_of_all_heads_but_keys_and_values_of_theirs():
    kernel = Kernel("attention", batch=3, seq_q=100, seq_kv=300, heads=8, kv_heads=2, head_dim=192, head_dim_v=128)
    queries, outputs, keys, values = 100 * 8 * 192, 100 * 8 * 128, 300 * 2 * 192, 300 * 2 * 128
    assert moved_bytes(kernel) == 2 * 3 * (queries + outputs + keys + values)
    assert moved_bytes(kernel._replace(direction="bwd")) == 2 * moved_bytes(kernel)
    assert moved_bytes(kernel._replace(head_dim_v=0)) == 2 * 3 * 2 * (queries + keys)


def test_ideal_time_is_the_higher_roof_and_an_empty_kernel():
    card = cards.card("h100")
    big = Kernel("gemm", m=8192, n=8192, k=8192)
    assert ideal_s(card, big) == pytest.approx(2 * 8192**3 / 989.4e12 + 2e-6)
    assert ideal_s(card, Kernel("norm", nbytes=335_000_000)) == pytest.approx(1e-4 + 2e-6)


@pytest.mark.parametrize(
    ("m", "n", "groups", "sms", "share"), [(128, 256, 1, 1, 1.0), (256, 128, 1, 1, 1.0), (128, 256, 3, 2, 0.75), (64, 256, 1, 1, 0.5)]
)
def test_waves_of_gemm_tiles_by_hand(m, n, groups, sms, share):
    kernel = Kernel("grouped_gemm", m=m, n=n, k=64, groups=groups)
    assert filled(replace(CARD, sms=sms), kernel) == pytest.approx(share)


def test_an_attention_ends_no_earlier_than_its_longest_tile():
    """One unmasked head of 2,560 tokens is 10 tiles of 256 queries, or 20 of 128 keys in backward: 40 SMs are filled to 1/4, 1/2."""
    one = Kernel("attention", batch=1, seq_q=2560, seq_kv=2560, heads=1, kv_heads=1, head_dim=64, causal=False)
    for direction, sms, share in (("fwd", 10, 1.0), ("fwd", 40, 0.25), ("bwd", 40, 0.5), ("bwd", 10, 1.0)):
        kernel = one._replace(direction=direction)
        card = replace(CARD, sms=sms)
        assert filled(card, kernel) == pytest.approx(share)
        assert compute_s(card, kernel) == pytest.approx(flops(kernel) / 1e14 / share**0.5)
    assert filled(replace(CARD, sms=40), one._replace(causal=True)) == pytest.approx(0.125, rel=1e-3)  # half the pairs, one tile as long


def test_experts_launched_one_by_one_are_as_many_empty_kernels_on_four_streams():
    kernel = Kernel("grouped_gemm", m=1, n=1, k=1, groups=9)
    assert ideal_s(CARD, kernel) == pytest.approx(3e-6, rel=1e-3)
    assert ideal_s(CARD, kernel._replace(batch=1)) == pytest.approx(1e-6, rel=1e-3)


def test_a_precision_that_the_gpu_lacks_runs_at_the_next_wider_one():
    assert peak_of(cards.card("a100"), "fp8") == 312e12
    assert peak_of(cards.card("h100"), "nvfp4") == 1978.9e12
    assert peak_of(cards.card("b200"), "nvfp4") == 9000e12
