"""Triton kernel of ``resample``: a program for some values of one line; its taps are read from cache."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mmcore.kernels.resample import HALF

BLOCK = 512
ROUND = tl.constexpr(HALF)


@triton.jit
def _sum(source, out, first, weights, old, new, inner, taps, BLOCK: tl.constexpr):
    line = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # of new x inner values
    inside = index < new * inner
    pixel = index // inner
    low = tl.load(first + pixel, mask=inside, other=0)
    total = tl.full([BLOCK], ROUND, tl.int32)
    for k in range(taps):
        place = tl.minimum(low + k, old - 1)
        level = tl.load(source + (line * old + place) * inner + index % inner, mask=inside, other=0)
        total += level.to(tl.int32) * tl.load(weights + pixel * taps + k, mask=inside, other=0)
    value = tl.minimum(tl.maximum(total >> 22, 0), 255)
    tl.store(out + line * new * inner + index, value.to(tl.uint8), mask=inside)


def resample_triton(source: Tensor, first: Tensor, weights: Tensor) -> Tensor:
    """As ``resample``."""
    source, weights = source.contiguous(), weights.contiguous()
    lines, old, inner = source.shape
    new, taps = weights.shape
    out = torch.empty(lines, new, inner, dtype=torch.uint8, device=source.device)
    if out.numel():
        grid = (lines, triton.cdiv(new * inner, BLOCK))
        _sum[grid](source, out, first, weights, old, new, inner, taps, BLOCK, num_warps=4)
    return out
