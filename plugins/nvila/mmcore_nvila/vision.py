"""The encoder as data, and how tiles are packed for it on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcore.parts.blends import packed
from mmcore.parts.vit import VitConfig
from mmcore.request import EncodeCost, EncoderInput, ItemPlan
from mmcore_nvila.features import TileMap

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class NvilaEncoder:
    """A vision transformer and a projector of folded features."""

    vit: VitConfig
    tiles: TileMap
    width: int

    @property
    def folded(self) -> int:
        """Values that the projector reads for one row."""
        return self.tiles.fold**2 * len(self.tiles.scales) * self.vit.width

    def build(self) -> nn.Module:
        from mmcore_nvila.encoder import NvilaTower

        return NvilaTower(self)

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, Any]:
        """``patches`` float32 [tiles * patches, values]; ``entries`` int64 and ``weights`` float32, both
        [rows * features of each, taps], say which features make a row (`mmcore_nvila.features`).
        """
        patches = [item.arrays["patches"] for item in inputs]
        blends = [self.tiles.features(plan.geometry) for plan in plans]
        rows = packed(blends, [len(array) for array in patches], self.tiles.padded)
        return {"patches": np.concatenate(patches), "entries": rows.entries, "weights": rows.weights}

    def cost(self, plan: ItemPlan) -> EncodeCost:
        projected = plan.rows * self.width * (self.folded + self.width)
        return EncodeCost(self.vit.work(self.tiles.tiles(plan.geometry)) + 2 * projected)
