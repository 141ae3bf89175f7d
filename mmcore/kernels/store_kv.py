"""Write this step's keys and values into their cache slots."""

from __future__ import annotations

from torch import Tensor

from mmcore.errors import EngineError
from mmcore.kernels.dispatch import use_triton


def store_kv_reference(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> None:
    """Token by token, so that nothing but the definition of a slot is in it."""
    block_size = key_cache.shape[1]
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            key_cache[slot // block_size, slot % block_size] = key[token].to(key_cache.dtype)
            value_cache[slot // block_size, slot % block_size] = value[token].to(value_cache.dtype)


def store_kv(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> None:
    """Write ``key`` and ``value`` [T, Hk, D] into ``key_cache`` and ``value_cache`` [N, B, Hk, D] in place.

    ``slot_mapping`` [T] int64 holds ``block * B + offset``; a negative slot is not written (padding of a
    captured graph). Slots of one call are distinct. Safe to capture in a CUDA graph. Raises EngineError on
    shapes that don't fit.
    """
    _check(key, value, key_cache, value_cache, slot_mapping)
    if use_triton(key):
        from mmcore.kernels.store_kv_triton import store_kv_triton

        store_kv_triton(key, value, key_cache, value_cache, slot_mapping)
        return
    if slot_mapping.numel() and int(slot_mapping.min()) < 0:
        kept = slot_mapping >= 0
        key, value, slot_mapping = key[kept], value[kept], slot_mapping[kept]
    _rows(key_cache).index_copy_(0, slot_mapping, key.to(key_cache.dtype))
    _rows(value_cache).index_copy_(0, slot_mapping, value.to(value_cache.dtype))


def _rows(cache: Tensor) -> Tensor:
    """[N, B, Hk, D] -> [N * B, Hk, D], the same memory."""
    return cache.view(-1, cache.shape[2], cache.shape[3])


def _check(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
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
