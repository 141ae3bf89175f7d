"""Layer norm, with an optional residual sum in front of it."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from mmcore.kernels.dispatch import use_triton


def layer_norm_reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Statistics in float32, the scaled value cast once (Ba et al. 2016, arXiv 1607.06450)."""
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    scaled = centred * (centred.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return (scaled * weight.float() + bias.float()).to(x.dtype)


def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, residual: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``(norm(x + residual), x + residual)`` of ``x`` [..., H], or ``(norm(x), x)`` without a residual.

    The sum is rounded to the dtype of ``x`` before the norm, so that both answers speak of the same value.
    """
    if use_triton(x):
        from mmcore.kernels.layer_norm_triton import layer_norm_triton

        return layer_norm_triton(x, weight, bias, eps, residual)
    total = x if residual is None else x + residual
    return F.layer_norm(total, weight.shape, weight, bias, eps), total
