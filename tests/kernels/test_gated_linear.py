"""Gate, up and SwiGLU of a batch in one launch: interpreted, and on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mmcore.kernels.gated_linear_triton import Tile, choose_tile, find_tile, gated_linear_triton
from mmcore.kernels.skinny_linear import skinny_linear, skinny_linear_reference

PLACE = "mmcore.kernels.gated_linear_triton", "gated_linear_triton"


@pytest.mark.parametrize("tile", [Tile(64, 16, 3), Tile(32, 0, 2)])
@pytest.mark.parametrize(("rows", "width", "depth"), [(17, 90, 64), (33, 160, 128)])
def test_in_interpreter(interpreter: Any, tile: Tile, rows: int, width: int, depth: int) -> None:
    random = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, depth, generator=random)
    weight = torch.randn(2 * width, depth, generator=random) / depth**0.5
    found, _ = interpreter.call(*PLACE, x, weight, tile)
    wanted = skinny_linear_reference(x, weight, gated=True)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_tile_is_chosen_whose_programs_fill_the_card() -> None:
    assert choose_tile(64, 18_944, 132) is not None
    assert choose_tile(64, 11_008, 132) is None  # 77 programs, or 138 for 264 places
    assert choose_tile(64, 512, 132) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [17, 24, 33, 64])
@pytest.mark.parametrize(("width", "depth"), [(18_944, 3584), (17_920, 5120)])
def test_on_a_gpu(
    fresh_seed: int, assert_within_twice: Any, width: int, depth: int, rows: int, dtype: torch.dtype
) -> None:
    x = torch.randn(rows, depth, device="cuda")
    weight = torch.randn(2 * width, depth, device="cuda") / depth**0.5
    halves = x.to(dtype), weight.to(dtype)
    tile = find_tile(*halves)
    assert tile is not None
    exact = skinny_linear_reference(*(half.float() for half in halves), gated=True)
    plain = skinny_linear_reference(*halves, gated=True)
    assert_within_twice(gated_linear_triton(*halves, tile), plain, exact)
    assert torch.equal(skinny_linear(*halves, gated=True), gated_linear_triton(*halves, tile))
