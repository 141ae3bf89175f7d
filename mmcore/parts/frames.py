"""Which frames of a video a model sees: by rate and count, or by the caller's own choice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mmcore.errors import MediaLimitError, UnsupportedOptionError
from mmcore.parts.fields import Json
from mmcore.request import MediaInfo

_COUNTS = ("min_frames", "max_frames")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSampling:
    """``fps`` frames a second, evenly over the whole video, within the counts and its own frames.

    The count is a multiple of ``multiple``, where the video has as many frames (`sample_frames` of
    transformers 5.24).
    """

    fps: float = 2.0
    min_frames: int = 4
    max_frames: int = 768
    multiple: int = 2
    frames: tuple[int, ...] = ()
    """The caller's choice, ascending; then nothing is planned."""

    @classmethod
    def from_settings(cls, settings: Json) -> FrameSampling:
        """From the hub's ``fps``, ``min_frames``, ``max_frames`` and ``temporal_patch_size``."""
        chosen = {name: settings[name] for name in ("fps", *_COUNTS) if settings.get(name) is not None}
        return cls(**chosen, multiple=settings.get("temporal_patch_size", 2))

    def choose(self, info: MediaInfo) -> tuple[tuple[int, ...], float]:
        """Numbers of the frames, and the seconds between two of them.

        A video without a rate (``seconds`` 0) is a choice already made, at ``fps``: all its frames are taken.
        Raises `MediaLimitError` for a chosen frame that the video has not, or more than ``max_frames``.
        """
        lasting = info.seconds / info.frames if info.seconds else 1 / self.fps
        if self.frames:
            self._check(info)
            gaps = max(1, len(self.frames) - 1)
            return self.frames, lasting * (self.frames[-1] - self.frames[0]) / gaps
        count = self._count(info)
        return tuple(i * info.frames // count for i in range(count)), lasting * info.frames / count

    def with_options(self, options: Mapping[str, Any]) -> FrameSampling:
        """``fps``, ``min_frames``, ``max_frames``, ``frames``. Raises `UnsupportedOptionError` by name."""
        changes: dict[str, Any] = {}
        for name, value in options.items():
            if name not in ("fps", "frames", *_COUNTS):
                raise UnsupportedOptionError(
                    f"option {str(name)[:40]!r} is unknown; of videos: fps, min_frames, max_frames, frames"
                )
            changes[name] = tuple(value) if isinstance(value, list) else value
            if not _fits(name, changes[name]):
                raise UnsupportedOptionError(f"option {name} is {_WANTED[name]}, not {str(value)[:40]}")
        changed = replace(self, **changes)
        if changed.min_frames > changed.max_frames:
            raise UnsupportedOptionError(
                f"min_frames {changed.min_frames} is over max_frames {changed.max_frames}"
            )
        return changed

    def _count(self, info: MediaInfo) -> int:
        wanted = info.seconds * self.fps if info.seconds else info.frames
        if not info.seconds and info.frames <= self.max_frames:
            return info.frames
        most = min(self.max_frames, info.frames) // self.multiple * self.multiple
        # The last digit of the seconds must not cost a frame.
        count = math.floor(min(max(wanted, self.min_frames), most) + 1e-6) // self.multiple * self.multiple
        return max(count, 1)

    def _check(self, info: MediaInfo) -> None:
        if len(self.frames) > self.max_frames:
            raise MediaLimitError(f"{len(self.frames)} chosen frames are over max_frames {self.max_frames}")
        if self.frames[-1] >= info.frames:
            raise MediaLimitError(
                f"frame {self.frames[-1]} is chosen, and the video has {info.frames} frames, from 0"
            )


_WANTED = {
    "fps": "a number above 0",
    "min_frames": "a whole number above 0",
    "max_frames": "a whole number above 0",
    "frames": "a list of frame numbers, from 0, ascending",
}


def _fits(name: str, value: Any) -> bool:
    if name == "frames":
        numbers = isinstance(value, tuple) and all(type(number) is int for number in value)
        return numbers and len(value) > 0 and value[0] >= 0 and list(value) == sorted(set(value))
    if name == "fps":
        return type(value) in (int, float) and math.isfinite(value) and value > 0
    return type(value) is int and value > 0
