"""Pixels and rows against the published description."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmcore_nvila.processor import NvilaProcessor
from PIL import Image

from mmcore.inputs.ops import NumpyOps
from mmcore.request import DecodedMedia, EncoderInput, ItemPlan, MediaInfo

if TYPE_CHECKING:
    from tests.conftest import Subject

Sizes = list[tuple[int, int]]
side = st.integers(1, 200)
sizes = st.lists(st.tuples(side, side), min_size=1, max_size=3)


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


@torch.inference_mode()
def encoded(subject: Subject, inputs: list[EncoderInput], plans: tuple[ItemPlan, ...]) -> torch.Tensor:
    arrays = subject.adapter.encoder.collate(inputs, plans)
    rows: torch.Tensor = subject.model.encoder(**{n: torch.from_numpy(array) for n, array in arrays.items()})
    return rows


def close(rows: torch.Tensor, wanted: torch.Tensor) -> None:
    """Within 1e-4 of the largest value."""
    assert float((rows - wanted).abs().max()) <= 1e-4 * float(wanted.abs().max())


@given(found=sizes, seed=st.integers(0, 99))
@settings(max_examples=12)
def test_pixels_equal_the_reference(subject: Subject, found: Sizes, seed: int) -> None:
    images, reference = pictures(found, seed), subject.reference
    processor = subject.adapter.inputs
    assert isinstance(processor, NvilaProcessor)
    covered = processor.features.side * processor.patch
    for item, image in zip(preprocessed(subject, images, measured(subject, found)), images, strict=True):
        tiles = reference.tower.pixels(reference.tiles(image, alone=len(images) == 1))
        frames = tiles[:, :, :covered, :covered].permute(0, 2, 3, 1).contiguous().numpy()
        patches = [NumpyOps().patchify(frame[None], patch=processor.patch) for frame in frames]
        np.testing.assert_allclose(item.arrays["patches"], np.concatenate(patches), atol=2e-6)


@given(found=sizes, seed=st.integers(0, 99))
@settings(max_examples=12)
def test_rows_equal_the_reference(subject: Subject, found: Sizes, seed: int) -> None:
    """As many as measured, and the same, however pictures are packed together."""
    images, plans = pictures(found, seed), measured(subject, found)
    rows = encoded(subject, preprocessed(subject, images, plans), plans)
    wanted = [subject.reference.rows(image, alone=len(images) == 1) for image in images]
    assert [len(part) for part in wanted] == [plan.rows for plan in plans]
    close(rows, torch.cat(wanted))


@given(found=sizes, seed=st.integers(0, 99))
@settings(max_examples=6)
def test_a_cut_picture_in_a_batch_is_the_picture_alone(subject: Subject, found: Sizes, seed: int) -> None:
    """Pictures of several requests, each cut, in one batch."""
    images = pictures(found, seed)
    plans = tuple(measured(subject, [size])[0] for size in found)
    inputs = preprocessed(subject, images, plans)
    together = torch.split(encoded(subject, inputs, plans), [plan.rows for plan in plans])
    for item, plan, rows in zip(inputs, plans, together, strict=True):
        torch.testing.assert_close(rows, encoded(subject, [item], (plan,)), rtol=1e-5, atol=1e-5)


@given(count=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=6)
def test_video_rows_equal_the_reference(subject: Subject, count: int, seed: int) -> None:
    info = MediaInfo("video", width=30, height=40, frames=count)
    processor = subject.adapter.inputs.with_options({"max_frames": 8})
    (plan,) = processor.measure([info], [processor])
    frames = np.random.default_rng(seed).integers(0, 256, (count, 40, 30, 3), np.uint8)
    item = processor.preprocess(DecodedMedia("video", frames), plan, NumpyOps())
    wanted = torch.cat([subject.reference.rows(Image.fromarray(frame), alone=False) for frame in frames])
    rows = encoded(subject, [item], (plan,))
    assert len(rows) == plan.rows == len(wanted)
    close(rows, wanted)


def test_frames_lie_evenly_from_the_first_to_the_last(subject: Subject) -> None:
    processor = subject.adapter.inputs.with_options({"max_frames": 4})

    def chosen(count: int, seconds: float) -> tuple[int, ...]:
        (plan,) = processor.measure([MediaInfo("video", frames=count, seconds=seconds)], [processor])
        return plan.source.frames

    assert {count: chosen(count, 9.0) for count in (1, 2, 4, 100)} == {
        1: (0, 0, 0, 0),
        2: (0, 0, 1, 1),
        4: (0, 1, 2, 3),
        100: (0, 33, 66, 99),
    }
    # Frames without a rate are a choice already made, where they are not too many.
    assert {count: chosen(count, 0.0) for count in (1, 4, 6)} == {1: (0,), 4: (0, 1, 2, 3), 6: (0, 2, 3, 5)}
