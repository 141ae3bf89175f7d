"""Patches cut on the device, of frames of several sizes at once, are those of the host's operations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmcore.errors import RequestError
from mmcore.inputs.ops import NumpyOps
from mmcore.model.frame_patches import FrameCutter
from mmcore.parts.frame_patches import FramePatches

MEAN, STD = (0.48, 0.45, 0.41), (0.27, 0.26, 0.28)
items = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=4)


@given(items, st.integers(1, 5), st.integers(1, 3), st.integers(1, 2), st.integers(0, 99))
def test_patches_equal_those_of_the_host(
    sizes: list[tuple[int, int, int]], patch: int, temporal: int, merge: int, seed: int
) -> None:
    config = FramePatches(patch=patch, temporal=temporal, merge=merge, mean=MEAN, std=STD)
    random, ops = np.random.default_rng(seed), NumpyOps()
    frames, grids, expected = [], [], []
    for count, height, width in sizes:
        grids.append((-(-count // temporal), height * merge, width * merge))
        size = (count, height * merge * patch, width * merge * patch, 3)
        frames.append(random.integers(0, 256, size, np.uint8))
        values = ops.normalize(frames[-1], MEAN, STD)
        expected.append(ops.patchify(values, patch=patch, temporal=temporal, merge=merge))
    columns = (torch.from_numpy(array) for array in config.pack(frames, grids).values())
    found = FrameCutter(config)(*columns, torch.float32)
    np.testing.assert_allclose(found.numpy(), np.concatenate(expected), rtol=0, atol=2e-6)
    assert found.shape[1] == config.values


def test_frames_that_do_not_fill_their_grid_are_refused() -> None:
    config = FramePatches(patch=2, temporal=1, merge=1, mean=MEAN, std=STD)
    for shape in ((1, 4, 6, 3), (0, 4, 4, 3), (1, 4, 4, 1)):
        with pytest.raises(RequestError, match="do not hold 2x2 patches"):
            config.pack([np.zeros(shape, np.uint8)], [(1, 2, 2)])
