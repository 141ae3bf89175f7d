"""The encoder as data, and how tiles are packed for it on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcore.decoder_config import Activation
from mmcore.parts.blends import packed
from mmcore.parts.pictures import PictureShape
from mmcore.parts.vit import VitConfig
from mmcore.request import EncodeCost, EncoderInput, ItemPlan
from mmcore_llava.features import FeatureMap

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class LlavaEncoder:
    """A vision transformer and a projector of two layers."""

    vit: VitConfig
    shape: PictureShape
    features: FeatureMap
    activation: Activation
    bias: bool
    width: int

    def build(self) -> nn.Module:
        from mmcore_llava.encoder import LlavaTower

        return LlavaTower(self)

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, Any]:
        """``pixels`` uint8 [tiles, height, width, 3]; ``entries`` int64 and ``weights`` float32, both
        [rows, taps], say how rows are made of the features (`mmcore_llava.features`).
        """
        pixels = [item.arrays["pixels"] for item in inputs]
        sizes = [len(tiles) * self.features.per_tile for tiles in pixels]
        rows = packed([self.features.rows(plan.geometry) for plan in plans], sizes, self.features.newline)
        return {"pixels": np.concatenate(pixels), "entries": rows.entries, "weights": rows.weights}

    def cost(self, plan: ItemPlan) -> EncodeCost:
        tiles = self.features.tiles(plan.geometry)
        projected = tiles * self.features.per_tile * self.width * (self.vit.width + self.width)
        return EncodeCost(self.vit.work(tiles) + 2 * projected)
