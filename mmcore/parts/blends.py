"""Encoder rows as entries, or blends of entries, of a table of features.

Tiles of a picture are encoded alike and joined afterwards: cropped, scaled, reordered, with learned rows
between them. All of that is one gather with weights, laid out on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False, slots=True)
class Blend:
    """Row i is the sum over k of ``weights[i, k]`` times entry ``entries[i, k]``; both [rows, taps].

    Entries below 0 count from the table's end, as in Python.
    """

    entries: Ints
    weights: Floats

    def __len__(self) -> int:
        return len(self.entries)

    @classmethod
    def of(cls, entries: Ints) -> Blend:
        """Each row is one entry, int64 [rows]."""
        return cls(entries[:, None], np.ones((len(entries), 1), np.float32))

    @classmethod
    def scaled(cls, cells: Ints, height: int, width: int) -> Blend:
        """A map of entries [H, W] scaled bilinearly as by `torch.nn.functional.interpolate`, row by row."""
        tops, bottoms, down = _between(cells.shape[0], height)
        lefts, rights, across = _between(cells.shape[1], width)
        corners = [(y, x) for y in (tops, bottoms) for x in (lefts, rights)]
        shares = [(y, x) for y in (1 - down, down) for x in (1 - across, across)]
        entries = [cells[np.ix_(y, x)].reshape(-1) for y, x in corners]
        weights = [np.outer(y, x).reshape(-1) for y, x in shares]
        return cls(np.stack(entries, axis=1), np.stack(weights, axis=1).astype(np.float32))

    @classmethod
    def averaged(cls, cells: Ints, height: int, width: int) -> Blend:
        """A map of entries [H, W] scaled by area as by `torch.nn.functional.interpolate`, row by row.

        Each row is the mean of the cells that its own cell touches.
        """
        lines, down = _touched(cells.shape[0], height)
        columns, across = _touched(cells.shape[1], width)
        entries = cells[lines[:, None, :, None], columns[None, :, None, :]]
        weights = down[:, None, :, None] * across[None, :, None, :]
        shape = (height * width, lines.shape[1] * columns.shape[1])
        return cls(entries.reshape(shape), weights.reshape(shape).astype(np.float32))

    def ending_lines(self, lines: int, columns: int, entry: int) -> Blend:
        """The rows of a map, with one more row after each of its lines, which may be empty."""
        taps = self.entries.shape[1]
        end = Blend.of(np.full(lines, entry)).widened(taps)
        entries = np.concatenate([self.entries.reshape(lines, columns, taps), end.entries[:, None]], axis=1)
        weights = np.concatenate([self.weights.reshape(lines, columns, taps), end.weights[:, None]], axis=1)
        return Blend(entries.reshape(-1, taps), weights.reshape(-1, taps))

    def widened(self, taps: int) -> Blend:
        """With further taps of weight 0."""
        more = taps - self.entries.shape[1]
        entries = np.concatenate([self.entries, np.repeat(self.entries[:, :1], more, axis=1)], axis=1)
        return Blend(entries, np.pad(self.weights, ((0, 0), (0, more))))


def joined(blends: Sequence[Blend]) -> Blend:
    """Rows of one after the other, over the same table."""
    taps = max(blend.entries.shape[1] for blend in blends)
    wide = [blend.widened(taps) for blend in blends]
    return Blend(np.concatenate([b.entries for b in wide]), np.concatenate([b.weights for b in wide]))


def packed(blends: Sequence[Blend], sizes: Sequence[int], shared: int = 0) -> Blend:
    """Rows of items whose tables lie one after the other, of these sizes; behind all lie ``shared`` entries,
    which each item names from the end."""
    total = sum(sizes) + shared
    firsts = np.cumsum([0, *sizes])
    moved = [
        Blend(np.where(blend.entries < 0, blend.entries + total, blend.entries + first), blend.weights)
        for blend, first in zip(blends, firsts.tolist(), strict=False)
    ]
    return joined(moved)


def tile_map(side: int, tall: int, wide: int, first: int = 0) -> Ints:
    """Entry of each feature of a map of tall x wide tiles, [tall * side, wide * side].

    Tiles of ``side`` x ``side`` features lie one after the other in the table, from tile ``first`` on.
    """
    y, x = np.indices((tall * side, wide * side), dtype=np.int64)
    tile = first + (y // side) * wide + x // side
    cells: Ints = (tile * side + y % side) * side + x % side
    return cells


def _between(source: int, target: int) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """For each place of the target: the two places it lies between, and the share of the second."""
    places = np.maximum((np.arange(target) + 0.5) * (source / target) - 0.5, 0.0)
    first = np.minimum(places.astype(np.int64), source - 1)
    return first, np.minimum(first + 1, source - 1), places - first


def _touched(source: int, target: int) -> tuple[Ints, NDArray[np.float64]]:
    """For each place of the target: the places of the source that it touches, and their equal shares."""
    first = np.arange(target) * source // target
    count = -(-(np.arange(target) + 1) * source // target) - first
    taps = np.arange(count.max())
    places = np.minimum(first[:, None] + taps, source - 1)
    return places, np.where(taps < count[:, None], 1 / count[:, None], 0.0)
