"""Triton kernel of ``merge_embeddings``: each row in stretches, cast on the way."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048


@triton.jit
def _merge(
    hidden,
    rows,
    positions,
    hidden_stride,
    row_stride,
    column_stride,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    position = tl.load(positions + row).to(tl.int64)
    if position >= 0:
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = column < WIDTH
        value = tl.load(rows + row * row_stride + column * column_stride, mask=inside)
        tl.store(hidden + position * hidden_stride + column, value.to(hidden.dtype.element_ty), mask=inside)


def merge_embeddings_triton(hidden: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
    """As ``merge_embeddings``; the values of a row of ``hidden`` lie side by side."""
    count, width = rows.shape
    if count:
        block = min(BLOCK, triton.next_power_of_2(width))
        _merge[(count, triton.cdiv(width, block))](
            hidden, rows, positions, hidden.stride(0), *rows.stride(), width, block, num_warps=4
        )
    return hidden
