"""Tower and projector (arXiv 2312.07533, 2412.04468)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from mmcore.model.blends import blend
from mmcore.model.layers import LayerNorm, Linear
from mmcore.model.vision_transformer import VisionTransformer
from mmcore_nvila.vision import NvilaEncoder

EPS = 1e-5


class NvilaTower(nn.Module):
    """Tiles to rows. See `NvilaEncoder.collate` for the inputs."""

    def __init__(self, config: NvilaEncoder) -> None:
        super().__init__()
        self.tower = VisionTransformer(config.vit)
        self.projector = _projector(config)
        self._folded = config.folded
        self._padded = config.tiles.padded
        self._first = int(config.vit.class_token)

    def forward(self, patches: Tensor, entries: Tensor, weights: Tensor) -> Tensor:
        table = self.tower(patches)[:, self._first :].flatten(0, 1)  # [tiles * features, W]
        if self._padded:
            table = F.pad(table, (0, 0, 0, 1))
        rows = blend(table, entries, weights).view(-1, self._folded)
        return self.projector(rows)  # type: ignore[no-any-return]


def _projector(config: NvilaEncoder) -> nn.Sequential:
    """Numbered as in the files, whose first layer folds."""
    folded, width, fold = config.folded, config.width, config.tiles.fold
    layers: list[nn.Module] = [nn.Identity(), LayerNorm(folded, EPS)]
    if fold == 3:
        inner = folded // 3
        layers += [Linear(folded, inner), nn.GELU(), LayerNorm(inner, EPS)]
        folded = inner
    return nn.Sequential(*layers, Linear(folded, width), nn.GELU(), Linear(width, width))
