"""Which places of a map see each other: windows, every other time shifted by half (arXiv 2103.14030)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

APART = -100.0
"""Added to the score of two places that share a window but were no neighbours before the shift."""


def window_map(height: int, width: int, window: int, shift: int) -> dict[str, NDArray[Any]]:
    """A map of T places, row by row, cut into W windows of L places each.

    ``order`` int64 [W, L] is what they hold; T stands for a place past the map's end, which is zero. After a
    shift the windows at the lower and right end hold what it brought round: they come last, and ``apart``
    float32 [windows, L, L] is added to their scores. ``back`` int64 [T] is where each place is in ``order``.
    """
    rows, columns = -(-height // window), -(-width // window)
    places = np.full((rows * window, columns * window), height * width)
    places[:height, :width] = np.arange(height * width).reshape(height, width)
    windows = _cut(np.roll(places, (-shift, -shift), (0, 1)), window)
    ends = np.zeros((rows, columns), bool)
    if shift:
        ends[-1], ends[:, -1] = True, True
    order = np.concatenate([windows[~ends], windows[ends]])
    (found,) = np.nonzero(order.reshape(-1) < height * width)
    back = np.empty(height * width, np.int64)
    back[order.reshape(-1)[found]] = found
    down, across = (_parts(count * window, window, shift) for count in (rows, columns))
    met = _cut(down[:, None] * 3 + across, window)[ends]
    apart = np.where(met[:, :, None] == met[:, None, :], 0.0, APART).astype(np.float32)
    return {"order": order, "back": back, "apart": apart}


def _cut(cells: Ints, window: int) -> Ints:
    """[H, W] to [rows, columns, L]."""
    rows, columns = cells.shape[0] // window, cells.shape[1] // window
    squares = cells.reshape(rows, window, columns, window).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(squares).reshape(rows, columns, window * window)


def _parts(length: int, window: int, shift: int) -> Ints:
    """Of each place along one side, after the shift: before the last window, in it, or brought round."""
    places = np.arange(length)
    return (places >= length - window).astype(np.int64) + (places >= length - shift)


def distances(window: int) -> Ints:
    """Row of the bias table for each pair of places of a window, int64 [L, L]."""
    down, across = (axis.reshape(-1) for axis in np.indices((window, window)))
    steps = [axis[:, None] - axis[None, :] + window - 1 for axis in (down, across)]
    return (steps[0] * (2 * window - 1) + steps[1]).astype(np.int64)
