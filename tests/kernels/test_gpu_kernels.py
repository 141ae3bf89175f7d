"""Operations on tokens at real shapes on a GPU: at most twice as far from float32 as plain torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mmcore.kernels.argmax import argmax, argmax_reference
from mmcore.kernels.copy_blocks import copy_blocks, copy_blocks_reference
from mmcore.kernels.merge_embeddings import merge_embeddings, merge_embeddings_reference
from mmcore.kernels.rms_norm import rms_norm, rms_norm_reference
from mmcore.kernels.rotary import rotary, rotary_reference
from mmcore.kernels.rotary_angles import rotary_angles, rotary_angles_reference
from mmcore.kernels.rotary_store_kv import rotary_store_kv
from mmcore.kernels.skinny_linear import RowNorm, skinny_linear, skinny_linear_reference
from mmcore.kernels.store_kv import store_kv, store_kv_reference
from mmcore.kernels.swiglu import swiglu, swiglu_reference

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

HEADS = {
    "qwen2vl-2b": (12, 2, 128),
    "qwen2vl-7b": (28, 4, 128),
    "qwen2vl-72b": (64, 8, 128),
    "llava-7b": (32, 32, 128),
    "opt-2.7b": (32, 32, 80),
    "whisper-large-v3": (20, 20, 64),
    "onevision-0.5b": (14, 2, 64),
    "head-96": (32, 32, 96),
    "head-256": (8, 4, 256),
}
HIDDEN = [384, 896, 1280, 1536, 2048, 2560, 3584, 4096, 5120, 8192]
INTERMEDIATE = [4864, 6912, 8960, 11008, 13824, 14336, 18944, 29568]
FP8 = torch.float8_e4m3fn

halves = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
shapes = pytest.mark.parametrize("shape", HEADS)


def _fused(shape: str, dtype: torch.dtype, tokens: int = 1000) -> tuple[torch.Tensor, ...]:
    """q, k and v as parts of one product."""
    heads, kv_heads, size = HEADS[shape]
    fused = torch.randn(tokens, heads + 2 * kv_heads, size, device="cuda").to(dtype)
    q, k, v = torch.split(fused, [heads, kv_heads, kv_heads], dim=1)
    return q, k, v


def _slots() -> torch.Tensor:
    slots = torch.randperm(2048, device="cuda")[:1000]
    slots[::7] = -1
    return slots


@halves
@shapes
@pytest.mark.parametrize("block", [16, 64])
def test_store_kv(fresh_seed: int, shape: str, block: int, dtype: torch.dtype) -> None:
    _, key, value = _fused(shape, dtype)
    caches = torch.full((2, 2048 // block, block, *key.shape[1:]), torch.nan, device="cuda", dtype=dtype)
    wanted, slots = caches.clone(), _slots()
    store_kv(key, value, caches[0], caches[1], slots)
    store_kv_reference(key, value, wanted[0], wanted[1], slots)
    torch.testing.assert_close(caches, wanted, rtol=0, atol=0, equal_nan=True)


@halves
@shapes
@pytest.mark.parametrize("cache", ["half", "fp8"])
def test_rotary_store_kv_is_bit_equal_to_its_parts(
    fresh_seed: int, shape: str, cache: str, dtype: torch.dtype
) -> None:
    q, k, v = _fused(shape, dtype)
    angles = torch.randn(1000, k.shape[2] // 2, device="cuda") * 100
    caches = torch.zeros(2, 128, 16, *k.shape[1:], device="cuda").to(FP8 if cache == "fp8" else dtype)
    scales = torch.rand(2, k.shape[1], device="cuda") * 0.02 + 0.002 if cache == "fp8" else None
    wanted, slots = caches.clone(), _slots()
    turned = rotary_store_kv(q, k, v, angles.cos(), angles.sin(), caches[0], caches[1], slots, scales)
    wanted_q, wanted_k = rotary(q, k, angles.cos(), angles.sin())
    store_kv_reference(wanted_k, v, wanted[0], wanted[1], slots, scales)
    assert torch.equal(turned, wanted_q)
    assert torch.equal(caches.view(torch.uint8), wanted.view(torch.uint8))
    caches.view(torch.uint8).zero_()
    store_kv(wanted_k, v, caches[0], caches[1], slots, scales)
    assert torch.equal(caches.view(torch.uint8), wanted.view(torch.uint8))


@halves
@pytest.mark.parametrize("width", HIDDEN)
def test_rms_norm(fresh_seed: int, assert_within_twice: Any, width: int, dtype: torch.dtype) -> None:
    x, residual = torch.randn(2, 65, width, device="cuda").to(dtype)
    weight = torch.randn(width, device="cuda").to(dtype)
    normed, total = rms_norm(x, weight, 1e-6, residual)
    assert torch.equal(total, x + residual)
    plain = total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    assert_within_twice(normed, plain, rms_norm_reference(total.float(), weight.float(), 1e-6))
    assert torch.equal(rms_norm(total, weight, 1e-6), normed)


@halves
@pytest.mark.parametrize("width", INTERMEDIATE)
def test_swiglu(fresh_seed: int, assert_within_twice: Any, width: int, dtype: torch.dtype) -> None:
    x = torch.randn(65, 2 * width, device="cuda").to(dtype)
    assert_within_twice(swiglu(x), swiglu_reference(x), swiglu_reference(x.float()))


@halves
@pytest.mark.parametrize(
    ("heads", "size", "turned"),
    [(28, 128, 128), (64, 128, 128), (16, 80, 80), (16, 72, 72), (14, 64, 64), (32, 96, 32)],
)
def test_rotary(
    fresh_seed: int, assert_within_twice: Any, heads: int, size: int, turned: int, dtype: torch.dtype
) -> None:
    fused = torch.randn(65, heads + 4, size, device="cuda").to(dtype)
    q, k = fused[:, :heads], fused[:, heads:]
    angles = torch.randn(65, turned // 2, device="cuda") * 100
    cos, sin = angles.cos(), angles.sin()
    truth = rotary_reference(q.float(), k.float(), cos, sin)
    plain = rotary_reference(q, k, cos.to(dtype), sin.to(dtype))
    for result, rough, exact in zip(rotary(q, k, cos, sin), plain, truth, strict=True):
        assert_within_twice(result, rough, exact)


@pytest.mark.parametrize("sections", [(64,), (16, 24, 24), (40,)])
def test_rotary_angles(fresh_seed: int, sections: tuple[int, ...]) -> None:
    """Beside torch's float32 functions of the same angles, both against float64."""
    half = sum(sections)
    axis = torch.tensor([n for n, size in enumerate(sections) for _ in range(size)], device="cuda")
    frequencies = 1e6 ** -(torch.arange(half, device="cuda") / half)
    positions = torch.randint(0, 131_072, (len(sections), 3000), device="cuda")
    angles = positions[axis].t().float() * frequencies
    plain = rotary_angles_reference(positions, frequencies, axis)
    for got, rough, exact in zip(
        rotary_angles(positions, frequencies, axis),
        plain,
        (angles.double().cos(), angles.double().sin()),
        strict=True,
    ):
        assert float((got - exact).abs().max()) <= 2 * float((rough - exact).abs().max()) + 1e-7


