"""Video handed over in memory: an array of frames or a list of pictures, with or without a rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from mmcore.config import MediaPolicy
from mmcore.errors import MediaFormatError, MediaLimitError
from mmcore.inputs.picture import pil_picture
from mmcore.inputs.resize import resized
from mmcore.request import DecodedMedia, MediaInfo, SourceSpec

KINDS = (
    "a path, a URL, the bytes of an MP4 or WebM file, uint8 frames [frames, height, width, 3] or a list of "
    "PIL images, either of them alone or as (frames, fps)"
)


def is_frames(value: Any) -> bool:
    """A list of pictures, which is one video and not a list of videos."""
    return isinstance(value, list) and bool(value) and all(isinstance(entry, Image.Image) for entry in value)


def clip(value: Any, policy: MediaPolicy) -> DecodedMedia:
    """A snapshot with a time a frame; without a rate there are no times.

    Raises `MediaFormatError`, `MediaLimitError`.
    """
    frames, fps = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    if is_frames(frames):
        array = _stacked(frames, policy)
    elif isinstance(frames, np.ndarray):
        array = _checked(frames, policy)
    else:
        raise MediaFormatError(f"a {type(value).__name__} is no video; give {KINDS}")
    times = () if fps is None else tuple(number / _rate(fps) for number in range(len(array)))
    return DecodedMedia("video", array, times=times)


def clip_info(media: DecodedMedia) -> MediaInfo:
    """``seconds`` is 0.0 where no rate is known."""
    frames, height, width, _ = media.data.shape
    seconds = media.times[-1] * frames / (frames - 1) if media.times and frames > 1 else 0.0
    return MediaInfo("video", width=width, height=height, frames=frames, seconds=seconds)


def cut_clip(media: DecodedMedia, spec: SourceSpec) -> DecodedMedia:
    """The frames of a plan, at its size."""
    numbers = list(spec.frames or range(len(media.data)))
    frames = media.data[numbers]
    if spec.size is not None and frames.shape[1:3] != spec.size:
        frames = np.stack([resized(frame, *spec.size, Image.Resampling.BICUBIC) for frame in frames])
    return DecodedMedia("video", frames, times=tuple(media.times[n] for n in numbers if media.times))


def _stacked(frames: Sequence[Image.Image], policy: MediaPolicy) -> np.ndarray:
    width, height = frames[0].size
    if any(frame.size != (width, height) for frame in frames):
        raise MediaFormatError("the frames of a video are of one size; resize them, or give them as images")
    _check_budget(len(frames), height, width, policy)
    pictures = [pil_picture(frame).data for frame in frames]
    if any(picture.shape != pictures[0].shape for picture in pictures):
        raise MediaFormatError("the frames of a video are turned in different ways; give them upright")
    return np.stack(pictures)


def _checked(frames: np.ndarray, policy: MediaPolicy) -> np.ndarray:
    if frames.ndim != 4 or frames.shape[3] != 3 or 0 in frames.shape or frames.dtype != np.uint8:
        raise MediaFormatError(
            f"an array {frames.shape} of {frames.dtype} is no video; give uint8 [frames, height, width, 3]"
        )
    count, height, width, _ = frames.shape
    _check_budget(count, height, width, policy)
    return np.array(frames, order="C")


def _check_budget(frames: int, height: int, width: int, policy: MediaPolicy) -> None:
    for limit, amount, most in (
        ("max_pixels", width * height, policy.max_pixels),
        ("max_video_frames", frames, policy.max_video_frames),
    ):
        if amount > most:
            raise MediaLimitError(
                f"a video of {frames} frames of {width}x{height} pixels is over the policy's {limit} {most}"
            )


def _rate(fps: Any) -> float:
    number = isinstance(fps, int | float | np.integer | np.floating) and not isinstance(fps, bool)
    if not number or not math.isfinite(fps) or fps <= 0:
        raise MediaFormatError("the rate of a video, in frames a second, is a number above 0")
    return float(fps)
