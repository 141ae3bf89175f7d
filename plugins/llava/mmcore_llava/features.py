"""Which features of a picture's tiles become its rows, in which order.

A tower gives every tile the same number of features. They form a table, tile after tile, with the learned
newline as its last entry; rows are entries of it, or blends where a map of features is scaled down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcore.parts.blends import Blend, Ints, joined

NEWLINE = -1
SHRINK_FROM = 1.1
"""Maps that are larger than allowed by less than this factor stay as they are."""


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """``side`` x ``side`` features a tile, ``leading`` ones (a class token) before them.

    ``max_tiles`` bounds the area of a map of tiles, 0 for no bound.
    """

    side: int
    leading: int = 0
    newline: bool = False
    max_tiles: int = 0

    @property
    def per_tile(self) -> int:
        return self.side**2 + self.leading

    def rows(self, geometry: tuple[int, ...]) -> Blend:
        """Of an item with this geometry (`LlavaProcessor`)."""
        if not geometry:
            return self._ended(Blend.of(np.arange(self.per_tile)))
        return self._video(*geometry) if len(geometry) == 1 else self._tiled(*geometry)

    def count(self, geometry: tuple[int, ...]) -> int:
        """Rows of an item with this geometry."""
        if len(geometry) == 4:
            lines, columns = self._shrunk(*self._unpadded(*geometry)[2:])
            return self.per_tile + lines * (columns + 1)
        return (geometry[0] * self._half**2 if geometry else self.per_tile) + self.newline

    def tiles(self, geometry: tuple[int, ...]) -> int:
        """How often the tower runs for an item with this geometry."""
        return 1 + geometry[0] * geometry[1] if len(geometry) == 4 else sum(geometry) or 1

    @property
    def _half(self) -> int:
        return math.ceil(self.side / 2)

    def _video(self, frames: int) -> Blend:
        """Each frame at half the resolution, then one newline."""
        cells = [self._cells(1, 1) + self.per_tile * frame for frame in range(frames)]
        return self._ended(joined([Blend.scaled(frame, self._half, self._half) for frame in cells]))

    def _tiled(self, tall: int, wide: int, height: int, width: int) -> Blend:
        """The whole picture, then its map of tiles without padding, a newline after each of its lines."""
        top, left, lines, columns = self._unpadded(tall, wide, height, width)
        cells = self.per_tile + self._cells(tall, wide)[top : top + lines, left : left + columns]
        shrunk = self._shrunk(lines, columns)
        kept = shrunk == (lines, columns)
        body = Blend.of(cells.reshape(-1)) if kept else Blend.scaled(cells, *shrunk)
        return joined([Blend.of(np.arange(self.per_tile)), body.ending_lines(*shrunk, NEWLINE)])

    def _ended(self, rows: Blend) -> Blend:
        return joined([rows, Blend.of(np.array([NEWLINE]))]) if self.newline else rows

    def _cells(self, tall: int, wide: int) -> Ints:
        """Entry of each feature of a map of tiles, [tall * side, wide * side], from the first tile on."""
        y, x = np.indices((tall * self.side, wide * self.side), dtype=np.int64)
        tile = (y // self.side) * wide + x // self.side
        cells: Ints = tile * self.per_tile + self.leading + (y % self.side) * self.side + x % self.side
        return cells

    def _unpadded(self, tall: int, wide: int, height: int, width: int) -> tuple[int, int, int, int]:
        """Top, left, lines and columns of the map that the picture itself covers.

        The arithmetic is that of transformers' ``unpad_image``, its rounding included.
        """
        lines, columns = tall * self.side, wide * self.side
        if width / height > columns / lines:
            top = (lines - int(round(height * (columns / width), 7))) // 2
            return top, 0, lines - 2 * top, columns
        left = (columns - int(round(width * (lines / height), 7))) // 2
        return 0, left, lines, columns - 2 * left

    def _shrunk(self, lines: int, columns: int) -> tuple[int, int]:
        if not self.max_tiles:
            return lines, columns
        ratio = math.sqrt(lines * columns / (self.max_tiles * self.side**2))
        return (int(lines // ratio), int(columns // ratio)) if ratio > SHRINK_FROM else (lines, columns)
