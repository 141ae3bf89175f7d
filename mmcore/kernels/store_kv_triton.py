"""Triton kernel of ``store_kv``: one program a token, key and value in one launch."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from mmcore.errors import EngineError
from mmcore.kernels.chain_triton import begin, chains, pdl
from mmcore.kernels.launch import RowLauncher
from mmcore.kernels.store_kv import FP8_MAX

LARGEST = tl.constexpr(FP8_MAX)


@triton.jit
def to_cache(x, scale, inside, dtype: tl.constexpr, HAS_SCALES: tl.constexpr):
    """``x`` in the cache's dtype, over the scales at ``scale`` where there are any."""
    if HAS_SCALES:
        x = tl.div_rn(x.to(tl.float32), tl.load(scale, mask=inside, other=1.0))
        x = tl.minimum(tl.maximum(x, -LARGEST), LARGEST)
    return x.to(dtype)


@triton.jit
def _store(
    key,
    value,
    key_cache,
    value_cache,
    slot_mapping,
    scales,
    key_stride,
    value_stride,
    block_stride,
    slot_stride,
    BLOCK_SIZE: tl.constexpr,
    SIZE: tl.constexpr,
    HEAD_STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    CHAINED: tl.constexpr,
):
    begin(CHAINED)
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token)
    if slot >= 0:
        column = tl.arange(0, BLOCK)
        inside = column < WIDTH
        target = slot // BLOCK_SIZE * block_stride + slot % BLOCK_SIZE * slot_stride
        target += column // SIZE * HEAD_STRIDE + column % SIZE
        keys = tl.load(key + token * key_stride + column, mask=inside)
        values = tl.load(value + token * value_stride + column, mask=inside)
        scale = scales + column // SIZE
        keys = to_cache(keys, scale, inside, key_cache.dtype.element_ty, HAS_SCALES)
        values = to_cache(values, scale + HEADS, inside, value_cache.dtype.element_ty, HAS_SCALES)
        tl.store(key_cache + target, keys, mask=inside)
        tl.store(value_cache + target, values, mask=inside)


_launch = RowLauncher(_store)


def check_caches(key_cache: Tensor, value_cache: Tensor) -> None:
    if key_cache.stride() != value_cache.stride() or key_cache.stride(3) != 1:
        raise EngineError("store_kv: caches must be strided alike, and their last dimension be contiguous")


def store_kv_triton(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    scales: Tensor | None = None,
) -> None:
    """As ``store_kv``; the caches may be strided alike, the heads of a token lie side by side."""
    check_caches(key_cache, value_cache)
    tokens, heads, size = key.shape
    if tokens == 0:
        return
    key, value = (x if x.stride()[1:] == (size, 1) else x.contiguous() for x in (key, value))
    width = heads * size
    chained, block = chains(key.device), triton.next_power_of_2(width)
    arguments = (
        key, value, key_cache, value_cache, slot_mapping, slot_mapping if scales is None else scales,
        key.stride(0), value.stride(0), key_cache.stride(0), key_cache.stride(1), key_cache.shape[1], size,
        key_cache.stride(2), width, heads, block, scales is not None, chained,
    )  # fmt: skip
    _launch(arguments, tokens, num_warps=min(8, max(1, block // 256)), **pdl(chained))
