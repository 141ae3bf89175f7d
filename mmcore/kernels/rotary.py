"""Rotary position embedding over the two halves of a head."""

from __future__ import annotations

import torch
from torch import Tensor

from mmcore.kernels.dispatch import use_triton


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
    if use_triton(q):
        from mmcore.kernels.rotary_triton import rotary_triton

        return rotary_triton(q, k, cos, sin)
    cos = torch.cat([cos, cos], dim=-1)[:, None]
    sin = torch.cat([-sin, sin], dim=-1)[:, None]
    return _turn(q, cos, sin), _turn(k, cos, sin)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """A pair's other value comes by rolling half the turned width, so that one product serves both halves."""
    width = cos.shape[-1]
    head = x if width == x.shape[-1] else x[..., :width]
    turned = torch.addcmul(head * cos, head.roll(width // 2, dims=-1).to(cos.dtype), sin).to(x.dtype)
    return turned if head is x else torch.cat([turned, x[..., width:]], dim=-1)
