"""Triton kernel of ``rotary_store_kv``: a token's query heads in one program, keys and values in another."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from mmcore.kernels.chain_triton import begin, chains, pdl
from mmcore.kernels.launch import RowLauncher, adjoining
from mmcore.kernels.rotary_triton import copy_rest, turn_heads
from mmcore.kernels.store_kv_triton import check_caches, to_cache


@triton.jit
def _store_heads(
    x, target, scale, heads, X_HEAD_STRIDE, HEAD_STRIDE, BEGIN, END,
    BLOCK_HEADS: tl.constexpr, BLOCK: tl.constexpr, HAS_SCALES: tl.constexpr,
):  # fmt: skip
    """Values ``BEGIN`` to ``END`` of each head, as they are."""
    head = tl.arange(0, BLOCK_HEADS)[:, None]
    d = BEGIN + tl.arange(0, BLOCK)[None, :]
    inside = (head < heads) & (d < END)
    value = tl.load(x + head * X_HEAD_STRIDE + d, mask=inside, other=0.0)
    value = to_cache(value, scale + head, head < heads, target.dtype.element_ty, HAS_SCALES)
    tl.store(target + head * HEAD_STRIDE + d, value, mask=inside)


@triton.jit
def _store_turned(
    x, target, scale, cos, sin, heads, X_HEAD_STRIDE, HEAD_STRIDE, HALF,
    BLOCK_HEADS: tl.constexpr, BLOCK: tl.constexpr, HAS_SCALES: tl.constexpr,
):  # fmt: skip
    """Rounded to the dtype of ``x`` before it is scaled, as by ``rotary`` and ``store_kv`` in turn."""
    head = tl.arange(0, BLOCK_HEADS)[:, None]
    d = tl.arange(0, BLOCK)[None, :]
    inside = (head < heads) & (d < HALF)
    first = tl.load(x + head * X_HEAD_STRIDE + d, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x + head * X_HEAD_STRIDE + HALF + d, mask=inside, other=0.0).to(tl.float32)
    low = (first * cos - second * sin).to(x.dtype.element_ty)
    high = (second * cos + first * sin).to(x.dtype.element_ty)
    low = to_cache(low, scale + head, head < heads, target.dtype.element_ty, HAS_SCALES)
    high = to_cache(high, scale + head, head < heads, target.dtype.element_ty, HAS_SCALES)
    place = target + head * HEAD_STRIDE + d
    tl.store(place, low, mask=inside)
    tl.store(place + HALF, high, mask=inside)


@triton.jit
def _rotate_store(
    q, k, v, q_out, cos, sin, key_cache, value_cache, slot_mapping, scales,
    q_stride, k_stride, v_stride, angle_stride, block_stride, slot_stride,
    Q_HEADS: tl.constexpr,
    K_HEADS: tl.constexpr,
    Q_HEAD_STRIDE: tl.constexpr,
    K_HEAD_STRIDE: tl.constexpr,
    V_HEAD_STRIDE: tl.constexpr,
    HEAD_STRIDE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SIZE: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    begin(CHAINED)
    token = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    c = tl.load(cos + token * angle_stride + d, mask=d < HALF, other=0.0).to(tl.float32)[None, :]
    s = tl.load(sin + token * angle_stride + d, mask=d < HALF, other=0.0).to(tl.float32)[None, :]
    if tl.program_id(1) == 0:
        source = q + token * q_stride
        target = q_out + token * Q_HEADS * SIZE
        turn_heads(source, target, c, s, Q_HEADS, Q_HEAD_STRIDE, SIZE, HALF, BLOCK_Q, BLOCK)
        if SIZE > 2 * HALF:
            copy_rest(source, target, Q_HEADS, Q_HEAD_STRIDE, SIZE, 2 * HALF, BLOCK_Q, BLOCK_REST)
    else:
        slot = tl.load(slot_mapping + token)
        if slot >= 0:
            place = slot // BLOCK_SIZE * block_stride + slot % BLOCK_SIZE * slot_stride
            _store_turned(
                k + token * k_stride, key_cache + place, scales, c, s, K_HEADS, K_HEAD_STRIDE, HEAD_STRIDE,
                HALF, BLOCK_K, BLOCK, HAS_SCALES,
            )  # fmt: skip
            if SIZE > 2 * HALF:
                _store_heads(
                    k + token * k_stride, key_cache + place, scales, K_HEADS, K_HEAD_STRIDE, HEAD_STRIDE,
                    2 * HALF, SIZE, BLOCK_K, BLOCK_REST, HAS_SCALES,
                )  # fmt: skip
            _store_heads(
                v + token * v_stride, value_cache + place, scales + K_HEADS, K_HEADS, V_HEAD_STRIDE,
                HEAD_STRIDE, 0, SIZE, BLOCK_K, BLOCK_D, HAS_SCALES,
            )  # fmt: skip


_launch = RowLauncher(_rotate_store)


def rotary_store_kv_triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    scales: Tensor | None = None,
) -> Tensor:
    """As ``rotary_store_kv``."""
    check_caches(key_cache, value_cache)
    q, k, v = (adjoining(x) for x in (q, k, v))
    tokens, heads, size = q.shape
    kv_heads, half = k.shape[1], cos.shape[-1]
    q_out = q.new_empty(q.shape)
    cos, sin = cos.contiguous(), sin.contiguous()
    power, chained = triton.next_power_of_2, chains(q.device)
    if tokens:
        arguments = (
            q, k, v, q_out, cos, sin, key_cache, value_cache, slot_mapping, cos if scales is None else scales,
            q.stride(0), k.stride(0), v.stride(0), half, key_cache.stride(0), key_cache.stride(1),
            heads, kv_heads, q.stride(1), k.stride(1), v.stride(1), key_cache.stride(2),
            key_cache.shape[1], size, half, power(heads), power(kv_heads), power(half), power(size),
            power(max(size - 2 * half, 1)), scales is not None, chained,
        )  # fmt: skip
        _launch(arguments, tokens, 2, num_warps=4, **pdl(chained))
    return q_out
