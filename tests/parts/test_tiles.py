"""Pictures fitted, squared and cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcore.errors import CheckpointError
from mmcore.inputs.ops import NumpyOps
from mmcore.parts.tiles import closest_grid, fitted, fitted_size, squared, tile_grids, tiles

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


def test_grids_ascend_in_area() -> None:
    assert tile_grids(1, 3) == ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1))
    assert set(tile_grids(3, 4)) == {(1, 3), (3, 1), (1, 4), (2, 2), (4, 1)}
    assert tile_grids(5, 4) == ()


@given(height=st.integers(1, 3000), width=st.integers(1, 3000))
def test_the_closest_grid_has_the_nearest_aspect(height: int, width: int) -> None:
    grids = tile_grids(1, 12)
    tall, wide = closest_grid(height, width, grids, 448)
    nearest = min(abs(width / height - b / a) for a, b in grids)
    assert abs(width / height - wide / tall) == nearest


def test_a_larger_grid_of_the_same_aspect_needs_pixels_to_fill_half_of_it() -> None:
    grids = tile_grids(1, 12)
    found = [closest_grid(side, side, grids, 100) for side in (50, 141, 142, 212, 213, 9000)]
    assert found == [(1, 1), (1, 1), (2, 2), (2, 2), (3, 3), (3, 3)]


def test_a_number_of_tiles_that_no_model_has_is_refused() -> None:
    with pytest.raises(CheckpointError, match="1000000000000 tiles a picture: at most 1024"):
        tile_grids(1, 10**12)
