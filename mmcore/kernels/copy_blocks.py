"""Copy whole cache blocks, in every layer at once: the tail of a forked sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from mmcore.errors import EngineError


def copy_blocks_reference(key_cache: Tensor, value_cache: Tensor, sources: Tensor, targets: Tensor) -> None:
    """Block by block, from a snapshot: a block that is source and target gives what it held before."""
    for cache in (key_cache, value_cache):
        before = cache.clone()
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            cache[:, target] = before[:, source]


def copy_blocks(key_cache: Tensor, value_cache: Tensor, sources: Tensor, targets: Tensor) -> None:
    """Copy blocks ``sources`` [K] int64 to ``targets`` [K] int64 in caches [L, N, B, Hk, D], in place.

    All sources are read before any target is written. Targets are distinct. Raises EngineError when the two
    lists differ in length.
    """
    if sources.shape != targets.shape:
        raise EngineError(f"copy_blocks: {sources.numel()} sources for {targets.numel()} targets")
    for cache in (key_cache, value_cache):
        if cache.itemsize == 1:  # torch moves bytes, no float8
            cache = cache.view(torch.uint8)
        cache.index_copy_(1, targets, cache.index_select(1, sources))
