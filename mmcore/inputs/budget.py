"""What all media of one request may come to, counted while they are opened and before any is decoded."""

from __future__ import annotations

from mmcore.config import MediaPolicy
from mmcore.errors import MediaLimitError
from mmcore.inputs.media import OpenedMedia
from mmcore.request import ItemPlan, MediaInfo


class RequestBudget:
    """Raises `MediaLimitError` naming the field of the policy, at the medium that is too much."""

    def __init__(self, policy: MediaPolicy) -> None:
        self._limits = {
            "items": policy.max_request_items,
            "bytes": policy.max_request_bytes,
            "pixels": policy.max_request_pixels,
            "samples": policy.max_request_samples,
        }
        self._used = dict.fromkeys(self._limits, 0)
        self._max_video_pixels = policy.max_video_pixels

    def take(self, media: OpenedMedia) -> None:
        """Count one more medium. A video's pixels are those of its plan: see `take_frames`."""
        self._add("items", 1)
        self._add("bytes", media.size)
        if media.info.modality != "video":
            self._add("pixels", media.info.width * media.info.height)
        self._add("samples", media.info.samples)

    def take_frames(self, info: MediaInfo, plan: ItemPlan) -> None:
        """Count the frames that a video's plan wants decoded."""
        height, width = plan.source.size or (info.height, info.width)
        frames = len(plan.source.frames) or info.frames
        pixels = frames * height * width
        if pixels > self._max_video_pixels:
            raise MediaLimitError(
                f"{frames} planned frames of {width}x{height} pixels are over the policy's max_video_pixels "
                f"{self._max_video_pixels}; plan fewer or smaller frames"
            )
        self._add("pixels", pixels)

    def _add(self, unit: str, amount: int) -> None:
        self._used[unit] += amount
        if self._used[unit] > self._limits[unit]:
            raise MediaLimitError(
                f"the media of this request have {self._used[unit]} {unit} together, over the policy's "
                f"max_request_{unit} {self._limits[unit]}"
            )
