"""Where the patches of frames of several sizes lie, for `mmcore.model.frame_patches` to cut them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmcore.errors import RequestError

Ints = NDArray[np.int64]
Grid = tuple[int, ...]
"""Time, height and width of an item, in patches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePatches:
    """Patches of ``patch`` x ``patch`` pixels through ``temporal`` frames, those of a square of ``merge`` x
    ``merge`` together. ``mean`` and ``std`` of a channel's values between 0 and 1."""

    patch: int
    temporal: int
    merge: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def channels(self) -> int:
        return len(self.mean)

    @property
    def values(self) -> int:
        """Elements of one patch: channels x frames x height x width."""
        return self.channels * self.temporal * self.patch**2

    def pack(
        self, items: Sequence[NDArray[np.uint8]], grids: Sequence[Grid]
    ) -> Mapping[str, NDArray[np.generic]]:
        """Of ``items`` uint8 [frames, height, width, channels], which fill their grids, T patches in all:

        ``pixels`` uint8 [any], all frames one after the other; ``corners`` int64 [T, temporal], where in them
        each patch begins in each of its frames, and ``strides`` int64 [T], from one of its lines to the next.
        The last frame, or the picture, is repeated until the grid is full. Raises `RequestError` for frames
        of another size: on the device patches would be cut from past their end.
        """
        corners: list[Ints] = []
        strides: list[Ints] = []
        first = 0
        for frames, grid in zip(items, grids, strict=True):
            self._check(frames, grid)
            line = frames.shape[2] * self.channels
            row, column = self.places((1, *grid[1:]))
            inside = (row * line + column * self.channels) * self.patch
            taken = np.arange(grid[0] * self.temporal).clip(max=len(frames) - 1).reshape(grid[0], 1, -1)
            corners.append((first + inside[:, None] + taken * frames[0].size).reshape(-1, self.temporal))
            strides.append(np.full(len(corners[-1]), line, np.int64))
            first += frames.size
        return {
            "pixels": np.concatenate([frames.reshape(-1) for frames in items]),
            "corners": np.concatenate(corners),
            "strides": np.concatenate(strides),
        }

    def places(self, grid: Grid) -> Ints:
        """Row and column of each patch, int64 [2, patches]: merge square by merge square, frame by frame."""
        time, height, width = grid
        rows, columns = np.indices((height, width), dtype=np.int64)
        squares = (height // self.merge, self.merge, width // self.merge, self.merge)
        flat = [axis.reshape(squares).transpose(0, 2, 1, 3).reshape(-1) for axis in (rows, columns)]
        return np.tile(np.stack(flat), (1, time))

    def _check(self, frames: NDArray[np.uint8], grid: Grid) -> None:
        size = (grid[1] * self.patch, grid[2] * self.patch, self.channels)
        if len(frames) < 1 or frames.shape[1:] != size:
            raise RequestError(
                f"the encoder failed: frames of shape {frames.shape} do not hold {grid[1]}x{grid[2]} patches"
            )
