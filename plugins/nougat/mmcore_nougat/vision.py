"""The page encoder as data, and how pages are packed for it on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mmcore.decoder_config import Activation
from mmcore.errors import CheckpointError
from mmcore.request import EncodeCost, EncoderInput, ItemPlan

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class Stage:
    """Blocks over a map of height x width places of ``channels`` values."""

    height: int
    width: int
    channels: int
    heads: int
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageEncoder:
    """A Swin transformer over pages of one size; each stage but the last ends by merging 2 x 2 places."""

    height: int
    width: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    """Of a channel's levels from 0 to 1."""
    patch: int
    channels: int
    """Of the first stage; each further one has twice as many."""
    depths: tuple[int, ...]
    heads: tuple[int, ...]
    window: int
    mlp_ratio: float
    activation: Activation
    qkv_bias: bool
    norm_eps: float
    row_width: int
    """Rows are projected to it, where it is not that of the last stage."""

    def __post_init__(self) -> None:
        """Raises `CheckpointError` where a stage cannot be cut into windows, or shared by its heads."""
        for stage in self.stages:
            if not 0 < self.window <= min(stage.height, stage.width) or stage.channels % stage.heads:
                raise CheckpointError(
                    f"config.json: {stage} of the encoder has no windows of {self.window} or uneven heads"
                )

    @property
    def stages(self) -> tuple[Stage, ...]:
        sizes = [self.patch << n for n in range(len(self.depths))]
        return tuple(
            Stage(-(-self.height // size), -(-self.width // size), self.channels << n, heads, depth)
            for n, (size, heads, depth) in enumerate(zip(sizes, self.heads, self.depths, strict=True))
        )

    def build(self) -> nn.Module:
        from mmcore_nougat.encoder import PageTower

        return PageTower(self)

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, np.ndarray]:
        """``pages`` uint8 [N, height, width, 3]."""
        return {"pages": np.stack([item.arrays["page"] for item in inputs])}

    def cost(self, plan: ItemPlan) -> EncodeCost:
        """Matrix products of blocks and mergers; attention inside windows."""
        work = 3 * self.height * self.width * self.channels
        for stage in self.stages:
            block = (4 + 2 * self.mlp_ratio) * stage.channels + 2 * self.window**2
            place = stage.channels * (stage.depth * block + 2 * stage.channels)
            work += stage.height * stage.width * int(place)
        return EncodeCost(2 * work)
