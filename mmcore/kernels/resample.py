"""One pass of a resize over levels: each pixel is an exact sum of integer products."""

from __future__ import annotations

import torch
from torch import Tensor

from mmcore.errors import EngineError
from mmcore.kernels.dispatch import use_triton

HALF = 1 << 21
"""Half a level, of 22 bits after the point."""


def resample_reference(source: Tensor, first: Tensor, weights: Tensor) -> Tensor:
    """Pixel by pixel of the new side, in int64."""
    columns = []
    for low, row in zip(first.tolist(), weights.tolist(), strict=True):
        inside = source[:, low : low + len(row)].long()
        shares = torch.tensor(row[: inside.shape[1]], device=source.device)
        columns.append(((inside * shares[:, None]).sum(1) + HALF) >> 22)
    return torch.stack(columns, dim=1).clamp(0, 255).to(torch.uint8)


def resample(source: Tensor, first: Tensor, weights: Tensor) -> Tensor:
    """Resize the middle of ``source`` uint8 [A, N, B] to [A, M, B].

    Pixel m is the sum of ``source[:, first[m] + k] * weights[m, k]`` over k, with 22 bits after the point,
    rounded and cut to 0 and 255 (Pillow's ``Resample.c``). ``first`` int32 [M], ``weights`` int32 [M, K]; a
    weight that would fall behind N is zero. Raises EngineError on shapes that don't fit.
    """
    if source.ndim != 3 or weights.shape[:1] != first.shape:
        raise EngineError(
            f"resample: levels {tuple(source.shape)} must be [A, N, B], weights {tuple(weights.shape)} have "
            f"a row for each of {tuple(first.shape)} pixels"
        )
    if use_triton(source):
        from mmcore.kernels.resample_triton import resample_triton

        return resample_triton(source, first, weights)
    total = torch.full((len(source), len(first), source.shape[2]), HALF, dtype=torch.int32)
    for k in range(weights.shape[1]):
        place = (first + k).clamp(max=source.shape[1] - 1)
        total += source.index_select(1, place) * weights[:, k, None]
    return (total >> 22).clamp_(0, 255).to(torch.uint8)
