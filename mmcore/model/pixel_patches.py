"""Patches out of the levels of pictures of one size, cut and normalised where the tower runs.

So a twelfth of the bytes of float32 patches, made of overlapping work on the host, has to be there and to
cross: a level is one byte.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class PixelPatches(nn.Module):
    """What `MediaOps.normalize` and `MediaOps.patchify` do, for ``side`` x ``side`` patches of a picture.

    ``mean`` and ``std`` by channel, of values between 0 and 1. It has no parameters.
    """

    normal: Tensor

    def __init__(self, patch: int, side: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("normal", scale_and_shift(mean, std), persistent=False)
        self._patch = patch
        self._side = side

    def forward(self, pixels: Tensor, dtype: torch.dtype) -> Tensor:
        """``pixels`` uint8 [N, height, width, channels] to [N * side * side, channels * patch * patch].

        A rim that is less than a patch is left out, as a convolution does.
        """
        patch, side = self._patch, self._side
        inside = pixels[:, : side * patch, : side * patch]
        scale, shift = self.normal
        squares = inside.reshape(len(pixels), side, patch, side, patch, pixels.shape[3])
        values: Tensor = (squares.float() * scale + shift).permute(0, 1, 3, 5, 2, 4)
        return values.reshape(len(pixels) * side * side, -1).to(dtype)


def scale_and_shift(mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """What takes levels from 0 to 255 to normalised values, float32 [2, channels]."""
    centre, spread = (torch.tensor(values, dtype=torch.float64, device="cpu") for values in (mean, std))
    normal = torch.stack([1 / (255 * spread), -centre / spread])
    return normal.to(torch.get_default_device(), torch.float32)
