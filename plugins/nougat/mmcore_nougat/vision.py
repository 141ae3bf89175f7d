"""The page encoder as data, and how pages are packed for it on the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mmcore.decoder_config import Activation
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
    projected: int = 0
    """Width of the rows where it is not that of the last stage; 0: it is."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(self._stages())

    def _stages(self) -> Iterator[Stage]:
        height, width = -(-self.height // self.patch), -(-self.width // self.patch)
        for n, (depth, heads) in enumerate(zip(self.depths, self.heads, strict=True)):
            yield Stage(height, width, self.channels << n, heads, depth)
            height, width = -(-height // 2), -(-width // 2)

    @property
    def rows(self) -> int:
        return self.stages[-1].height * self.stages[-1].width

    @property
    def row_width(self) -> int:
        return self.projected or self.stages[-1].channels

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
            wide = stage.channels
            block = wide * ((4 + 2 * self.mlp_ratio) * wide + 2 * self.window**2)
            work += stage.height * stage.width * int(stage.depth * block + 2 * wide * wide)
        return EncodeCost(2 * work)
