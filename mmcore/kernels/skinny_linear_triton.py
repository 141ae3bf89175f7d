"""Triton kernels of ``skinny_linear``: a program reads some rows of the weight, once, for all rows of x.

One row of x goes through ordinary multiply-adds, several through the matrix unit, whose tile they fill to 16.
Either way the weights stream through shared memory a few tiles ahead; nothing else matters. A small product
of one row is different: its programs read all their weights, which no kernel writes, before they wait for x
(`mmcore.kernels.chain_triton`), so that the memory works while the kernel before still does.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from mmcore.kernels.chain_triton import begin, chains, pdl
from mmcore.kernels.launch import Launcher, adjoining
from mmcore.kernels.skinny_linear import RowNorm

SMALL = 1 << 23
"""Weights: a product of fewer is over before a stream of tiles gains speed."""


class Tile(NamedTuple):
    """Rows of the weight a program, columns a step, warps, tiles in flight."""

    n: int
    k: int
    warps: int
    stages: int


@cache
def choose_tile(rows: int, width: int, depth: int, gated: bool) -> Tile:
    """One configuration by shape, the fastest of `benchmarks/kernel_sweep.py` on an H200 or close to it.

    ``width`` counts results. Gate and up are two weights: half the tile. A small product of one row is made
    in one step.
    """
    if rows > 1:
        return _tile_of_some(width, depth, gated)
    if depth <= 8192 and width * depth * (1 + gated) <= SMALL:
        short = depth <= 2048
        return Tile((4 if short else 2) >> gated, triton.next_power_of_2(depth), 2 if short else 4, 1)
    return Tile(4, 512, 4, 5) if gated else Tile(8, 256, 4, 5)


def _tile_of_some(width: int, depth: int, gated: bool) -> Tile:
    """Narrow results make few programs, smaller ones therefore."""
    if gated:
        return Tile(32, 128, 4, 3)
    if depth <= 2048 and width <= 2048:
        return Tile(16, 256, 4, 4)
    return Tile(64, 128, 4, 3 if width > 8192 else 5)


@triton.jit
def _activate(x, ACT: tl.constexpr):
    """A key of `ACTIVATIONS`, of float32."""
    if ACT == "silu":
        x *= tl.sigmoid(x)
    elif ACT == "gelu":
        x *= 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACT == "gelu_tanh":
        x *= tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    elif ACT == "quick_gelu":
        x *= tl.sigmoid(1.702 * x)
    elif ACT == "relu":
        x = tl.where(x < 0, 0.0, x)
    return x


@triton.jit
def _normed(x, gain, shift, k, eps, K: tl.constexpr, CENTRED: tl.constexpr):
    """The norm of a whole row; zero beyond its end, as ``gain`` and ``shift`` are."""
    if CENTRED:
        x = tl.where(k < K, x - tl.sum(x, 0) / K, 0.0)
    x *= 1.0 / tl.sqrt(tl.sum(x * x, 0) / K + eps)
    x *= gain.to(tl.float32)
    return x + shift.to(tl.float32) if CENTRED else x


@triton.jit
def one_row(
    x, gain, shift, weight, bias, residual, out, eps,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NORM: tl.constexpr,
    CENTRED: tl.constexpr,
    ACT: tl.constexpr,
    GATED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    STAGES: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """Products of one row, [BLOCK_N] of them; with a norm, BLOCK_K holds all of the row."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    inside = n < N
    rows = n.to(tl.int64)[:, None] * K
    cells = inside[:, None] & (k < K)[None, :]
    first = tl.load(weight + rows + k[None, :], mask=cells, other=0.0)
    first_up = first
    if GATED:
        first_up = tl.load(weight + N * K + rows + k[None, :], mask=cells, other=0.0)
    gains, shifts = first, first
    if NORM:
        gains = tl.load(gain + k, mask=k < K, other=0.0)
    if CENTRED:
        shifts = tl.load(shift + k, mask=k < K, other=0.0)
    begin(CHAINED)
    value = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
    if NORM:
        value = _normed(value, gains, shifts, k, eps, K, CENTRED)
    value = value[None, :]
    sums = first.to(tl.float32) * value
    sums_up = first_up.to(tl.float32) * value
    for start in tl.range(BLOCK_K, K, BLOCK_K, num_stages=STAGES):
        place = start + k
        cells = inside[:, None] & (place < K)[None, :]
        value = tl.load(x + place, mask=place < K, other=0.0).to(tl.float32)[None, :]
        sums += tl.load(weight + rows + place[None, :], mask=cells, other=0.0).to(tl.float32) * value
        if GATED:
            up = tl.load(weight + N * K + rows + place[None, :], mask=cells, other=0.0)
            sums_up += up.to(tl.float32) * value
    total = tl.sum(sums, 1)
    if HAS_BIAS:
        total += tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)
    if GATED:
        total_up = tl.sum(sums_up, 1)
        if HAS_BIAS:
            total_up += tl.load(bias + N + n, mask=inside, other=0.0).to(tl.float32)
        total = total * tl.sigmoid(total) * total_up
    total = _activate(total, ACT)
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
    ACT: tl.constexpr,
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
    sums = _activate(sums, ACT)
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
    norm: RowNorm | None = None,
    act: str | None = None,
    gated: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """As ``skinny_linear`` for 1 to 16 rows; ``weight`` is contiguous, ``tile`` overrides the choice."""
    rows, depth = x.shape
    width = weight.shape[0] // 2 if gated else weight.shape[0]
    tile = tile or choose_tile(rows, width, depth, gated)
    whole = rows == 1 and tile.k >= depth
    if norm is not None and not whole:
        x, norm = norm(x), None
    x, added = adjoining(x), x if residual is None else adjoining(residual)
    out = x.new_empty((rows, width))
    chained = whole and chains(x.device)
    gain, shift, eps = norm or (x, None, 0.0)
    tensors = (
        x, gain, gain if shift is None else shift, weight, x if bias is None else bias, added, out
    )  # fmt: skip
    shape = width, depth, tile.n, tile.k
    flags = act, gated, bias is not None, residual is not None, tile.stages
    numbers = *(t.data_ptr() for t in tensors), x.stride(0), added.stride(0)
    aligned = tuple(number % 16 == 0 for number in numbers)
    key = shape, flags, tile, x.device, x.dtype, gain.dtype, aligned
    grid, options = (triton.cdiv(width, tile.n), 1, 1), {"num_warps": tile.warps, **pdl(chained)}
    if rows == 1:
        normed = norm is not None, shift is not None
        _one_row((*key, normed), grid, (*tensors, eps, *shape, *normed, *flags, chained), **options)
    else:
        arguments = x, *tensors[3:], rows, x.stride(0), added.stride(0), *shape, *flags
        _some_rows(key, grid, arguments, **options)
    return out
