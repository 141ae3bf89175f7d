"""Triton kernel of ``rms_norm``: one program a row, the residual sum included."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from mmcore.kernels.chain_triton import begin, chains, pdl
from mmcore.kernels.launch import RowLauncher, rows_of


@triton.jit
def _norm(
    x,
    weight,
    residual,
    out,
    total,
    eps,
    x_stride,
    residual_stride,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    CHAINED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    begin(CHAINED)
    value = tl.load(x + row * x_stride + column, mask=inside, other=0.0)
    if HAS_RESIDUAL:
        value = value.to(tl.float32) + tl.load(
            residual + row * residual_stride + column, mask=inside, other=0.0
        ).to(tl.float32)
        value = value.to(total.dtype.element_ty)
        tl.store(total + row * WIDTH + column, value, mask=inside)
    wide = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) / WIDTH + eps)
    wide *= scale * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + column, wide.to(out.dtype.element_ty), mask=inside)


_launch = RowLauncher(_norm)


def rms_norm_triton(
    x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``(norm(x + residual), x + residual)``, or ``(norm(x), x)`` without a residual."""
    width = x.shape[-1]
    rows = rows_of(x, width)
    added = rows if residual is None else rows_of(residual, width)
    out = x.new_empty(x.shape)
    total = x if residual is None else x.new_empty(x.shape)
    block = triton.next_power_of_2(width)
    chained = chains(x.device)
    if len(rows):
        arguments = (
            rows, weight, added, out, total, eps, rows.stride(0), added.stride(0),
            width, block, residual is not None, chained,
        )  # fmt: skip
        _launch(arguments, len(rows), num_warps=min(16, max(1, block // 512)), **pdl(chained))
    return out, total
