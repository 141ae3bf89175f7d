"""Pictures cut into tiles of one size, or set into a field. uint8 [height, width, channels] in and out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mmcore.adapter import MediaOps
from mmcore.errors import CheckpointError

if TYPE_CHECKING:
    import numpy as np

MAX_TILES = 1024
"""Of one picture; published models have 12 to 40."""


def fitted(image: np.ndarray, height: int, width: int, ops: MediaOps, *, resample: str) -> np.ndarray:
    """As large as it fits into height x width, its aspect kept, in the middle of black."""
    tall, wide = fitted_size(image.shape[0], image.shape[1], height, width)
    resized = ops.resize(image, tall, wide, resample=resample)
    return ops.pad(resized, height, width, top=(height - tall) // 2, left=(width - wide) // 2, value=0)


def fitted_size(height: int, width: int, tall: int, wide: int) -> tuple[int, int]:
    """Height and width of a picture scaled to fit into tall x wide."""
    across, down = wide / width, tall / height
    if across < down:
        return min(math.ceil(height * across), tall), wide
    return tall, min(math.ceil(width * down), wide)


def squared(image: np.ndarray, colour: Sequence[int]) -> np.ndarray:
    """In the middle of a square of this colour."""
    import numpy as np

    height, width = image.shape[:2]
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    square = np.empty((side, side, len(colour)), image.dtype)
    square[:] = colour
    square[top : top + height, left : left + width] = image
    return square


def tiles(image: np.ndarray, height: int, width: int, ops: MediaOps) -> list[np.ndarray]:
    """Tiles of height x width, line by line; what is left at the right and the bottom is left out."""
    rows, columns = image.shape[0] // height, image.shape[1] // width
    places = [(height * row, width * column) for row in range(rows) for column in range(columns)]
    return [ops.crop(image, top, left, height, width) for top, left in places]


def tile_grids(smallest: int, largest: int) -> tuple[tuple[int, int], ...]:
    """All (tall, wide) of so many tiles, ascending in area. Raises `CheckpointError` beyond `MAX_TILES`."""
    if largest > MAX_TILES:
        raise CheckpointError(f"{largest} tiles a picture: at most {MAX_TILES} can be planned")
    sides = range(1, largest + 1)
    grids = [(tall, wide) for tall in sides for wide in sides if smallest <= tall * wide <= largest]
    return tuple(sorted(grids, key=lambda grid: grid[0] * grid[1]))


def closest_grid(height: int, width: int, grids: Sequence[tuple[int, int]], side: int) -> tuple[int, int]:
    """The one of the nearest aspect; of equals the last whose tiles, ``side`` pixels each, it half fills.

    The grids ascend in area (`dynamic_preprocess` of InternVL, Chen et al. 2024).
    """
    best, nearest = grids[0], float("inf")
    for tall, wide in grids:
        distance = abs(width / height - wide / tall)
        fills = height * width > 0.5 * side * side * tall * wide
        if distance < nearest or (distance == nearest and fills):
            best, nearest = (tall, wide), distance
    return best
