"""Triton kernel of ``layer_norm``: one program a row, the residual sum included."""

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
    bias,
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
    centred = tl.where(inside, wide - tl.sum(wide, 0) / WIDTH, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / WIDTH + eps)
    scaled = centred * scale * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    scaled += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + column, scaled.to(out.dtype.element_ty), mask=inside)


_launch = RowLauncher(_norm)


def layer_norm_triton(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, residual: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """As ``layer_norm``."""
    width = x.shape[-1]
    rows = rows_of(x, width)
    added = rows if residual is None else rows_of(residual, width)
    out = x.new_empty(x.shape)
    total = x if residual is None else x.new_empty(x.shape)
    block = triton.next_power_of_2(width)
    chained = chains(x.device)
    if len(rows):
        arguments = (
            rows, weight, bias, added, out, total, eps, rows.stride(0), added.stride(0),
            width, block, residual is not None, chained,
        )  # fmt: skip
        _launch(arguments, len(rows), num_warps=min(16, max(1, block // 512)), **pdl(chained))
    return out, total
