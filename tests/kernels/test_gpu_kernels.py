"""Kernels at real shapes on a GPU: at most twice as far from float32 as plain torch in the same dtype."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
import torch

from mmcore.kernels.copy_blocks import copy_blocks, copy_blocks_reference
from mmcore.kernels.paged_attention import paged_attention, paged_attention_reference
from mmcore.kernels.rms_norm import rms_norm, rms_norm_reference
from mmcore.kernels.rotary import rotary, rotary_reference
from mmcore.kernels.store_kv import store_kv, store_kv_reference
from mmcore.kernels.swiglu import swiglu, swiglu_reference
from mmcore.kernels.varlen_attention import varlen_attention, varlen_attention_reference

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

SHAPES = {
    "qwen2vl-7b": (28, 4, 128),
    "llava-7b": (32, 32, 128),
    "whisper-large-v3": (20, 20, 64),
    "head-72": (16, 16, 72),
    "head-80": (16, 16, 80),
    "head-96": (32, 32, 96),
    "head-256": (8, 4, 256),
}
DECODE = [(1, n) for n in (1, 15, 16, 17, 63, 64, 65, 1000, 8192, 32768)]
MIXED = [(1, 9000), (322, 322), (100, 1000), (1, 1), (17, 4113), (7, 7), (0, 50), (1, 400), (2, 3)]
MANY = [(1, 1 + 97 * row % 2048) for row in range(192)]
LISTS = {"decode": DECODE, "mixed": MIXED, "many": MANY}

halves = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
blocks = pytest.mark.parametrize("block", [16, 64])


def _fresh() -> int:
    """A seed that no earlier run had; pytest shows it when the test fails."""
    seed = secrets.randbits(31)
    print(f"seed {seed}")
    return seed


def _check(batch: Any, assert_within_twice: Any, causal: bool = True) -> None:
    scale = batch.query.shape[-1] ** -0.5
    out = torch.full_like(batch.query, torch.nan)
    result = batch.call(paged_attention, scale, causal, max_query_len=batch.max_query_len, out=out)
    plain = batch.call(paged_attention_reference, scale, causal)
    truth = batch.cast(torch.float32).call(paged_attention_reference, scale, causal)
    assert_within_twice(result, plain, truth)


@halves
@blocks
@pytest.mark.parametrize("rows", LISTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_paged_attention(
    make_batch: Any, assert_within_twice: Any, shape: str, rows: str, block: int, dtype: torch.dtype
) -> None:
    *heads, size = SHAPES[shape]
    batch = make_batch(LISTS[rows], heads, size, block, seed=_fresh(), dtype=dtype, device="cuda")
    _check(batch, assert_within_twice)


@halves
@blocks
@pytest.mark.parametrize("rows", [[(1, 1500)] * 16, [(1, 1500)], [(4, 1500), (1, 1500), (3, 0), (1, 0)]])
def test_cross_attention(
    make_batch: Any, assert_within_twice: Any, rows: list[tuple[int, int]], block: int, dtype: torch.dtype
) -> None:
    batch = make_batch(rows, (20, 20), 64, block, seed=_fresh(), dtype=dtype, device="cuda")
    _check(batch, assert_within_twice, causal=False)


@pytest.mark.parametrize("rows", [DECODE, MIXED])
@pytest.mark.parametrize("bias", [False, True])
def test_float32(make_batch: Any, rows: list[tuple[int, int]], bias: bool) -> None:
    batch = make_batch(rows, (12, 4), 64, 16, seed=_fresh(), device="cuda")
    table = torch.randn(12, 128, device="cuda") if bias else None
    result = batch.call(paged_attention, 0.125, max_query_len=batch.max_query_len, bias=table)
    truth = batch.call(paged_attention_reference, 0.125, bias=table)
    torch.testing.assert_close(result, truth, rtol=0, atol=2e-5)


@pytest.mark.parametrize("rows", [[(1, 300)] * 8, [(40, 300), (1, 5000), (1, 17), (0, 1)]])
def test_graph_replay_follows_new_lengths(
    make_batch: Any, assert_within_twice: Any, rows: list[tuple[int, int]]
) -> None:
    """Captured once, replayed with other lengths, tables and values in the same memory."""
    batch = make_batch(rows, (28, 4), 128, 16, seed=_fresh(), dtype=torch.bfloat16, device="cuda")
    out = torch.empty_like(batch.query)
    options = {"max_query_len": batch.max_query_len, "out": out}
    batch.call(paged_attention, 0.09, **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        batch.call(paged_attention, 0.09, **options)
    batch.query.normal_()
    batch.context_lens.sub_(torch.arange(len(rows), dtype=torch.int32, device="cuda"))
    batch.block_tables.copy_(batch.block_tables.flip(1))
    batch.block_tables.clamp_(min=1)
    batch.key_cache.nan_to_num_()
    batch.value_cache.nan_to_num_()
    out.fill_(torch.nan)
    graph.replay()
    plain = batch.call(paged_attention_reference, 0.09)
    assert_within_twice(out, plain, batch.cast(torch.float32).call(paged_attention_reference, 0.09))


@halves
@blocks
@pytest.mark.parametrize("shape", SHAPES)
def test_store_kv(shape: str, block: int, dtype: torch.dtype) -> None:
    heads, kv_heads, size = SHAPES[shape]
    torch.manual_seed(_fresh())
    fused = torch.randn(1000, heads + 2 * kv_heads, size, device="cuda", dtype=dtype)
    key, value = fused[:, heads : heads + kv_heads], fused[:, heads + kv_heads :]
    slots = torch.randperm(2048, device="cuda")[:1000]
    slots[::7] = -1
    caches = torch.full((2, 2048 // block, block, kv_heads, size), torch.nan, device="cuda", dtype=dtype)
    wanted = caches.clone()
    store_kv(key, value, caches[0], caches[1], slots)
    store_kv_reference(key, value, wanted[0], wanted[1], slots)
    torch.testing.assert_close(caches, wanted, rtol=0, atol=0, equal_nan=True)


@halves
def test_varlen_attention(assert_within_twice: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(_fresh())
    starts = torch.tensor([0, 1024, 1024, 1100, 1101, 5097], dtype=torch.int32)
    for heads, size in ((16, 80), (20, 64)):
        q, k, v = torch.randn(3, 5097, heads, size, device="cuda", dtype=dtype)
        result = varlen_attention(q, k, v, starts.cuda(), 3996, size**-0.5)
        plain = varlen_attention_reference(q, k, v, starts, size**-0.5)
        truth = varlen_attention_reference(q.float(), k.float(), v.float(), starts, size**-0.5)
        assert_within_twice(result, plain, truth)


@halves
def test_norm_and_gate(assert_within_twice: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(_fresh())
    x, residual = torch.randn(2, 65, 3584, device="cuda").to(dtype)
    weight = torch.randn(3584, device="cuda").to(dtype)
    normed, total = rms_norm(x, weight, 1e-6, residual)
    assert torch.equal(total, x + residual)
    plain = total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    assert_within_twice(normed, plain, rms_norm_reference(total.float(), weight.float(), 1e-6))
    assert torch.equal(rms_norm(total, weight, 1e-6), normed)
    assert_within_twice(swiglu(x), swiglu_reference(x), swiglu_reference(x.float()))


@halves
@pytest.mark.parametrize(("heads", "size", "turned"), [(28, 128, 128), (16, 80, 80), (32, 96, 32)])
def test_rotary(assert_within_twice: Any, heads: int, size: int, turned: int, dtype: torch.dtype) -> None:
    torch.manual_seed(_fresh())
    fused = torch.randn(65, heads + 4, size, device="cuda").to(dtype)
    q, k = fused[:, :heads], fused[:, heads:]
    angles = torch.randn(65, turned // 2, device="cuda") * 100
    cos, sin = angles.cos(), angles.sin()
    truth = rotary_reference(q.float(), k.float(), cos, sin)
    plain = rotary_reference(q, k, cos.to(dtype), sin.to(dtype))
    for result, rough, exact in zip(rotary(q, k, cos, sin), plain, truth, strict=True):
        assert_within_twice(result, rough, exact)


def test_copy_blocks() -> None:
    caches = torch.randn(2, 28, 64, 16, 4, 128, device="cuda").bfloat16()
    wanted = caches.clone()
    order = torch.randperm(64, device="cuda")
    sources, targets = order[:32], order[32:]
    copy_blocks_reference(wanted[0], wanted[1], sources, targets)
    copy_blocks(caches[0], caches[1], sources, targets)
    assert torch.equal(caches, wanted)
