"""The shared picture processor against transformers' own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from mmcore.errors import CheckpointError
from mmcore.inputs.ops import NumpyOps
from mmcore.parts.pictures import PictureShape

CROPPED: dict[str, Any] = {
    "do_center_crop": True,
    "crop_size": {"height": 24, "width": 24},
    "size": {"shortest_edge": 24},
    "resample": 3,
    "image_mean": [0.48, 0.46, 0.41],
    "image_std": [0.27, 0.26, 0.28],
}
STRETCHED: dict[str, Any] = {
    "do_center_crop": False,
    "size": {"height": 18, "width": 20},
    "resample": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


@pytest.mark.parametrize("settings", [CROPPED, STRETCHED], ids=["cropped", "stretched"])
@given(height=st.integers(1, 90), width=st.integers(1, 90), seed=st.integers(0, 99))
def test_pixels_equal_the_reference(settings: dict[str, Any], height: int, width: int, seed: int) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    shape = PictureShape.from_settings(settings)
    ours = shape.apply(image, NumpyOps())
    reference = CLIPImageProcessorPil(do_convert_rgb=True, **settings)
    theirs = reference(Image.fromarray(image), return_tensors="np")["pixel_values"][0]
    assert ours.shape == (shape.height, shape.width, 3)
    np.testing.assert_allclose(ours.transpose(2, 0, 1), theirs, atol=2e-6)


def test_old_files_write_numbers() -> None:
    old = {**CROPPED, "size": 24, "crop_size": 24}
    assert PictureShape.from_settings(old) == PictureShape.from_settings(CROPPED)


@pytest.mark.parametrize("wrong", [{}, {"size": {"width": 3}}, {**CROPPED, "resample": 9}, {"size": 0}])
def test_sizes_that_no_picture_has(wrong: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        PictureShape.from_settings(wrong)


def test_a_shape_that_keeps_the_aspect_has_a_limit() -> None:
    """A PNG of one line would else become 22 million columns."""
    kept = PictureShape(height=336, width=336, shortest_edge=336)
    assert kept.max_aspect == 100
    tall, wide = kept.resized(1, int(kept.max_aspect))
    assert 3 * tall * wide < 64 << 20
    assert PictureShape(height=336, width=336).max_aspect == 0
