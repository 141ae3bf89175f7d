"""The encoder as data: a vision transformer, the Q-Former that questions it, a projection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcore.decoder_config import Activation
from mmcore.parts.vit import VitConfig
from mmcore.request import EncodeCost, EncoderInput, ItemPlan

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class QFormerConfig:
    """Every ``cross_every``-th layer, from the first on, looks at the picture."""

    width: int
    layers: int
    heads: int
    intermediate: int
    activation: Activation
    norm_eps: float
    cross_every: int
    queries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Blip2Encoder:
    """``width`` elements of a row: the language model's hidden size."""

    vit: VitConfig
    qformer: QFormerConfig
    width: int

    def build(self) -> nn.Module:
        from mmcore_blip2.encoder import Blip2Tower

        return Blip2Tower(self)

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, Any]:
        """``patches`` float32 [pictures * patches, values]."""
        return {"patches": np.concatenate([item.arrays["patches"] for item in inputs])}

    def cost(self, plan: ItemPlan) -> EncodeCost:
        former = self.qformer
        width, crossed = former.width, -(-former.layers // former.cross_every)
        layer = former.queries * width * (4 * width + 2 * former.intermediate)
        cross = 2 * width * (former.queries * width + self.vit.tokens * self.vit.width)
        projected = former.queries * width * self.width
        return EncodeCost(self.vit.work() + 2 * (former.layers * layer + crossed * cross + projected))