@halves
@pytest.mark.parametrize("width", HIDDEN)
def test_merge_embeddings(fresh_seed: int, width: int, dtype: torch.dtype) -> None:
    hidden = torch.randn(1065, width, device="cuda").to(dtype)
    rows = torch.randn(999, width, device="cuda")
    positions = torch.randperm(1065, device="cuda")[:999]
    positions[::9] = -1
    wanted = merge_embeddings_reference(hidden.clone(), rows, positions)
    assert torch.equal(merge_embeddings(hidden, rows, positions), wanted)


LINEAR = [  # width, depth, gated
    (4608, 3584, False), (3584, 3584, False), (18944, 3584, True), (3584, 18944, False),
    (152064, 3584, False), (8960, 1536, True), (11008, 4096, True), (5120, 1280, False),
    (32064, 4096, False), (51866, 1280, False), (1280, 1280, False), (3840, 1280, False), (1280, 5120, False),
]  # fmt: skip


@halves
@pytest.mark.parametrize("rows", [1, 2, 8, 16])
@pytest.mark.parametrize(("width", "depth", "gated"), LINEAR)
def test_skinny_linear(
    fresh_seed: int,
    assert_within_twice: Any,
    width: int,
    depth: int,
    gated: bool,
    rows: int,
    dtype: torch.dtype,
) -> None:
    x = torch.randn(rows, depth, device="cuda").to(dtype)
    weight = (torch.randn(width * (1 + gated), depth, device="cuda") / depth**0.5).to(dtype)
    bias, residual = torch.randn(len(weight), device="cuda"), torch.randn(rows, width, device="cuda")
    arguments = x, weight, bias.to(dtype), residual.to(dtype)
    truth = skinny_linear_reference(*(t.float() for t in arguments), gated=gated)
    result = skinny_linear(*arguments, gated=gated)
    assert_within_twice(result, skinny_linear_reference(*arguments, gated=gated), truth)
    alone = skinny_linear(x, weight, gated=gated)
    plain = F.linear(x, weight)
    exact = F.linear(x.float(), weight.float())
    if gated:
        plain, exact = swiglu_reference(plain), swiglu_reference(exact)
    assert_within_twice(alone, plain, exact)


