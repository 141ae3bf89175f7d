"""Write this step's keys and values into their cache slots."""

from __future__ import annotations

import torch
from torch import Tensor

from mmcore.errors import EngineError
from mmcore.kernels.dispatch import use_triton

FP8_MAX = 448.0
"""Largest finite value of e4m3 (Micikevicius et al. 2022, arXiv 2209.05433)."""


def store_kv_reference(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    scales: Tensor | None = None,
) -> None:
    """Token by token, so that nothing but the definition of a slot is in it."""
    block_size = key_cache.shape[1]
    for side, (x, cache) in enumerate(((key, key_cache), (value, value_cache))):
        scale = None if scales is None else scales[side]
        for token, slot in enumerate(slot_mapping.tolist()):
            if slot >= 0:
                cache[slot // block_size, slot % block_size] = _cast(x[token], cache.dtype, scale)


def store_kv(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    scales: Tensor | None = None,
) -> None:
    """Write ``key`` and ``value`` [T, Hk, D] into ``key_cache`` and ``value_cache`` [N, B, Hk, D] in place.

    ``slot_mapping`` [T] int64 holds ``block * B + offset``; a negative slot is not written (padding of a
    captured graph). Slots of one call are distinct. ``scales`` float32 [2, Hk] (keys, values) go with a
    cache of ``torch.float8_e4m3fn``: what is written is the value over its head's scale, cut at 448. Safe to
    capture in a CUDA graph. Raises EngineError on shapes that don't fit.
    """
    check_store(key, value, key_cache, value_cache, slot_mapping)
    if use_triton(key):
        from mmcore.kernels.store_kv_triton import store_kv_triton

        store_kv_triton(key, value, key_cache, value_cache, slot_mapping, scales)
        return
    if slot_mapping.numel() and int(slot_mapping.min()) < 0:
        kept = slot_mapping >= 0
        key, value, slot_mapping = key[kept], value[kept], slot_mapping[kept]
    for side, (x, cache) in enumerate(((key, key_cache), (value, value_cache))):
        cast = _cast(x, cache.dtype, None if scales is None else scales[side])
        rows = cache.view(-1, *cache.shape[2:])  # [N * B, Hk, D]
        if scales is not None:  # torch copies bytes, no float8
            rows, cast = rows.view(torch.uint8), cast.view(torch.uint8)
        rows.index_copy_(0, slot_mapping, cast)


def _cast(x: Tensor, dtype: torch.dtype, scale: Tensor | None) -> Tensor:
    """``x`` [..., Hk, D] as a cache holds it; ``scale`` [Hk]."""
    if scale is None:
        return x.to(dtype)
    return (x.float() / scale[:, None]).clamp(-FP8_MAX, FP8_MAX).to(dtype)


def check_store(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> None:
    if key.shape != value.shape or key.shape[1:] != key_cache.shape[2:]:
        raise EngineError(
            f"store_kv: key {tuple(key.shape)} and value {tuple(value.shape)} must be [tokens, heads, "
            f"head size] of a cache {tuple(key_cache.shape)} [blocks, block size, heads, head size]"
        )
    if key_cache.shape != value_cache.shape or slot_mapping.shape != key.shape[:1]:
        raise EngineError(
            f"store_kv: caches {tuple(key_cache.shape)} and {tuple(value_cache.shape)} must be alike, and "
            f"slot_mapping {tuple(slot_mapping.shape)} must hold one slot for each of {key.shape[0]} tokens"
        )
