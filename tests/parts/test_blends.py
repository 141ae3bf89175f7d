"""Rows blended out of a table, against torch."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from mmcore.model.blends import blend
from mmcore.parts.blends import Blend, joined, packed, tile_map

size = st.integers(1, 12)


def rows(found: Blend, table: torch.Tensor) -> torch.Tensor:
    return blend(table, torch.from_numpy(found.entries), torch.from_numpy(found.weights))


@given(height=size, width=size, tall=size, wide=size)
def test_a_scaled_map_is_what_interpolate_gives(height: int, width: int, tall: int, wide: int) -> None:
    table = torch.randn(height * width, 3, generator=torch.Generator().manual_seed(height + 99 * width))
    cells = np.arange(height * width).reshape(height, width)
    field = table.t().reshape(1, 3, height, width)
    wanted = F.interpolate(field, size=(tall, wide), mode="bilinear")[0].flatten(1).t()
    torch.testing.assert_close(rows(Blend.scaled(cells, tall, wide), table), wanted, rtol=1e-5, atol=1e-5)


@given(height=size, width=size, tall=size, wide=size)
def test_an_averaged_map_is_what_area_interpolation_gives(
    height: int, width: int, tall: int, wide: int
) -> None:
    table = torch.randn(height * width, 3, generator=torch.Generator().manual_seed(height + 99 * width))
    cells = np.arange(height * width).reshape(height, width)
    field = table.t().reshape(1, 3, height, width)
    wanted = F.interpolate(field, size=(tall, wide), mode="area")[0].flatten(1).t()
    torch.testing.assert_close(rows(Blend.averaged(cells, tall, wide), table), wanted, rtol=1e-5, atol=1e-5)


def test_rows_are_summed_in_float32() -> None:
    """Three times a third of a bfloat16 is that number, which sums in bfloat16 miss."""
    table = torch.randn(30, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = Blend(np.arange(30)[:, None].repeat(3, 1), np.full((30, 3), 1 / 3, np.float32))
    assert torch.equal(rows(found, table), table)


@given(lines=st.integers(0, 5), columns=st.integers(0, 5), scaled=st.booleans())
def test_a_row_after_each_line(lines: int, columns: int, scaled: bool) -> None:
    cells = np.arange(lines * columns).reshape(lines, columns)
    body = Blend.scaled(cells, lines, columns) if scaled and lines * columns else Blend.of(cells.reshape(-1))
    ended = body.ending_lines(lines, columns, -1)
    table = torch.arange(lines * columns + 1).float()[:, None]
    wanted = [float(n) for line in cells.tolist() for n in [*line, lines * columns]]
    assert rows(ended, table)[:, 0].tolist() == wanted


def test_items_keep_to_their_own_part_of_the_table() -> None:
    one, other = Blend.of(np.array([1, 0, -1])), Blend.scaled(np.array([[0, 1]]), 1, 1)
    found = packed([one, other], [2, 2], shared=1)
    table = torch.tensor([[10.0], [11.0], [20.0], [22.0], [99.0]])
    assert rows(found, table)[:, 0].tolist() == [11.0, 10.0, 99.0, 21.0]
    assert len(joined([one, other])) == 4


def test_a_map_of_tiles_is_read_line_by_line() -> None:
    assert tile_map(2, 1, 2, first=1).tolist() == [[4, 5, 8, 9], [6, 7, 10, 11]]
    assert tile_map(1, 2, 2).tolist() == [[0, 1], [2, 3]]
