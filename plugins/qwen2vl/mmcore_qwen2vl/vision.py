"""The vision tower as data, and how pictures are packed for it on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mmcore.decoder_config import Activation, Norm
from mmcore.parts.frame_patches import FramePatches
from mmcore.request import EncodeCost, EncoderInput, ItemPlan

if TYPE_CHECKING:
    from torch import nn

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionEncoder:
    """Qwen2-VL's tower (layer norm, plain MLP, each frame sees itself), or Qwen2.5-VL's (RMS norm, gated
    MLP, attention inside windows except in ``full_layers``)."""

    depth: int
    width: int
    heads: int
    intermediate: int
    patches: FramePatches
    out_width: int
    activation: Activation
    norm: Norm
    gated: bool
    rope_theta: float = 10_000.0
    window: int = 0
    """Side of an attention window in merged patches; 0 without windows."""
    full_layers: tuple[int, ...] = ()

    @property
    def merge(self) -> int:
        """Patches along the side of a square that becomes one row."""
        return self.patches.merge

    def build(self) -> nn.Module:
        from mmcore_qwen2vl.encoder import VisionTower

        return VisionTower(self)

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, Any]:
        """T patches of all items, as `FramePatches.pack` gives them, and ``places`` int64 [2, T] (row and
        column), ``starts`` int32 [frames + 1], ``longest`` uint8 [patches of the largest frame]: a number
        told by a shape, which the host knows without asking the device. With windows also ``order`` int64
        [T / merge^2], the merge squares window by window, and ``window_starts`` int32 [windows + 1], in
        patches.
        """
        grids = [plan.geometry for plan in plans]
        frames = [height * width for time, height, width in grids for _ in range(time)]
        arrays = {
            **self.patches.pack([item.arrays["frames"] for item in inputs], grids),
            "places": np.concatenate([self.patches.places(grid) for grid in grids], axis=1),
            "starts": _starts(frames),
            "longest": np.zeros(max(frames), np.uint8),
        }
        return {**arrays, **self._windows(grids)} if self.window else arrays

    def _windows(self, grids: Sequence[tuple[int, ...]]) -> Mapping[str, Any]:
        orders: list[Ints] = []
        sizes: list[int] = []
        first = 0
        for time, height, width in grids:
            cells = np.arange(height * width // self.merge**2).reshape(height // self.merge, -1)
            for frame in range(time):
                for window in _tiles(cells + frame * cells.size, self.window):
                    orders.append(window.reshape(-1) + first)
                    sizes.append(window.size * self.merge**2)
            first += time * cells.size
        return {"order": np.concatenate(orders), "window_starts": _starts(sizes)}

    def cost(self, plan: ItemPlan) -> EncodeCost:
        """Matrix products of blocks, patch projection and merger; attention by frame or window."""
        time, height, width = plan.geometry
        patches, frame = time * height * width, height * width
        seen = min(frame, (self.window * self.merge) ** 2) if self.window else frame
        full = len(self.full_layers) if self.window else self.depth
        linear = 4 * self.width**2 + (3 if self.gated else 2) * self.width * self.intermediate
        attention = 2 * self.width * (full * frame + (self.depth - full) * seen)
        merged = self.width * self.merge**2
        ends = self.patches.values * self.width * patches + merged * (merged + self.out_width) * plan.rows
        return EncodeCost(2 * (patches * (self.depth * linear + attention) + ends))


def _tiles(cells: Ints, side: int) -> list[Ints]:
    """Squares of ``side``, row by row; those at the lower and right edge may be smaller."""
    height, width = cells.shape
    return [
        cells[top : top + side, left : left + side]
        for top in range(0, height, side)
        for left in range(0, width, side)
    ]


def _starts(sizes: Sequence[int]) -> NDArray[np.int32]:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
