"""Triton kernels of ``argmax``: stretches of a row side by side, then the best of the stretches."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit
def _first_of_largest(value, index, LAST: tl.constexpr):
    """Smallest index among the largest values."""
    largest = tl.max(value, 0)
    return largest, tl.min(tl.where(value == largest, index, LAST), 0)


@triton.jit
def _stretch(logits, best, place, unsound, row_stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * row_stride + column, mask=column < WIDTH, other=-float("inf"))
    value = value.to(tl.float32)
    spoilt = tl.max((value != value).to(tl.int32), 0)
    value = tl.where(value == value, value, -float("inf"))
    largest, index = _first_of_largest(value, column, WIDTH - 1)
    cell = row * tl.num_programs(1) + tl.program_id(1)
    tl.store(best + cell, largest)
    tl.store(unsound + cell, spoilt)
    tl.store(place + cell, index)


@triton.jit
def _choose(
    best, place, unsound, values, columns, COUNT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, BLOCK)
    value = tl.load(best + row * COUNT + s, mask=s < COUNT, other=-float("inf"))
    index = tl.load(place + row * COUNT + s, mask=s < COUNT, other=WIDTH - 1)
    spoilt = tl.max(tl.load(unsound + row * COUNT + s, mask=s < COUNT, other=0), 0)
    largest, index = _first_of_largest(value, index, WIDTH - 1)
    tl.store(values + row, tl.where(spoilt > 0, float("nan"), largest))
    tl.store(columns + row, index.to(tl.int64))


def argmax_triton(logits: Tensor) -> tuple[Tensor, Tensor]:
    """As ``argmax``."""
    rows, width = logits.shape
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    count = triton.cdiv(width, BLOCK)
    best = logits.new_empty((rows, count), dtype=torch.float32)
    place = logits.new_empty((rows, count), dtype=torch.int32)
    unsound = torch.empty_like(place)
    values = logits.new_empty(rows, dtype=torch.float32)
    columns = logits.new_empty(rows, dtype=torch.int64)
    if rows:
        _stretch[(rows, count)](logits, best, place, unsound, logits.stride(0), width, BLOCK, num_warps=8)
        block = triton.next_power_of_2(count)
        _choose[(rows,)](best, place, unsound, values, columns, count, width, block, num_warps=1)
    return values, columns
