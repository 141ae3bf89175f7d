"""Which features of a picture's tiles are joined into the values that the projector turns into one row.

A tower gives every tile the same number of features. They form a table, tile after tile; a row is made of
``fold`` x ``fold`` neighbours in each scale, line by line, scales innermost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcore.parts.blends import Blend, Ints, joined, tile_map

EMPTY = -1
"""The table's last entry, zeros: beyond the right and lower rim of a tile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileMap:
    """``side`` x ``side`` features a tile.

    With several ``scales`` a picture that is cut is seen as squares of so many tiles along their side, and in
    place of the last of them as tall x wide tiles.

    Geometries are (tiles,) for tiles that stand alone, (tall, wide) for a picture that is cut.
    """

    side: int
    fold: int
    scales: tuple[int, ...] = (1,)

    @property
    def padded(self) -> bool:
        """Tiles are filled up with zeros."""
        return bool(self.side % self.fold)

    def blocks(self, geometry: tuple[int, ...]) -> tuple[int, int]:
        """Lines and columns of tiles that become rows; a picture cut at one scale has a thumbnail besides."""
        if len(geometry) == 2 and len(self.scales) > 1:
            return geometry
        tiles = math.prod(geometry)
        return tiles + (len(geometry) == 2 and tiles > 1), 1

    def tiles(self, geometry: tuple[int, ...]) -> int:
        """How often the tower runs for an item with this geometry."""
        squares = self.scales[:-1] if len(geometry) == 2 else ()
        return math.prod(self.blocks(geometry)) + sum(scale**2 for scale in squares)

    def count(self, geometry: tuple[int, ...]) -> int:
        """Rows of an item with this geometry."""
        return math.prod(self.blocks(geometry)) * self._half**2

    def features(self, geometry: tuple[int, ...]) -> Blend:
        """``fold`` * ``fold`` features in each scale a row, row after row."""
        tall, wide = self.blocks(geometry)
        maps = joined(self._maps(geometry))
        shape = (len(self.scales), -1, maps.entries.shape[1])
        places = self._places(tall, wide)
        entries = maps.entries.reshape(shape)[:, places]  # [scales, rows, fold * fold, taps]
        entries[:, places < 0] = EMPTY
        weights = maps.weights.reshape(shape)[:, places]
        taps = shape[-1]
        return Blend(
            entries.transpose(1, 2, 0, 3).reshape(-1, taps), weights.transpose(1, 2, 0, 3).reshape(-1, taps)
        )

    @property
    def _half(self) -> int:
        return math.ceil(self.side / self.fold)

    def _maps(self, geometry: tuple[int, ...]) -> list[Blend]:
        """Each scale's map, as large as the last one; of a tile alone the same map in each."""
        tall, wide = self.blocks(geometry)
        if len(geometry) == 1 or len(self.scales) == 1:
            return [Blend.of(tile_map(self.side, tall, wide, 0).reshape(-1))] * len(self.scales)
        firsts = np.cumsum([0, *(scale**2 for scale in self.scales[:-1])]).tolist()
        squares = [
            Blend.averaged(tile_map(self.side, scale, scale, first), tall * self.side, wide * self.side)
            for first, scale in zip(firsts, self.scales[:-1], strict=False)
        ]
        return [*squares, Blend.of(tile_map(self.side, tall, wide, firsts[-1]).reshape(-1))]

    def _places(self, tall: int, wide: int) -> Ints:
        """Places of the map that each row is made of, [rows, fold * fold]; -1 outside of a tile."""
        lines, columns = self._lines(tall)[:, None, :, None], self._lines(wide)[None, :, None, :]
        places = np.where((lines < 0) | (columns < 0), -1, lines * wide * self.side + columns)
        return places.reshape(-1, self.fold**2)

    def _lines(self, tiles: int) -> Ints:
        """Lines of the map that go into each line of rows, [tiles * half, fold]."""
        within = np.arange(self._half * self.fold)
        lines = np.arange(tiles)[:, None] * self.side + within
        return np.where(within < self.side, lines, -1).reshape(-1, self.fold)
