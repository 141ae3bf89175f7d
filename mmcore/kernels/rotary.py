"""Rotary position embedding over the two halves of a head."""

from __future__ import annotations

import torch
from torch import Tensor


def rotary_reference(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """By complex numbers: pair (i, i + R/2) of a head is turned by its angle (Su 2021, arXiv 2104.09864)."""
    turn = torch.complex(cos.double(), sin.double())[:, None]
    half = cos.shape[-1]
    out = []
    for x in (q, k):
        pairs = torch.complex(x[..., :half].double(), x[..., half : 2 * half].double()) * turn
        out.append(torch.cat([pairs.real.to(x.dtype), pairs.imag.to(x.dtype), x[..., 2 * half :]], dim=-1))
    return out[0], out[1]


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Turn ``q`` [T, Hq, D] and ``k`` [T, Hk, D] by ``cos`` and ``sin`` [T, R / 2] in float32.

    Gives new tensors. The first ``R <= D`` values of a head turn, the rest passes. With several position
    axes (M-RoPE) the caller chooses which angle stands in which column. Float32 inside, one rounding.
    """
    cos, sin = cos[:, None], sin[:, None]
    return _turn(q, cos, sin), _turn(k, cos, sin)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = cos.shape[-1]
    first, second = x[..., :half], x[..., half : 2 * half]
    turned = [first * cos - second * sin, second * cos + first * sin]
    if x.shape[-1] > 2 * half:
        turned.append(x[..., 2 * half :].to(turned[0].dtype))
    return torch.cat(turned, dim=-1).to(x.dtype)
