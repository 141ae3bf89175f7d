"""Patches made on the device are those of the host's operations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmcore.inputs.ops import NumpyOps
from mmcore.model.pixel_patches import PixelPatches

MEAN, STD = (0.48, 0.45, 0.41), (0.27, 0.26, 0.28)


@given(patch=st.integers(1, 9), side=st.integers(1, 6), rim=st.integers(0, 5), seed=st.integers(0, 99))
def test_patches_equal_those_of_the_host(patch: int, side: int, rim: int, seed: int) -> None:
    edge = patch * side + rim % patch
    pixels = np.random.default_rng(seed).integers(0, 256, (2, edge, edge, 3), np.uint8)
    inside = pixels[:, : patch * side, : patch * side]
    ops = NumpyOps()
    expected = [ops.patchify(ops.normalize(one, MEAN, STD)[None], patch=patch) for one in inside]
    found = PixelPatches(patch, side, MEAN, STD)(torch.from_numpy(pixels), torch.float32)
    np.testing.assert_allclose(found.numpy(), np.concatenate(expected), rtol=0, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_come_in_the_towers_dtype(dtype: torch.dtype) -> None:
    pixels = torch.zeros(1, 4, 4, 3, dtype=torch.uint8)
    assert PixelPatches(2, 2, MEAN, STD)(pixels, dtype).dtype == dtype
