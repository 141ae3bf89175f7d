"""Triton kernel of ``varlen_attention``: a tile of one segment's queries for one head in each program.

A head size that is no power of two is cut in two parts that are (80 = 64 + 16): padding to 128 would cost
more than half of the products again. Softmax runs online in base 2 and float32.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mmcore.kernels.launch import Launcher

LOG2E = 1.4426950408889634


class Tile(NamedTuple):
    """Queries and keys of a tile, warps, pipeline stages."""

    m: int
    n: int
    warps: int
    stages: int


def choose_tile(size: int, itemsize: int, max_len: int) -> Tile:
    """Short segments (windows) take short tiles."""
    if itemsize == 4:
        return Tile(32, 32, 4, 2)
    if max_len <= 64:
        return Tile(64, 64, 4, 2)
    return Tile(128, 64, 4, 3) if size <= 80 else Tile(128, 128, 8, 2)


@triton.jit
def _find_segment(starts, tile, segments, BLOCK_M: tl.constexpr):
    """The last segment whose first tile, ``starts[s] // BLOCK_M + s``, is not past ``tile``."""
    low = 0
    high = segments
    while high - low > 1:
        middle = (low + high) // 2
        before = tl.load(starts + middle) // BLOCK_M + middle <= tile
        low = tl.where(before, middle, low)
        high = tl.where(before, high, middle)
    return low


@triton.jit
def _load_part(
    x, stride, rows, BEGIN: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr, end, MASKED: tl.constexpr
):
    """Values ``BEGIN`` to ``BEGIN + WIDTH`` of a head, [rows, WIDTH]."""
    d = BEGIN + tl.arange(0, WIDTH)
    place = x + rows.to(tl.int64)[:, None] * stride + d[None, :]
    if MASKED:
        return tl.load(place, mask=(rows < end)[:, None] & (d < SIZE)[None, :], other=0.0)
    if BEGIN + WIDTH > SIZE:
        return tl.load(place, mask=(d < SIZE)[None, :], other=0.0)
    return tl.load(place)


@triton.jit
def _fold(
    acc, acc_rest, peak, total, q, q_rest, k, v, k_stride, v_stride, low, high, end, scale,
    SIZE: tl.constexpr, BLOCK_N: tl.constexpr, PART: tl.constexpr, REST: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Fold keys ``low`` to ``high`` into the running softmax; only with ``MASKED`` may they pass ``end``."""
    for start in range(low, high, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        keys = _load_part(k, k_stride, n, 0, PART, SIZE, end, MASKED)
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee")
        if REST:
            keys = _load_part(k, k_stride, n, PART, REST, SIZE, end, MASKED)
            scores = tl.dot(q_rest, tl.trans(keys), scores, input_precision="ieee")
        if MASKED:
            scores = tl.where((n < end)[None, :], scores, -float("inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 1) * scale)
        weights = tl.exp2(scores * scale - new_peak[:, None])
        fade = tl.exp2(peak - new_peak)
        total = total * fade + tl.sum(weights, 1)
        weights = weights.to(q.dtype)
        values = _load_part(v, v_stride, n, 0, PART, SIZE, end, MASKED)
        acc = tl.dot(weights, values, acc * fade[:, None], input_precision="ieee")
        if REST:
            values = _load_part(v, v_stride, n, PART, REST, SIZE, end, MASKED)
            acc_rest = tl.dot(weights, values, acc_rest * fade[:, None], input_precision="ieee")
        peak = new_peak
    return acc, acc_rest, peak, total


@triton.jit(do_not_specialize=["segments"], do_not_specialize_on_alignment=["starts"])
def attend_segments(
    q, k, v, starts, out, scale, segments, q_stride, k_stride, v_stride,
    Q_HEAD_STRIDE: tl.constexpr,
    K_HEAD_STRIDE: tl.constexpr,
    V_HEAD_STRIDE: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PART: tl.constexpr,
    REST: tl.constexpr,
):  # fmt: skip
    segment = _find_segment(starts, tl.program_id(0), segments, BLOCK_M)
    begin = tl.load(starts + segment)
    end = tl.load(starts + segment + 1)
    first = begin + (tl.program_id(0) - begin // BLOCK_M - segment) * BLOCK_M
    if first >= end:
        return
    head = tl.program_id(1)
    m = first + tl.arange(0, BLOCK_M)
    q += head * Q_HEAD_STRIDE
    k += head // GROUP * K_HEAD_STRIDE
    v += head // GROUP * V_HEAD_STRIDE
    query = _load_part(q, q_stride, m, 0, PART, SIZE, end, True)
    acc = tl.zeros([BLOCK_M, PART], tl.float32)
    query_rest = query
    acc_rest = acc
    if REST:
        query_rest = _load_part(q, q_stride, m, PART, REST, SIZE, end, True)
        acc_rest = tl.zeros([BLOCK_M, REST], tl.float32)
    peak = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    whole = begin + (end - begin) // BLOCK_N * BLOCK_N
    acc, acc_rest, peak, total = _fold(
        acc, acc_rest, peak, total, query, query_rest, k, v, k_stride, v_stride, begin, whole, end, scale,
        SIZE, BLOCK_N, PART, REST, False,
    )  # fmt: skip
    acc, acc_rest, peak, total = _fold(
        acc, acc_rest, peak, total, query, query_rest, k, v, k_stride, v_stride, whole, end, end, scale,
        SIZE, BLOCK_N, PART, REST, True,
    )  # fmt: skip
    d = tl.arange(0, PART)
    place = out + (m.to(tl.int64) * HEADS + head)[:, None] * SIZE
    inside = (m < end)[:, None]
    acc = acc / total[:, None]
    tl.store(place + d[None, :], acc.to(out.dtype.element_ty), mask=inside & (d < SIZE)[None, :])
    if REST:
        d = PART + tl.arange(0, REST)
        acc_rest = acc_rest / total[:, None]
        tl.store(place + d[None, :], acc_rest.to(out.dtype.element_ty), mask=inside & (d < SIZE)[None, :])


_attend = Launcher(attend_segments)


def parts(size: int) -> tuple[int, int]:
    """A head size as a power of two and, where that saves work, another for the rest (0: none)."""
    part = max(16, triton.next_power_of_2(size))
    rest = size - part // 2
    if size == part or rest <= 0:
        return part, 0
    rest = max(16, triton.next_power_of_2(rest))
    return (part // 2, rest) if part // 2 >= 16 and rest < part // 2 else (part, 0)


def varlen_attention_triton(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, max_len: int, scale: float, tile: Tile | None = None
) -> Tensor:
    """As ``varlen_attention``; ``starts`` lies on the device of ``q``, ``tile`` overrides the choice."""
    tokens, heads, size = q.shape
    q, k, v = (x if x.stride(2) == 1 else x.contiguous() for x in (q, k, v))
    out = torch.empty((tokens, heads, size), dtype=q.dtype, device=q.device)
    tile = tile or choose_tile(size, q.element_size(), max_len)
    segments, group = len(starts) - 1, heads // k.shape[1]
    constants = (
        q.stride(1), k.stride(1), v.stride(1), heads, group, size, tile.m, tile.n, *parts(size),
    )  # fmt: skip
    strides = q.stride(0), k.stride(0), v.stride(0)
    numbers = *strides, *(x.data_ptr() for x in (q, k, v, out))
    key = (*constants, tile, q.device, q.dtype, *(number % 16 == 0 for number in numbers))
    if tokens:
        _attend(
            key, (tokens // tile.m + segments, heads, 1),
            (q, k, v, starts, out, scale * LOG2E, segments, *strides, *constants),
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    return out
