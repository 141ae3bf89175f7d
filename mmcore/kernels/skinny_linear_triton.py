"""Triton kernels of ``skinny_linear``: a program reads some rows of the weight, once, for all rows of x.

One row of x goes through ordinary multiply-adds, several through the matrix unit, whose tile they fill to 16.
Either way the weights stream through shared memory a few tiles ahead; nothing else matters.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from mmcore.kernels.launch import Launcher


class Tile(NamedTuple):
    """Rows of the weight a program, columns a step, warps, tiles in flight."""

    n: int
    k: int
    warps: int
    stages: int


@cache
def choose_tile(rows: int, width: int, gated: bool) -> Tile:
    """One configuration by shape, the fastest of `benchmarks/kernel_sweep.py` on an H200 or close to it.

    ``width`` counts results. Gate and up are two weights: half the tile.
    """
    if rows > 1:
        return Tile(32, 128, 4, 3) if gated else Tile(64, 128, 4, 3 if width > 8192 else 5)
    return Tile(4, 512, 4, 5) if gated else Tile(8, 256, 4, 5)


@triton.jit
def one_row(
    x, weight, bias, residual, out,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GATED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Products of one row, [BLOCK_N] of them."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = n < N
    rows = n.to(tl.int64)[:, None] * K
    sums = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    sums_up = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        k = start + tl.arange(0, BLOCK_K)
        cells = inside[:, None] & (k < K)[None, :]
        value = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)[None, :]
        sums += tl.load(weight + rows + k[None, :], mask=cells, other=0.0).to(tl.float32) * value
        if GATED:
            up = tl.load(weight + N * K + rows + k[None, :], mask=cells, other=0.0)
            sums_up += up.to(tl.float32) * value
    total = tl.sum(sums, 1)
    if HAS_BIAS:
        total += tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)
    if GATED:
        total_up = tl.sum(sums_up, 1)
        if HAS_BIAS:
            total_up += tl.load(bias + N + n, mask=inside, other=0.0).to(tl.float32)
        total = total * tl.sigmoid(total) * total_up
    if HAS_RESIDUAL:
        total += tl.load(residual + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + n, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def some_rows(
    x, weight, bias, residual, out, rows, x_stride, residual_stride,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GATED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Products of up to 16 rows, [BLOCK_N, 16] of them: the weight stands in the M dimension."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.arange(0, 16)
    inside = n < N
    places = n.to(tl.int64)[:, None] * K
    sums = tl.zeros([BLOCK_N, 16], tl.float32)
    sums_up = tl.zeros([BLOCK_N, 16], tl.float32)
    for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        k = start + tl.arange(0, BLOCK_K)
        cells = inside[:, None] & (k < K)[None, :]
        value = tl.load(
            x + m[None, :] * x_stride + k[:, None], mask=(m < rows)[None, :] & (k < K)[:, None], other=0.0
        )
        tile = tl.load(weight + places + k[None, :], mask=cells, other=0.0)
        sums = tl.dot(tile, value, sums, input_precision="ieee")
        if GATED:
            tile = tl.load(weight + N * K + places + k[None, :], mask=cells, other=0.0)
            sums_up = tl.dot(tile, value, sums_up, input_precision="ieee")
    if HAS_BIAS:
        sums += tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)[:, None]
    if GATED:
        if HAS_BIAS:
            sums_up += tl.load(bias + N + n, mask=inside, other=0.0).to(tl.float32)[:, None]
        sums = sums * tl.sigmoid(sums) * sums_up
    cells = inside[:, None] & (m < rows)[None, :]
    if HAS_RESIDUAL:
        added = tl.load(residual + m[None, :] * residual_stride + n[:, None], mask=cells, other=0.0)
        sums += added.to(tl.float32)
    tl.store(out + m[None, :] * N + n[:, None], sums.to(out.dtype.element_ty), mask=cells)


_one_row, _some_rows = Launcher(one_row), Launcher(some_rows)


def skinny_linear_triton(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    gated: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """As ``skinny_linear`` for 1 to 16 rows; ``weight`` is contiguous, ``tile`` overrides the choice."""
    rows, depth = x.shape
    width = weight.shape[0] // 2 if gated else weight.shape[0]
    tile = tile or choose_tile(rows, width, gated)
    x = x if x.stride(1) == 1 else x.contiguous()
    added = x if residual is None else residual if residual.stride(1) == 1 else residual.contiguous()
    out = x.new_empty((rows, width))
    constants = (
        width, depth, tile.n, tile.k, gated, bias is not None, residual is not None, tile.stages
    )  # fmt: skip
    tensors = x, weight, x if bias is None else bias, added, out
    numbers = *(t.data_ptr() for t in tensors), x.stride(0), added.stride(0)
    key = (*constants, tile, x.device, x.dtype, rows == 1, *(number % 16 == 0 for number in numbers))
    grid = (triton.cdiv(width, tile.n), 1, 1)
    if rows == 1:
        _one_row(key, grid, (*tensors, *constants), num_warps=tile.warps)
    else:
        strides = x.stride(0), added.stride(0)
        _some_rows(key, grid, (*tensors, rows, *strides, *constants), num_warps=tile.warps)
    return out
