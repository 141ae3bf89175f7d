"""Attention at real shapes on a GPU: at most twice as far from float32 as plain torch in the same dtype."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
import torch

from mmcore.kernels.paged_attention import paged_attention, paged_attention_reference
from mmcore.kernels.store_kv import store_kv
from mmcore.kernels.varlen_attention import varlen_attention, varlen_attention_reference
from mmcore.kernels.varlen_attention_triton import varlen_attention_triton

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

SHAPES = {
    "qwen2vl-2b": (12, 2, 128),
    "qwen2.5vl-3b": (16, 2, 128),
    "qwen2vl-7b": (28, 4, 128),
    "qwen2vl-72b": (64, 8, 128),
    "llava-7b": (32, 32, 128),
    "llava-13b": (40, 40, 128),
    "next-mistral": (32, 8, 128),
    "onevision-0.5b": (14, 2, 64),
    "vila1.5-3b": (20, 20, 128),
    "opt-2.7b": (32, 32, 80),
    "whisper-tiny": (6, 6, 64),
    "whisper-large-v3": (20, 20, 64),
    "nougat": (16, 16, 64),
    "head-72": (16, 16, 72),
    "head-96": (32, 32, 96),
    "head-112": (16, 4, 112),
    "head-256": (8, 4, 256),
}
DECODE = [(1, n) for n in (1, 15, 16, 17, 63, 64, 65, 1000, 8192, 32768)]
MIXED = [(1, 9000), (322, 322), (100, 1000), (1, 1), (17, 4113), (7, 7), (0, 50), (1, 400), (2, 3)]
MANY = [(1, 1 + 97 * row % 2048) for row in range(192)]
LONG = [(1300, 5000), (1, 9000), (700, 700), (1, 77)]
PROMPTS = [(1100, 1100), (600, 1500), (900, 900), (1, 30), (513, 513)]
LISTS = {"decode": DECODE, "mixed": MIXED, "many": MANY, "long": LONG, "prompts": PROMPTS}
CASES = [(shape, rows, 16) for shape in SHAPES for rows in ("decode", "mixed")]
CASES += [(shape, "mixed", 64) for shape in ("qwen2vl-7b", "opt-2.7b", "whisper-large-v3")]
CASES += [(shape, rows, 16) for shape in ("qwen2vl-7b", "llava-7b") for rows in ("long", "prompts")]
CASES += [("qwen2vl-7b", "decode", 64), ("qwen2vl-7b", "many", 16), ("llava-7b", "many", 64)]

halves = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])


def _check(batch: Any, assert_within_twice: Any, scale: float, causal: bool = True, **options: Any) -> None:
    out = torch.full_like(batch.query, torch.nan)
    result = batch.call(paged_attention, scale, causal, max_query_len=batch.max_query_len, out=out, **options)
    plain = batch.call(paged_attention_reference, scale, causal, **options)
    truth = batch.cast(torch.float32).call(paged_attention_reference, scale, causal, **options)
    assert_within_twice(result, plain, truth)


@halves
@pytest.mark.parametrize(("shape", "rows", "block"), CASES)
def test_paged_attention(
    make_batch: Any,
    assert_within_twice: Any,
    fresh_seed: int,
    shape: str,
    rows: str,
    block: int,
    dtype: torch.dtype,
) -> None:
    *heads, size = SHAPES[shape]
    batch = make_batch(LISTS[rows], heads, size, block, seed=fresh_seed, dtype=dtype, device="cuda")
    _check(batch, assert_within_twice, size**-0.5)


CROSS = {  # heads, head size, positions: speech encoder, pages, pictures with text
    "whisper-tiny": (6, 64, 1500),
    "whisper-base": (8, 64, 1500),
    "whisper-small": (12, 64, 1500),
    "whisper-medium": (16, 64, 1500),
    "whisper-large-v3": (20, 64, 1500),
    "nougat": (16, 64, 588),
    "flan-t5-xl": (32, 64, 75),
}


@halves
@pytest.mark.parametrize("shape", CROSS)
@pytest.mark.parametrize("kind", ["one", "many", "mixed"])
def test_cross_attention(
    make_batch: Any, assert_within_twice: Any, fresh_seed: int, shape: str, kind: str, dtype: torch.dtype
) -> None:
    heads, size, context = CROSS[shape]
    rows = {
        "one": [(1, context)],
        "many": [(1, context - row) for row in range(16)],
        "mixed": [(4, context), (1, context), (3, 0), (1, 0), (224, context)],
    }[kind]
    batch = make_batch(rows, (heads, heads), size, 16, seed=fresh_seed, dtype=dtype, device="cuda")
    _check(batch, assert_within_twice, size**-0.5, causal=False)


@halves
@pytest.mark.parametrize("rows", ["decode", "mixed"])
@pytest.mark.parametrize("heads", [32, 64], ids=["flan-t5-xl", "flan-t5-xxl"])
def test_relative_bias(
    make_batch: Any, assert_within_twice: Any, fresh_seed: int, heads: int, rows: str, dtype: torch.dtype
) -> None:
    """A bias for each distance up to 128, and no scale."""
    batch = make_batch(LISTS[rows], (heads, heads), 64, 16, seed=fresh_seed, dtype=dtype, device="cuda")
    batch.query.mul_(0.125)
    _check(batch, assert_within_twice, 1.0, bias=torch.randn(heads, 129, device="cuda"))


@halves
@pytest.mark.parametrize("rows", ["decode", "mixed", "many"])
@pytest.mark.parametrize("shape", ["qwen2vl-7b", "llava-7b", "opt-2.7b", "whisper-large-v3"])
def test_float8_cache(
    make_batch: Any, assert_within_twice: Any, fresh_seed: int, shape: str, rows: str, dtype: torch.dtype
) -> None:
    """Beside plain torch on what the bytes stand for; and near the half-precision cache they came from."""
    heads, kv_heads, size = SHAPES[shape]
    batch = make_batch(LISTS[rows], (heads, kv_heads), size, 16, seed=fresh_seed, dtype=dtype, device="cuda")
    scales = torch.rand(2, kv_heads, device="cuda") * 0.02 + 0.01
    caches = torch.empty(2, *batch.key_cache.shape, device="cuda").to(torch.float8_e4m3fn)
    keys, values = (x.nan_to_num().flatten(0, 1) for x in (batch.key_cache, batch.value_cache))
    store_kv(keys, values, caches[0], caches[1], torch.arange(len(keys), device="cuda"), scales)
    options = {"max_query_len": batch.max_query_len}
    arrays = batch.query, *caches, *batch.arrays()[3:], size**-0.5
    result = paged_attention(*arrays, **options, scales=scales)
    plain = paged_attention_reference(*arrays, scales=scales)
    truth = paged_attention_reference(batch.query.float(), *arrays[1:], scales=scales)
    assert_within_twice(result, plain, truth)
    half = batch.call(paged_attention, size**-0.5, **options)
    assert float((result - half).float().norm()) <= 0.06 * float(half.float().norm())


@pytest.mark.parametrize("rows", [DECODE, MIXED])
@pytest.mark.parametrize("bias", [False, True])
def test_float32(make_batch: Any, fresh_seed: int, rows: list[tuple[int, int]], bias: bool) -> None:
    batch = make_batch(rows, (12, 4), 64, 16, seed=fresh_seed, device="cuda")
    table = torch.randn(12, 128, device="cuda") if bias else None
    result = batch.call(paged_attention, 0.125, max_query_len=batch.max_query_len, bias=table)
    truth = batch.call(paged_attention_reference, 0.125, bias=table)
    torch.testing.assert_close(result, truth, rtol=0, atol=2e-5)


@pytest.mark.parametrize("rows", [[(1, 300)] * 8, [(40, 300), (1, 5000), (1, 17), (0, 1)]])
def test_graph_replay_follows_new_lengths(
    make_batch: Any, assert_within_twice: Any, fresh_seed: int, rows: list[tuple[int, int]]
) -> None:
    """Captured once, replayed with other lengths, tables and values in the same memory."""
    batch = make_batch(rows, (28, 4), 128, 16, seed=fresh_seed, dtype=torch.bfloat16, device="cuda")
    out = torch.empty_like(batch.query)
    options = {"max_query_len": batch.max_query_len, "out": out}
    batch.call(paged_attention, 0.09, **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):  # the splits of one call follow those of another in the same memory
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


TOWERS = {
    "clip-l": (16, 64),
    "siglip": (16, 72),
    "qwen2vl": (16, 80),
    "eva-g": (16, 88),
    "internvit": (25, 128),
    "whisper": (20, 64),
}
SEGMENTS = {
    "pictures": [1024, 0, 76, 1, 3996],
    "windows": [64, 64, 48, 64, 16, 64, 64],
    "equal": [577] * 4,
}


@halves
@pytest.mark.parametrize("tower", TOWERS)
@pytest.mark.parametrize("kind", SEGMENTS)
def test_varlen_attention(
    assert_within_twice: Any, fresh_seed: int, tower: str, kind: str, dtype: torch.dtype
) -> None:
    lens, (heads, size) = SEGMENTS[kind], TOWERS[tower]
    starts = torch.tensor(list(accumulate(lens, initial=0)), dtype=torch.int32, device="cuda")
    fused = torch.randn(sum(lens), 3 * heads, size, device="cuda").to(dtype)
    q, k, v = fused.chunk(3, dim=1)
    plain = varlen_attention_reference(q, k, v, starts, size**-0.5)
    truth = varlen_attention_reference(q.float(), k.float(), v.float(), starts, size**-0.5)
    for attend in (varlen_attention, varlen_attention_triton):
        assert_within_twice(attend(q, k, v, starts, max(lens), size**-0.5), plain, truth)


def test_varlen_graph_replay_follows_new_starts(assert_within_twice: Any, fresh_seed: int) -> None:
    starts = torch.tensor([0, 300, 700, 1000], dtype=torch.int32, device="cuda")
    q, k, v = torch.randn(3, 1000, 16, 80, device="cuda").bfloat16()
    varlen_attention(q, k, v, starts, 900, 0.1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = varlen_attention(q, k, v, starts, 900, 0.1)
    starts.copy_(torch.tensor([0, 0, 129, 1000]))
    graph.replay()
    truth = varlen_attention_reference(q.float(), k.float(), v.float(), starts, 0.1)
    assert_within_twice(out, varlen_attention_reference(q, k, v, starts, 0.1), truth)
