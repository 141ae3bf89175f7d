"""Triton kernel of ``swiglu``: gate and up read once, float32 inside."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from mmcore.kernels.launch import RowLauncher, rows_of

BLOCK = 1024


@triton.jit
def _gate(gate_up, out, row_stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    gate = tl.load(gate_up + row * row_stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * row_stride + WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + column, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=inside)


_launch = RowLauncher(_gate)


def swiglu_triton(gate_up: Tensor) -> Tensor:
    """[..., 2 * I] -> [..., I]."""
    width = gate_up.shape[-1] // 2
    rows = rows_of(gate_up, 2 * width)
    out = gate_up.new_empty((*gate_up.shape[:-1], width))
    if len(rows):
        arguments = rows, out, rows.stride(0), width, BLOCK
        _launch(arguments, len(rows), triton.cdiv(width, BLOCK), num_warps=4)
    return out
