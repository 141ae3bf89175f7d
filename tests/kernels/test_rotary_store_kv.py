"""``rotary_store_kv``: bit for bit ``rotary`` and ``store_kv`` in turn, on the CPU and in the interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mmcore.errors import EngineError
from mmcore.kernels.rotary import rotary
from mmcore.kernels.rotary_store_kv import rotary_store_kv, rotary_store_kv_reference
from mmcore.kernels.store_kv import store_kv, store_kv_reference

PLACE = "mmcore.kernels.rotary_store_kv", "rotary_store_kv"
shapes = st.sampled_from([(4, 2, 8, 8), (3, 1, 20, 20), (2, 2, 12, 8), (2, 1, 80, 80)])


def case(tokens: int, shape: tuple[int, int, int, int], seed: int) -> list[Tensor]:
    """q, k, v as parts of a fused product, angles, poisoned caches, slots of which every third is padding."""
    heads, kv_heads, size, turned = shape
    random = torch.Generator().manual_seed(seed)
    fused = torch.randn(tokens, heads + 2 * kv_heads, size, generator=random)
    q, k, v = torch.split(fused, [heads, kv_heads, kv_heads], dim=1)
    angles = torch.randn(tokens, turned // 2, generator=random) * 100
    slots = torch.randperm((tokens + 2) * 4, generator=random)[:tokens]
    slots[2::3] = -1
    caches = torch.full((2, tokens + 2, 4, kv_heads, size), torch.nan)
    return [q, k, v, angles.cos(), angles.sin(), caches[0], caches[1], slots]


@given(st.integers(0, 6), shapes, st.integers(0, 2**31))
@settings(max_examples=20)
def test_equals_the_reference(
    interpreter: Any, tokens: int, shape: tuple[int, int, int, int], seed: int
) -> None:
    *inputs, keys, values, slots = case(tokens, shape, seed)
    wanted = keys.clone(), values.clone()
    turned = rotary_store_kv_reference(*[*inputs, *wanted, slots])
    from_kernel, written = interpreter.call(*PLACE, *inputs, keys, values, slots)
    from_cpu = rotary_store_kv(*[*inputs, keys, values, slots])
    for q, cached in ((from_kernel, written[5:7]), (from_cpu, (keys, values))):
        torch.testing.assert_close(q, turned)
        for got, right in zip(cached, wanted, strict=True):
            torch.testing.assert_close(got, right, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_kernel_is_bit_equal_to_its_parts(interpreter: Any, dtype: torch.dtype) -> None:
    q, k, v, cos, sin, keys, values, slots = case(7, (4, 2, 16, 12), seed=1)
    q, k, v, keys, values = (x.to(dtype) for x in (q, k, v, keys, values))
    (turned_q, turned_k), _ = interpreter.call("mmcore.kernels.rotary", "rotary", q, k, cos, sin)
    place = "mmcore.kernels.store_kv", "store_kv"
    _, apart = interpreter.call(*place, turned_k, v, keys, values, slots)
    together, written = interpreter.call(*PLACE, q, k, v, cos, sin, keys, values, slots)
    assert torch.equal(together, turned_q)
    for got, wanted in zip(written[5:7], apart[2:4], strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)


def test_a_float8_cache_holds_the_value_over_its_scale() -> None:
    """Within half a step of e4m3 (three bits of mantissa), and cut at the largest value."""
    q, k, v, cos, sin, keys, values, slots = case(6, (4, 2, 16, 16), seed=2)
    slots = torch.arange(6) * 3
    scales = torch.tensor([[0.01, 0.02], [0.03, 0.001]])
    keys, values = (torch.zeros_like(x).to(torch.float8_e4m3fn) for x in (keys, values))
    alone = keys.clone(), values.clone()
    rotary_store_kv(q, k, v, cos, sin, keys, values, slots, scales)
    _, turned = rotary(q, k, cos, sin)
    for side, (cache, x) in enumerate(((keys, turned), (values, v))):
        scale = scales[side][:, None]
        found = cache.float().view(-1, 2, 16)[slots] * scale
        wanted = x.clamp(-448 * scale, 448 * scale)
        assert ((found - wanted).abs() <= wanted.abs() / 16 + scale / 512).all()
    store_kv_reference(turned, v, *alone, slots, scales)
    assert torch.equal(keys.view(torch.uint8), alone[0].view(torch.uint8))
    assert torch.equal(values.view(torch.uint8), alone[1].view(torch.uint8))


def test_misfits_are_named() -> None:
    q, k, v, cos, sin, keys, values, slots = case(3, (4, 2, 8, 8), seed=0)
    with pytest.raises(EngineError, match="at most half of the head size 8"):
        rotary_store_kv(q, k, v, cos[:2], sin, keys, values, slots)
    with pytest.raises(EngineError, match="one slot for each of 3 tokens"):
        rotary_store_kv(q, k, v, cos, sin, keys, values, slots[:2])
    with pytest.raises(EngineError, match="head size"):
        store_kv(k[..., :2], v, keys, values, slots)