@halves
@pytest.mark.parametrize("rows", [1, 3, 16])
@pytest.mark.parametrize("act", [None, "gelu", "gelu_tanh", "quick_gelu", "relu", "silu"])
@pytest.mark.parametrize(
    ("width", "depth", "centred"), [(5120, 1280, True), (1280, 512, True), (896, 896, False)]
)
def test_norm_before_and_activation_after(
    fresh_seed: int,
    assert_within_twice: Any,
    width: int,
    depth: int,
    centred: bool,
    act: str | None,
    rows: int,
    dtype: torch.dtype,
) -> None:
    x = torch.randn(rows, depth, device="cuda") + 2
    weight = torch.randn(width, depth, device="cuda") / depth**0.5
    bias, residual = torch.randn(width, device="cuda"), torch.randn(rows, width, device="cuda")
    gain, shift = 1 + torch.randn(2, depth, device="cuda") / 4
    halves = [t.to(dtype) for t in (x, weight, bias, residual, gain, shift)]
    norm = RowNorm(halves[4], halves[5] if centred else None, 1e-5)
    exact = RowNorm(norm.weight.float(), None if norm.bias is None else norm.bias.float(), 1e-5)
    result = skinny_linear(*halves[:4], norm=norm, act=act)
    plain = skinny_linear_reference(*halves[:4], norm=norm, act=act)
    truth = skinny_linear_reference(*(t.float() for t in halves[:4]), norm=exact, act=act)
    assert_within_twice(result, plain, truth)


@pytest.mark.parametrize("rows", [1, 16])
def test_a_chain_of_products_waits_for_each(fresh_seed: int, rows: int) -> None:
    """Each kernel starts before the one in front of it ends, in a graph as well."""
    weights = torch.randn(24, 1280, 1280, device="cuda").bfloat16() / 1280**0.5
    x = torch.randn(rows, 1280, device="cuda").bfloat16()
    gain, shift = torch.ones(2, 1280, device="cuda").bfloat16()
    norm = RowNorm(gain, shift, 1e-5)

    def chain(step_by_step: bool) -> torch.Tensor:
        hidden = x
        for weight in weights:
            hidden = skinny_linear(hidden, weight, residual=hidden, norm=norm, act="gelu")
            if step_by_step:
                torch.cuda.synchronize()
        return hidden

    wanted = chain(step_by_step=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = chain(step_by_step=False)
    for _ in range(20):
        found.fill_(torch.nan)
        graph.replay()
        assert torch.equal(found, wanted)
    assert torch.equal(chain(step_by_step=False), wanted)


@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize("width", [32064, 51866, 152064])
def test_argmax(fresh_seed: int, rows: int, width: int) -> None:
    logits = torch.randn(rows, width, device="cuda").bfloat16()  # rounded, so that equals occur
    logits[::3, -1] = torch.nan
    for found in (argmax(logits), argmax(logits.float())):
        for one, wanted in zip(found, argmax_reference(logits), strict=True):
            assert torch.equal(one.nan_to_num(nan=0.5), wanted.nan_to_num(nan=0.5))


def test_copy_blocks(fresh_seed: int) -> None:
    caches = torch.randn(2, 28, 64, 16, 4, 128, device="cuda").bfloat16()
    wanted = caches.clone()
    order = torch.randperm(64, device="cuda")
    sources, targets = order[:32], order[32:]
    copy_blocks_reference(wanted[0], wanted[1], sources, targets)
    copy_blocks(caches[0], caches[1], sources, targets)
    assert torch.equal(caches, wanted)
