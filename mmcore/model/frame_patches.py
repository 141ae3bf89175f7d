"""Patches out of the levels of frames of several sizes, cut and normalised where the tower runs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmcore.model.pixel_patches import scale_and_shift
from mmcore.parts.frame_patches import FramePatches


class FrameCutter(nn.Module):
    """What `MediaOps.normalize` and `MediaOps.patchify` do, by `FramePatches.pack`. It has no parameters."""

    normal: Tensor

    def __init__(self, config: FramePatches) -> None:
        super().__init__()
        repeats = config.values // config.channels
        normal = scale_and_shift(config.mean, config.std).repeat_interleave(repeats, dim=1)
        self.register_buffer("normal", normal, persistent=False)
        self._config = config

    def levels(self, pixels: Tensor, corners: Tensor, strides: Tensor) -> Tensor:
        """Of each patch, uint8 [T, values], in the published order: channel, frame, y, x."""
        patch, channels = self._config.patch, self._config.channels
        length = patch * channels
        y = torch.arange(patch, device=pixels.device)
        starts = corners.unsqueeze(2) + strides.view(-1, 1, 1) * y  # [T, frames, y]
        lines = pixels.as_strided((len(pixels) - length + 1, length), (1, 1))  # from every place one
        found = lines.index_select(0, starts.view(-1)).view(*starts.shape, patch, channels)
        return found.permute(0, 4, 1, 2, 3).reshape(len(corners), -1)

    def forward(self, pixels: Tensor, corners: Tensor, strides: Tensor, dtype: torch.dtype) -> Tensor:
        """Normalised, [T, values]."""
        scale, shift = self.normal
        values: Tensor = self.levels(pixels, corners, strides).float() * scale + shift
        return values.to(dtype)
