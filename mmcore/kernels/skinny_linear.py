"""A linear layer for a few rows: decode, where a product costs what reading its weights costs."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mmcore.kernels.activations import ACTIVATIONS
from mmcore.kernels.dispatch import use_triton
from mmcore.kernels.layer_norm import layer_norm, layer_norm_reference
from mmcore.kernels.rms_norm import rms_norm, rms_norm_reference
from mmcore.kernels.swiglu import swiglu, swiglu_reference

MAX_ROWS = 16
"""More rows than these go to the library."""
HOST_ROWS = 8
"""On a CPU, of `WIDE` results or more: 8 rows of 51,865 x 512 take 8 ms instead of 21 on two cores."""
WIDE = 16384
MAX_DEPTHS = {8: 4096, MAX_ROWS: 2048}
"""Longest sums, by most rows. The library cuts longer ones between programs: 16 rows of 1,280 x 5,120 take it
8 us and this kernel 11, 16 of 1,280 x 1,280 take 4.9 and 4.0."""


class RowNorm(NamedTuple):
    """The norm in front of a linear layer: a layer norm with a bias, without one a root mean square norm."""

    weight: Tensor
    bias: Tensor | None
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return rms_norm(x, self.weight, self.eps)
        return layer_norm(x, self.weight, self.bias, self.eps)[0]

    def reference(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return rms_norm_reference(x, self.weight, self.eps)
        return layer_norm_reference(x, self.weight, self.bias, self.eps)


def skinny_linear_reference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    norm: RowNorm | None = None,
    act: str | None = None,
    gated: bool = False,
) -> Tensor:
    """Each step in the dtype of ``x``."""
    out = F.linear(x if norm is None else norm.reference(x), weight, bias)
    out = swiglu_reference(out) if gated else out
    out = out if act is None else ACTIVATIONS[act](out)
    return out if residual is None else residual + out


def skinny_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    norm: RowNorm | None = None,
    act: str | None = None,
    gated: bool = False,
) -> Tensor:
    """``x`` [M, K] times ``weight`` [N, K], plus ``bias`` [N]; gives [M, N]. More dimensions pass through.

    ``norm`` is taken of ``x`` first, ``act`` of the result (a key of `ACTIVATIONS`). ``gated``, without
    ``act``: the rows of ``weight`` are gate and up, half each, and ``silu(gate) * up`` [M, N / 2] comes
    out. ``residual`` is added last, of the result's shape. On a GPU, where `is_skinny`, one launch, summed
    in float32 and rounded once (a norm of several or long rows is another); so are gated products of up to 64
    rows of some widths; else, and on a CPU, the library's product. Safe to capture.
    """
    if use_triton(x) and x.ndim == 2 and is_skinny(*x.shape):
        from mmcore.kernels.skinny_linear_triton import skinny_linear_triton

        return skinny_linear_triton(x, weight, bias, residual, norm=norm, act=act, gated=gated)
    x = x if norm is None else norm(x)
    out = _gated(x, weight, bias) if gated else _library(x, weight, bias)
    out = out if act is None else ACTIVATIONS[act](out)
    return out if residual is None else residual + out


def _gated(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A batch of some rows is one launch, where its programs fill the card."""
    if use_triton(x) and bias is None and x.ndim == 2:
        from mmcore.kernels.gated_linear_triton import find_tile, gated_linear_triton

        tile = find_tile(x, weight)
        if tile is not None:
            return gated_linear_triton(x, weight, tile)
    return swiglu(_library(x, weight, bias))


def is_skinny(rows: int, depth: int) -> bool:
    """Whether products of so many rows, sums of ``depth``, are made by a kernel of their own on a GPU."""
    return rows == 1 or any(1 < rows <= most and depth <= longest for most, longest in MAX_DEPTHS.items())


def _library(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """On a CPU a few rows of a wide result, as a head's, are up to twice as fast the other way round."""
    few = x.ndim == 2 and 1 < len(x) <= HOST_ROWS
    if x.is_cuda or not few or len(weight) < WIDE or x.dtype != weight.dtype:
        return F.linear(x, weight, bias)
    out = torch.mm(weight, x.t()).t()
    return out if bias is None else out + bias
