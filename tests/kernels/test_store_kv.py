"""``store_kv`` and ``copy_blocks``: what is written, and that nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcore.errors import EngineError
from mmcore.kernels.copy_blocks import copy_blocks, copy_blocks_reference
from mmcore.kernels.store_kv import store_kv, store_kv_reference


def _case(tokens: int, block: int, size: int, seed: int) -> tuple[torch.Tensor, ...]:
    """Keys and values as slices of one fused projection, random slots, every third not to be written."""
    random = torch.Generator().manual_seed(seed)
    fused = torch.randn(tokens, 6, size, generator=random)
    blocks = -(-tokens // block) + 2
    slots = torch.randperm(blocks * block, generator=random)[:tokens]
    slots[2::3] = -1
    caches = torch.full((2, blocks, block, 2, size), torch.nan)
    return fused[:, 2:4], fused[:, 4:6], caches[0], caches[1], slots


@given(st.integers(0, 40), st.sampled_from([1, 4, 16]), st.sampled_from([4, 16, 80]), st.integers(0, 2**31))
def test_cpu_equals_reference(tokens: int, block: int, size: int, seed: int) -> None:
    key, value, keys, values, slots = _case(tokens, block, size, seed)
    wanted_keys, wanted_values = keys.clone(), values.clone()
    store_kv_reference(key, value, wanted_keys, wanted_values, slots)
    store_kv(key, value, keys, values, slots)
    torch.testing.assert_close(keys, wanted_keys, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(values, wanted_values, rtol=0, atol=0, equal_nan=True)


@given(st.integers(0, 9), st.sampled_from([4, 16]), st.sampled_from([4, 80]), st.integers(0, 2**31))
@settings(max_examples=8)
def test_kernel_in_interpreter_equals_reference(
    interpreter: Any, tokens: int, block: int, size: int, seed: int
) -> None:
    key, value, keys, values, slots = _case(tokens, block, size, seed)
    _, written = interpreter.call("mmcore.kernels.store_kv", "store_kv", key, value, keys, values, slots)
    store_kv_reference(key, value, keys, values, slots)
    torch.testing.assert_close(written[2], keys, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(written[3], values, rtol=0, atol=0, equal_nan=True)


def test_half_precision_cache_rounds_once() -> None:
    key, value, keys, values, slots = _case(5, 4, 4, seed=0)
    keys, values = keys.bfloat16(), values.bfloat16()
    store_kv(key, value, keys, values, slots)
    assert torch.equal(keys[slots[0] // 4, slots[0] % 4], key[0].bfloat16())


def test_misfits_are_named() -> None:
    key, value, keys, values, slots = _case(5, 4, 4, seed=0)
    with pytest.raises(EngineError, match="head size"):
        store_kv(key[..., :2], value, keys, values, slots)
    with pytest.raises(EngineError, match="one slot for each of 5 tokens"):
        store_kv(key, value, keys, values, slots[:3])
    with pytest.raises(EngineError, match="2 sources for 1 targets"):
        copy_blocks(keys[None], values[None], torch.tensor([0, 1]), torch.tensor([2]))


@given(st.permutations(range(7)), st.permutations(range(7)), st.integers(0, 7))
def test_copy_blocks_equals_reference(sources: list[int], targets: list[int], count: int) -> None:
    """Also where a block is read by one copy and overwritten by another."""
    caches = torch.randn(2, 3, 7, 4, 2, 5)
    wanted = caches.clone()
    pairs = torch.tensor(sources[:count]), torch.tensor(targets[:count])
    pairs = pairs[0].long(), pairs[1].long()
    copy_blocks_reference(wanted[0], wanted[1], *pairs)
    copy_blocks(caches[0], caches[1], *pairs)
    assert torch.equal(caches, wanted)


def test_blocks_of_float8_are_copied_as_bytes() -> None:
    caches = torch.randn(2, 3, 7, 4, 2, 5).to(torch.float8_e4m3fn)
    wanted = caches.float()
    wanted[:, :, 5] = wanted[:, :, 2]
    copy_blocks(caches[0], caches[1], torch.tensor([2]), torch.tensor([5]))
    assert torch.equal(caches.float(), wanted)
