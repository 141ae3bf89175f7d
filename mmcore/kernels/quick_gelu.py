"""``x * sigmoid(1.702 x)``, the approximation of GELU that CLIP's towers use."""

from __future__ import annotations

import torch
from torch import Tensor

from mmcore.kernels.dispatch import use_triton


def quick_gelu_reference(x: Tensor) -> Tensor:
    """In float32, cast once (Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2)."""
    wide = x.float()
    return (wide * torch.sigmoid(1.702 * wide)).to(x.dtype)


def quick_gelu(x: Tensor) -> Tensor:
    """A new tensor of the shape of ``x``; on a GPU one pass, for contiguous ``x``."""
    if use_triton(x) and x.is_contiguous():
        from mmcore.kernels.quick_gelu_triton import quick_gelu_triton

        return quick_gelu_triton(x)
    return (1.702 * x).sigmoid_().mul_(x)
