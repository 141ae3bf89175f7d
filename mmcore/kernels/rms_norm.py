"""Root-mean-square norm, with an optional residual sum in front of it."""

from __future__ import annotations

from typing import overload

import torch
from torch import Tensor

from mmcore.kernels.dispatch import use_triton


def rms_norm_reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Statistics in float32, the scaled value cast once (Zhang and Sennrich 2019, arXiv 1910.07467)."""
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)


@overload
def rms_norm(x: Tensor, weight: Tensor, eps: float, residual: None = None) -> Tensor: ...
@overload
def rms_norm(x: Tensor, weight: Tensor, eps: float, residual: Tensor) -> tuple[Tensor, Tensor]: ...
def rms_norm(
    x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """Norm ``x`` [..., H] by ``weight`` [H].

    With ``residual`` [..., H] gives ``(norm(x + residual), x + residual)``. The sum is rounded to the dtype
    of ``x`` before the norm, so that both answers speak of the same value.
    """
    if use_triton(x):
        from mmcore.kernels.rms_norm_triton import rms_norm_triton

        normed, total = rms_norm_triton(x, weight, eps, residual)
        return normed if residual is None else (normed, total)
    if residual is not None:
        total = x + residual
        return _norm(total, weight, eps), total
    return _norm(x, weight, eps)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if x.dtype != torch.float32:
        return rms_norm_reference(x, weight, eps)
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return (x * scale).mul_(weight)
