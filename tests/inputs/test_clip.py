"""Videos handed over in memory, and how prompts tell them from lists of videos."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmcore.config import MediaPolicy
from mmcore.errors import MediaFormatError, MediaLimitError
from mmcore.inputs.budget import RequestBudget
from mmcore.inputs.clip import clip, clip_info, cut_clip
from mmcore.inputs.media import OpenedMedia
from mmcore.inputs.prompt import collect_media
from mmcore.request import ArraySource, ItemPlan, Rows, SourceSpec

POLICY = MediaPolicy()
FRAMES = np.random.default_rng(0).integers(0, 256, (6, 20, 30, 3), np.uint8)
PICTURES = [Image.fromarray(frame) for frame in FRAMES]


@pytest.mark.parametrize("frames", [FRAMES, PICTURES], ids=["array", "pictures"])
@pytest.mark.parametrize("fps", [None, 4, 2.5, np.float32(0.5)])
def test_frames_with_and_without_a_rate(frames: Any, fps: Any) -> None:
    media = clip(frames if fps is None else (frames, fps), POLICY)
    assert np.array_equal(media.data, FRAMES)
    seconds = 0.0 if fps is None else 6 / float(fps)
    info = clip_info(media)
    assert (info.width, info.height, info.frames) == (30, 20, 6)
    assert info.seconds == pytest.approx(seconds)
    assert media.times == (() if fps is None else tuple(n / float(fps) for n in range(6)))


def test_a_clip_is_a_snapshot() -> None:
    frames = FRAMES.copy()
    media = clip(frames, POLICY)
    frames[:] = 0
    assert np.array_equal(media.data, FRAMES)


def test_a_plan_cuts_and_resizes() -> None:
    media = clip((FRAMES, 2), POLICY)
    cut = cut_clip(media, SourceSpec(frames=(1, 5)))
    assert np.array_equal(cut.data, FRAMES[[1, 5]])
    assert cut.times == (0.5, 2.5)
    resized = cut_clip(media, SourceSpec(frames=(1, 5), size=(28, 56))).data
    assert resized.shape == (2, 28, 56, 3)
    expected = PICTURES[5].resize((56, 28), Image.Resampling.BICUBIC)
    assert np.array_equal(resized[1], np.asarray(expected))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (FRAMES[0], r"array \(20, 30, 3\) of uint8 is no video"),
        (FRAMES[:0], r"array \(0, 20, 30, 3\)"),
        (FRAMES.astype(np.float32), "of float32 is no video"),
        (FRAMES[..., :1], "is no video; give uint8"),
        ([], "a list is no video"),
        ([*PICTURES, "a.png"], "a list is no video"),
        ([*PICTURES, Image.new("RGB", (9, 9))], "of one size"),
        ((FRAMES, 0), "a number above 0"),
        ((FRAMES, float("nan")), "a number above 0"),
        ((FRAMES, True), "a number above 0"),
        ((FRAMES, "fast"), "a number above 0"),
        (7, "a int is no video; give a path"),
    ],
)
def test_what_is_no_video_is_named(value: Any, message: str) -> None:
    with pytest.raises(MediaFormatError, match=message):
        clip(value, POLICY)


@pytest.mark.parametrize(
    ("limits", "message"), [({"max_pixels": 599}, "max_pixels 599"), ({"max_video_frames": 5}, "frames 5")]
)
@pytest.mark.parametrize("frames", [FRAMES, PICTURES], ids=["array", "pictures"])
def test_a_limit_of_the_policy_is_named(frames: Any, limits: dict[str, Any], message: str) -> None:
    with pytest.raises(MediaLimitError, match=message):
        clip(frames, MediaPolicy(**limits))


def test_planned_pixels_count_not_stored_ones() -> None:
    media = clip((FRAMES, 2), POLICY)
    opened = OpenedMedia(ArraySource(media), clip_info(media), b"")
    plan = ItemPlan((Rows(1),), 1, 8, source=SourceSpec(frames=(0, 2), size=(28, 28)))
    budget = RequestBudget(MediaPolicy(max_request_pixels=2 * 2 * 784))
    for _ in range(2):
        budget.take(opened)
        budget.take_frames(opened.info, plan)
    with pytest.raises(MediaLimitError, match="max_request_pixels 3136"):
        budget.take_frames(opened.info, plan)
    with pytest.raises(
        MediaLimitError, match="2 planned frames of 28x28 pixels are over the policy's max_vid"
    ):
        RequestBudget(MediaPolicy(max_video_pixels=1567)).take_frames(opened.info, plan)


def test_a_list_of_pictures_is_one_video_and_a_list_of_lists_is_several() -> None:
    def count(value: Any) -> int:
        return len(collect_media({"video": value}, None))

    assert count(PICTURES) == count([PICTURES]) == count((PICTURES, 2)) == count(FRAMES) == 1
    assert count([PICTURES, (PICTURES, 2), "a.mp4"]) == count([FRAMES, FRAMES, b""]) == 3
    assert len(collect_media({"image": PICTURES}, None)) == 6
