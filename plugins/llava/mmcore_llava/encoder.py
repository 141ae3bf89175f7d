"""Tower, projector and the packing of rows (arXiv 2310.03744, 2408.03326)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmcore.model.blends import blend
from mmcore.model.layers import Linear, activation
from mmcore.model.pixel_patches import PixelPatches
from mmcore.model.vision_transformer import VisionTransformer
from mmcore_llava.vision import LlavaEncoder


class LlavaTower(nn.Module):
    """Tiles to rows. See `LlavaEncoder.collate` for the inputs."""

    def __init__(self, config: LlavaEncoder) -> None:
        super().__init__()
        self.cut = PixelPatches(config.vit.patch, config.vit.side, config.shape.mean, config.shape.std)
        self.tower = VisionTransformer(config.vit)
        self.up = Linear(config.vit.width, config.width, bias=config.bias)
        self.down = Linear(config.width, config.width, bias=config.bias)
        self.newline = nn.Parameter(torch.empty(config.width)) if config.features.newline else None
        self._act = activation(config.activation)
        self._skipped = config.vit.tokens - config.features.per_tile

    def forward(self, pixels: Tensor, entries: Tensor, weights: Tensor) -> Tensor:
        features = self.tower(self.cut(pixels, self.up.weight.dtype))[
            :, self._skipped :
        ]  # [tiles, features, W]
        table = self.down(self._act(self.up(features))).flatten(0, 1)
        if self.newline is not None:
            table = torch.cat([table, self.newline[None]])
        return blend(table, entries, weights)
