"""Pictures fitted, squared and cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mmcore.inputs.ops import NumpyOps
from mmcore.parts.tiles import fitted, fitted_size, squared, tiles

side = st.integers(1, 40)


@given(height=side, width=side, tall=side, wide=side)
def test_a_fitted_picture_touches_two_edges_and_leaves_none(
    height: int, width: int, tall: int, wide: int
) -> None:
    found = fitted_size(height, width, tall, wide)
    assert found[0] <= tall
    assert found[1] <= wide
    assert found[0] == tall or found[1] == wide
    image = np.full((height, width, 3), 200, np.uint8)
    field = fitted(image, tall, wide, NumpyOps(), resample="nearest")
    assert field.shape == (tall, wide, 3)
    assert (field == 200).all(axis=2).sum() == found[0] * found[1]


@given(height=side, width=side)
def test_a_square_holds_the_picture_in_its_middle(height: int, width: int) -> None:
    image = np.full((height, width, 3), 9, np.uint8)
    square = squared(image, (1, 2, 3))
    most = max(height, width)
    assert square.shape == (most, most, 3)
    top, left = (most - height) // 2, (most - width) // 2
    assert (square[top : top + height, left : left + width] == 9).all()
    assert (square == (1, 2, 3)).all(axis=2).sum() == most * most - height * width


def test_tiles_come_line_by_line() -> None:
    image = np.arange(5 * 7).reshape(5, 7, 1)
    found = tiles(image, 2, 3, NumpyOps())
    assert [int(tile[0, 0, 0]) for tile in found] == [0, 3, 14, 17]
    assert all(tile.shape == (2, 3, 1) for tile in found)
