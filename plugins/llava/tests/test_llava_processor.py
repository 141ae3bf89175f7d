"""Pixels and rows against transformers' image processors and models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mmcore_llava.encoder import LlavaTower
from mmcore_llava.processor import best_resolution
from mmcore_llava.vision import LlavaEncoder
from PIL import Image
from torch import Tensor

if TYPE_CHECKING:
    from tests.conftest import Subject

from mmcore.inputs.ops import NumpyOps
from mmcore.request import DecodedMedia, EncoderInput, ItemPlan, MediaInfo

Sizes = list[tuple[int, int]]
side = st.integers(1, 200)
sizes = st.lists(st.tuples(side, side).filter(lambda s: max(s) <= 90 * min(s)), min_size=1, max_size=3)


def pictures(found: Sizes, seed: int) -> list[Image.Image]:
    generator = np.random.default_rng(seed)
    return [
        Image.fromarray(generator.integers(0, 256, (height, width, 3), np.uint8)) for height, width in found
    ]


def measured(subject: Subject, found: Sizes) -> tuple[ItemPlan, ...]:
    infos = [MediaInfo("image", width=width, height=height) for height, width in found]
    return subject.adapter.inputs.measure(infos, [subject.adapter.inputs] * len(infos))


def preprocessed(
    subject: Subject, images: list[Image.Image], plans: tuple[ItemPlan, ...]
) -> list[EncoderInput]:
    media = [DecodedMedia("image", np.asarray(image)) for image in images]
    process = subject.adapter.inputs.preprocess
    return [process(medium, plan, NumpyOps()) for medium, plan in zip(media, plans, strict=True)]


@given(found=sizes, seed=st.integers(0, 99))
def test_pixels_equal_the_reference(subject: Subject, found: Sizes, seed: int) -> None:
    images = pictures(found, seed)
    ours = preprocessed(subject, images, measured(subject, found))
    tower, encoder = subject.model.encoder, subject.adapter.encoder
    assert isinstance(tower, LlavaTower)
    assert isinstance(encoder, LlavaEncoder)
    for item, tiles in zip(ours, subject.reference.pixels(images), strict=True):
        pixels = torch.from_numpy(item.arrays["pixels"])
        patches = [
            NumpyOps().patchify(tile.transpose(1, 2, 0)[None], patch=encoder.vit.patch) for tile in tiles
        ]
        found = tower.cut(pixels, torch.float32).numpy()
        np.testing.assert_allclose(found, np.concatenate(patches[: len(pixels)]), atol=2e-6)
        assert not tiles[len(pixels) :].any()


@example(found=[(5, 1)], seed=0)  # its map has lines without columns
@given(found=sizes, seed=st.integers(0, 99))
@settings(max_examples=40)
def test_rows_equal_the_reference(subject: Subject, found: Sizes, seed: int) -> None:
    """As many as measured, and the same, however pictures are packed together."""
    images, plans = pictures(found, seed), measured(subject, found)
    rows = encoded(subject, preprocessed(subject, images, plans), plans)
    wanted = subject.reference.image_rows(images)
    assert [len(part) for part in wanted] == [plan.rows for plan in plans]
    torch.testing.assert_close(rows, torch.cat(wanted), rtol=2e-4, atol=2e-5)


@given(count=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_video_rows_equal_the_reference(onevision: Subject, count: int, seed: int) -> None:
    """Frames as the reference's processor leaves them; the pixels are compared above."""
    info = MediaInfo("video", width=30, height=40, frames=count)
    (plan,) = onevision.adapter.inputs.measure([info], [onevision.adapter.inputs])
    frames = np.random.default_rng(seed).integers(0, 256, (count, 40, 30, 3), np.uint8)
    item = onevision.adapter.inputs.preprocess(DecodedMedia("video", frames), plan, NumpyOps())
    stretched = [Image.fromarray(frame).resize((24, 24), Image.Resampling.BICUBIC) for frame in frames]
    pixels = torch.from_numpy(np.stack([np.asarray(image) for image in stretched])).permute(0, 3, 1, 2)
    wanted = onevision.reference.video_rows((pixels / 255 - 0.5) / 0.5)
    rows = encoded(onevision, [item], (plan,))
    assert len(rows) == plan.rows == len(wanted)
    torch.testing.assert_close(rows, wanted, rtol=2e-4, atol=2e-5)


@torch.inference_mode()
def encoded(subject: Subject, inputs: list[EncoderInput], plans: tuple[ItemPlan, ...]) -> Tensor:
    arrays = subject.adapter.encoder.collate(inputs, plans)
    rows: Tensor = subject.model.encoder(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    return rows


@given(height=st.integers(1, 3000), width=st.integers(1, 3000))
def test_the_best_resolution_is_the_reference_s(height: int, width: int) -> None:
    from transformers.image_processing_utils import select_best_resolution

    for sides in (
        [(1, 2), (2, 1), (2, 2), (3, 1), (1, 3)],
        [(a, b) for a in range(1, 7) for b in range(1, 7)],
    ):
        resolutions = [(336 * a, 336 * b) for a, b in sides]
        assert best_resolution(height, width, resolutions) == select_best_resolution(
            (height, width), resolutions
        )
