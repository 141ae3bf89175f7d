"""The vision tower as data, and how pictures are packed for it on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mmcore.decoder_config import Activation, Norm
from mmcore.errors import PluginError
from mmcore.request import EncodeCost, EncoderInput, ItemPlan
from mmcore_qwen2vl.processor import CLIP_MEAN, CLIP_STD

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
    patch: int
    """Side of a patch in pixels."""
    temporal: int
    """Frames of a patch."""
    channels: int
    merge: int
    out_width: int
    activation: Activation
    norm: Norm
    gated: bool
    mean: tuple[float, ...] = CLIP_MEAN
    std: tuple[float, ...] = CLIP_STD
    """Of a channel's levels from 0 to 1."""
    rope_theta: float = 10_000.0
    window: int = 0
    """Side of an attention window in merged patches; 0 without windows."""
    full_layers: tuple[int, ...] = ()

    @property
    def patch_values(self) -> int:
        """Elements of one patch: channels x frames x height x width."""
        return self.channels * self.temporal * self.patch**2

    def build(self) -> nn.Module:
        from mmcore_qwen2vl.encoder import VisionTower

        return VisionTower(self)

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> Mapping[str, Any]:
        """T patches of all items, neighbours of a merge square together:

        ``pixels`` uint8 [any], all frames one after the other; ``corners`` int64 [T, temporal], where in them
        each patch begins in each of its frames, and ``strides`` int64 [T], from one of its lines to the next.
        ``places`` int64 [2, T] (row and column), ``starts`` int32 [frames + 1], ``longest`` uint8 [patches of
        the largest frame]: a number told by a shape, which the host knows without asking the device. With
        windows also ``order`` int64 [T / merge^2], the merge squares window by window, and ``window_starts``
        int32 [windows + 1], in patches.
        """
        grids = [plan.geometry for plan in plans]
        frames = [height * width for time, height, width in grids for _ in range(time)]
        given = [item.arrays["frames"] for item in inputs]
        arrays = {
            "pixels": np.concatenate([one.reshape(-1) for one in given]),
            **self._cuts(given, grids),
            "places": np.concatenate([_places(grid, self.merge) for grid in grids], axis=1),
            "starts": _starts(frames),
            "longest": np.zeros(max(frames), np.uint8),
        }
        return {**arrays, **self._windows(grids)} if self.window else arrays

    def _cuts(self, given: Sequence[NDArray[Any]], grids: Sequence[tuple[int, ...]]) -> Mapping[str, Ints]:
        """The last frame, or the picture, is repeated until the grid is full."""
        corners: list[Ints] = []
        strides: list[Ints] = []
        first = 0
        for frames, grid in zip(given, grids, strict=True):
            _check_size(frames, (grid[1] * self.patch, grid[2] * self.patch, self.channels), grid)
            line = frames.shape[2] * self.channels
            row, column = _places((1, *grid[1:]), self.merge)
            inside = (row * line + column * self.channels) * self.patch
            taken = np.arange(grid[0] * self.temporal).clip(max=len(frames) - 1).reshape(grid[0], 1, -1)
            corners.append((first + inside[:, None] + taken * frames[0].size).reshape(-1, self.temporal))
            strides.append(np.full(len(corners[-1]), line, np.int64))
            first += frames.size
        return {"corners": np.concatenate(corners), "strides": np.concatenate(strides)}

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
        ends = self.patch_values * self.width * patches + merged * (merged + self.out_width) * plan.rows
        return EncodeCost(2 * (patches * (self.depth * linear + attention) + ends))


def _check_size(frames: NDArray[Any], size: tuple[int, int, int], grid: tuple[int, ...]) -> None:
    """On the device, patches of other frames would be cut from past their end."""
    if len(frames) < 1 or frames.shape[1:] != size:
        raise PluginError(f"frames of shape {frames.shape} do not hold {grid[1]}x{grid[2]} patches")


def _places(grid: tuple[int, ...], merge: int) -> Ints:
    """Row and column of each patch, int64 [2, patches]: merge square by merge square, frame by frame."""
    time, height, width = grid
    rows, columns = np.indices((height, width), dtype=np.int64)
    squares = (height // merge, merge, width // merge, merge)
    flat = [axis.reshape(squares).transpose(0, 2, 1, 3).reshape(-1) for axis in (rows, columns)]
    return np.tile(np.stack(flat), (1, time))


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
