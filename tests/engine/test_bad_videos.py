"""Bad videos fail alone, over every way in; their neighbours answer as always."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import av
import numpy as np
import pytest
from engine.bad_batch import PARAMS, SMALL, Bench, check_clean, noise, picture_prompt
from inputs.media_files import encoded
from inputs.video_files import moving, video_file
from PIL import Image

from mmcore import LLM
from mmcore.config import MediaPolicy
from mmcore.errors import (
    MediaFormatError,
    MediaLimitError,
    MMCoreError,
    PlaceholderMismatchError,
    UnsupportedOptionError,
)

GOOD = video_file(moving(6), form=("webm", "libvpx"), gop=2)
POLICY = MediaPolicy(max_pixels=400 * 400, max_video_frames=60, max_video_pixels=40 * 28 * 28 * 8)


def video_prompt(video: Any, text: str = "What happens?", **more: Any) -> dict[str, Any]:
    return {"prompt": text, "multi_modal_data": {"video": video}, **more}


def broken() -> bytes:
    """Its packets are counted as they should be; one of them decodes to nothing."""
    with av.open(io.BytesIO(GOOD), "r") as container:
        packet = bytes([p for p in container.demux(video=0) if p.size][2])
    return GOOD.replace(packet, packet[:1] + b"\xff" * (len(packet) - 1))


VIDEOS: dict[str, tuple[Any, type[MMCoreError], str]] = {
    "0 bytes": (b"", MediaFormatError, r"^video: the file is empty \(0 bytes\)"),
    "a picture": (encoded(noise(3)), MediaFormatError, "^video: the file is PNG"),
    "truncated": (GOOD[:80], MediaFormatError, "^video: .*truncated|no video"),
    "no frame": (video_file(0, form=("webm", "libvpx")), MediaFormatError, "^video: "),
    "a frame that does not decode": (broken(), MediaFormatError, "damaged"),
    "too large": (video_file(moving(2, 480, 400)), MediaLimitError, "^video: .*480x400 .*max_pixels 160000"),
    "too long": (video_file(61), MediaLimitError, "^video: .*max_video_frames 60"),
    "no frames": (np.zeros((0, 9, 9, 3), np.uint8), MediaFormatError, "^video: .*is no video"),
    "an aspect of 201": (np.zeros((2, 1, 201, 3), np.uint8), MediaLimitError, "^video: .*max_aspect 200"),
    "sound": ((np.zeros(100, np.float32), 16_000), MediaFormatError, "^video: .*is no video"),
}


@pytest.fixture(scope="module")
def bench(video_family: Any) -> Iterator[Bench]:
    with LLM(video_family.folder, device="cpu", seed=0, kv_cache_config=SMALL, media_policy=POLICY) as made:
        yield Bench(made, [video_prompt(GOOD), picture_prompt(noise(1))])
        check_clean(made)


@pytest.mark.parametrize("name", VIDEOS)
def test_a_bad_video_fails_alone(bench: Bench, name: str) -> None:
    video, error, message = VIDEOS[name]
    bench.expect(video_prompt([video]), error, message)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"frames": [0, 6]}, MediaLimitError, "frame 6 is chosen, and the video has 6 frames"),
        ({"frames": [1, 0]}, UnsupportedOptionError, "frames is a list of frame numbers, from 0, ascending"),
        ({"frames": []}, UnsupportedOptionError, "frames is a list"),
        ({"fps": -1}, UnsupportedOptionError, "fps is a number above 0"),
        ({"fps": float("inf")}, UnsupportedOptionError, "fps is a number above 0"),
        ({"max_frames": 2}, UnsupportedOptionError, "min_frames 4 is over max_frames 2"),
        ({"frames": [0, 1, 2], "max_frames": 2, "min_frames": 1}, MediaLimitError, "over max_frames 2"),
        ({"rate": 3}, UnsupportedOptionError, "'rate' is unknown; of videos: fps"),
        ({"min_pixels": 200_000}, UnsupportedOptionError, "min_pixels 200000 is over max_pixels"),
        (
            {"fps": 10, "min_pixels": 300 * 300, "max_pixels": 10**6},
            MediaLimitError,
            "6 planned frames of .* pixels are over the policy's max_video_pixels 250880",
        ),
    ],
)
def test_a_bad_option_fails_alone(bench: Bench, options: Any, error: type[MMCoreError], message: str) -> None:
    bench.expect(video_prompt([GOOD], mm_processor_kwargs={"video": options}), error, message)


def test_videos_and_slots_are_counted(bench: Bench) -> None:
    slot = "<|vision_start|><|video_pad|><|vision_end|>"
    bench.expect(video_prompt([GOOD], slot * 2), PlaceholderMismatchError, r"2 video placeholder\(s\) for 1")
    picture = {"image": [noise(1)], "video": [GOOD]}
    bench.expect(
        {"prompt": slot + "Hi", "multi_modal_data": picture}, PlaceholderMismatchError, "0 image placeholder"
    )


def test_one_frame_is_a_video(bench: Bench) -> None:
    """As a file, as an array and as a list: it fills both halves of the one step of its grid."""
    frame = np.asarray(Image.new("RGB", (64, 48), (9, 99, 199)))
    for video in ([video_file([frame])], frame[None], [[Image.fromarray(frame)]]):
        request = bench.llm.preprocess(video_prompt(video))
        assert request.items[0].plan.geometry == (1, 4, 4)
        assert len(bench.llm.generate(request, PARAMS).token_ids) == 6
