"""The vision tower of Qwen2-VL (arXiv 2409.12191) and Qwen2.5-VL (arXiv 2502.13923)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmcore.model.frame_patches import FrameCutter
from mmcore.model.layers import Linear, make_norm
from mmcore.model.rope import inverse_frequencies
from mmcore.model.vit import Packing, TowerBlock, TowerConfig
from mmcore_qwen2vl.vision import VisionEncoder

EPS = 1e-6


class Merger(nn.Module):
    """Each square of merge x merge patches becomes one row: [T, W] to [T / merge^2, out]."""

    def __init__(self, config: VisionEncoder) -> None:
        super().__init__()
        merged = config.width * config.merge**2
        self.norm = make_norm(config.norm, config.width, EPS)
        self.up = Linear(merged, merged)
        self.down = Linear(merged, config.out_width)
        self._merged = merged

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(self.norm(x).view(-1, self._merged))))  # type: ignore[no-any-return]


class VisionTower(nn.Module):
    """Packed frames to rows. See `VisionEncoder.collate` for the inputs."""

    frequencies: Tensor

    def __init__(self, config: VisionEncoder) -> None:
        super().__init__()
        block = TowerConfig(
            width=config.width,
            heads=config.heads,
            intermediate=config.intermediate,
            activation=config.activation,
            norm=config.norm,
            norm_eps=EPS,
            gated=config.gated,
        )
        self.cut = FrameCutter(config.patches)
        self.patch_embed = Linear(config.patches.values, config.width, bias=False)
        self.blocks = nn.ModuleList(TowerBlock(block) for _ in range(config.depth))
        self.merger = Merger(config)
        frequencies = inverse_frequencies(config.rope_theta, config.width // config.heads // 2)
        self.register_buffer("frequencies", frequencies.to(torch.get_default_device()), persistent=False)
        self._config = config

    def forward(
        self,
        pixels: Tensor,
        corners: Tensor,
        strides: Tensor,
        places: Tensor,
        starts: Tensor,
        longest: Tensor,
        order: Tensor | None = None,
        window_starts: Tensor | None = None,
    ) -> Tensor:
        x = self.patch_embed(self.cut(pixels, corners, strides, self.patch_embed.weight.dtype))  # [T, W]
        angles = torch.cat([axis.unsqueeze(1).float() * self.frequencies for axis in places], dim=1)
        frames = Packing(starts, longest.shape[0])
        if order is None or window_starts is None:
            return self._run(x, angles, [frames] * len(self.blocks))
        side = self._config.window * self._config.merge
        windows = Packing(window_starts, side * side)
        packings = [frames if n in self._config.full_layers else windows for n in range(len(self.blocks))]
        rows = self._run(self._reorder(x, order), self._reorder(angles, order), packings)
        return torch.empty_like(rows).index_copy_(0, order, rows)

    def _run(self, x: Tensor, angles: Tensor, packings: list[Packing]) -> Tensor:
        turn = angles.cos(), angles.sin()  # [T, D / 2]
        for block, packing in zip(self.blocks, packings, strict=True):
            x = block(x, packing, turn)
        return self.merger(x)  # type: ignore[no-any-return]

    def _reorder(self, x: Tensor, order: Tensor) -> Tensor:
        """Merge squares of [T, any] in the given order."""
        squares = x.view(order.shape[0], -1)
        return squares[order].view(x.shape)
