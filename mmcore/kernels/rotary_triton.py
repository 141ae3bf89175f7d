"""Triton kernel of ``rotary``: a token's query heads in one program, its key heads in another, one launch."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from mmcore.kernels.launch import adjoining


@triton.jit
def turn_heads(
    x, out, cos, sin, heads, X_HEAD_STRIDE, SIZE, HALF, BLOCK_HEADS: tl.constexpr, BLOCK: tl.constexpr
):
    head = tl.arange(0, BLOCK_HEADS)[:, None]
    d = tl.arange(0, BLOCK)[None, :]
    inside = (head < heads) & (d < HALF)
    first = tl.load(x + head * X_HEAD_STRIDE + d, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x + head * X_HEAD_STRIDE + HALF + d, mask=inside, other=0.0).to(tl.float32)
    place = out + head * SIZE + d
    tl.store(place, (first * cos - second * sin).to(out.dtype.element_ty), mask=inside)
    tl.store(place + HALF, (second * cos + first * sin).to(out.dtype.element_ty), mask=inside)


@triton.jit
def copy_rest(x, out, heads, X_HEAD_STRIDE, SIZE, TURNED, BLOCK_HEADS: tl.constexpr, BLOCK: tl.constexpr):
    head = tl.arange(0, BLOCK_HEADS)[:, None]
    d = TURNED + tl.arange(0, BLOCK)[None, :]
    inside = (head < heads) & (d < SIZE)
    rest = tl.load(x + head * X_HEAD_STRIDE + d, mask=inside)
    tl.store(out + head * SIZE + d, rest, mask=inside)


@triton.jit
def _rotate(
    q,
    k,
    q_out,
    k_out,
    cos,
    sin,
    q_stride,
    k_stride,
    angle_stride,
    Q_HEADS: tl.constexpr,
    K_HEADS: tl.constexpr,
    Q_HEAD_STRIDE: tl.constexpr,
    K_HEAD_STRIDE: tl.constexpr,
    SIZE: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_REST: tl.constexpr,
):
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
        source = k + token * k_stride
        target = k_out + token * K_HEADS * SIZE
        turn_heads(source, target, c, s, K_HEADS, K_HEAD_STRIDE, SIZE, HALF, BLOCK_K, BLOCK)
        if SIZE > 2 * HALF:
            copy_rest(source, target, K_HEADS, K_HEAD_STRIDE, SIZE, 2 * HALF, BLOCK_K, BLOCK_REST)


def rotary_triton(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """As ``rotary``; last dimensions are contiguous."""
    q, k = (adjoining(x) for x in (q, k))
    tokens, heads, size = q.shape
    half = cos.shape[-1]
    q_out, k_out = q.new_empty(q.shape), k.new_empty(k.shape)
    cos, sin = cos.contiguous(), sin.contiguous()
    if tokens:
        _rotate[(tokens, 2)](
            q, k, q_out, k_out, cos, sin, q.stride(0), k.stride(0), half,
            heads, k.shape[1], q.stride(1), k.stride(1), size, half,
            triton.next_power_of_2(heads), triton.next_power_of_2(k.shape[1]), triton.next_power_of_2(half),
            triton.next_power_of_2(max(size - 2 * half, 1)), num_warps=4,
        )  # fmt: skip
    return q_out, k_out
