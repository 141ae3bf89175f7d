"""A linear layer for a few rows: decode, where a product costs what reading its weights costs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mmcore.kernels.dispatch import use_triton
from mmcore.kernels.swiglu import swiglu, swiglu_reference

MAX_ROWS = 8
"""More rows than these go to the library: its products are as fast from about 16 rows on."""
WIDE = 16384
"""Results a row. On two cores 8 rows of 51,865 x 512 take 8 ms instead of 21, 2 rows 5 instead of 17."""
MAX_DEPTH = 8192
"""Of more than one row; where a sum is longer the library, which cuts it, is 3 to 9 % faster at 8 rows."""


def skinny_linear_reference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    gated: bool = False,
) -> Tensor:
    """Each step in the dtype of ``x``."""
    out = F.linear(x, weight, bias)
    out = swiglu_reference(out) if gated else out
    return out if residual is None else residual + out


def skinny_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    gated: bool = False,
) -> Tensor:
    """``x`` [M, K] times ``weight`` [N, K], plus ``bias`` [N]; gives [M, N].

    ``gated``: the rows of ``weight`` are gate and up, half each, and ``silu(gate) * up`` [M, N / 2] comes
    out. ``residual`` is added last, of the result's shape. On a GPU up to `MAX_ROWS` rows are one launch,
    summed in float32 and rounded once; more rows, deeper sums of several and a CPU take the library's
    product. Safe to capture.
    """
    if use_triton(x) and _is_skinny(*x.shape):
        from mmcore.kernels.skinny_linear_triton import skinny_linear_triton

        return skinny_linear_triton(x, weight, bias, residual, gated=gated)
    out = _library(x, weight, bias)
    out = swiglu(out) if gated else out
    return out if residual is None else residual + out


def _library(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """On a CPU a few rows of a wide result, as a head's, are up to twice as fast the other way round."""
    wide = not x.is_cuda and 1 < len(x) <= MAX_ROWS and len(weight) >= WIDE and x.dtype == weight.dtype
    if not wide:
        return F.linear(x, weight, bias)
    out = torch.mm(weight, x.t()).t()
    return out if bias is None else out + bias


def _is_skinny(rows: int, depth: int) -> bool:
    return rows == 1 or (1 < rows <= MAX_ROWS and depth <= MAX_DEPTH)
