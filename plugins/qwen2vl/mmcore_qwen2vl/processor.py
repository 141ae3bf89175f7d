"""Pictures and videos to frames in the size of their grid, as the published processors resize them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmcore.adapter import MediaLimits, MediaOps
from mmcore.parts.area import AREA_OPTIONS, MAX_ASPECT, Area
from mmcore.parts.fields import Json
from mmcore.parts.frames import FrameSampling
from mmcore.request import DecodedMedia, EncoderInput, ItemPlan, MediaInfo, Modality, Rows, SourceSpec

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
LIMITS = MediaLimits(max_aspect=MAX_ASPECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionProcessor:
    """``geometry`` of a plan is the grid in patches: time, height, width. ``times`` of a video's plan is one
    number: the seconds of a step of its grid."""

    patch: int
    temporal: int
    merge: int
    picture: Area
    video: Area
    sampling: FrameSampling
    mean: tuple[float, ...]
    std: tuple[float, ...]
    width: int
    """Elements of one encoder row."""
    modalities: tuple[Modality, ...] = ("image", "video")

    @property
    def limits(self) -> Mapping[Modality, MediaLimits]:
        return dict.fromkeys(self.modalities, LIMITS)

    def measure(self, infos: Sequence[MediaInfo], options: Sequence[Any]) -> tuple[ItemPlan, ...]:
        return tuple(processor._plan(info) for info, processor in zip(infos, options, strict=True))

    def _plan(self, info: MediaInfo) -> ItemPlan:
        if info.modality != "video":
            return self._resized(info, self.picture, 1)
        frames, step = self.sampling.choose(info)
        plan = self._resized(info, self.video.of_frames(len(frames), self.temporal), len(frames))
        _, height, width = plan.geometry
        source = SourceSpec(frames=frames, size=(height * self.patch, width * self.patch))
        return replace(plan, times=(step * self.temporal,), source=source)

    def _resized(self, info: MediaInfo, area: Area, frames: int) -> ItemPlan:
        height, width = area.fit(info.height, info.width, self.patch * self.merge)
        grid = (-(-frames // self.temporal), height // self.patch, width // self.patch)
        rows = grid[0] * grid[1] * grid[2] // self.merge**2
        return ItemPlan(pieces=(Rows(rows),), rows=rows, width=self.width, geometry=grid)

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        """``frames`` uint8 [frames, height, width, 3], in the size of the grid: a picture is one frame. The
        encoder cuts, repeats and normalises them on the device: an eighth of the bytes of what it reads.
        Frames of a video come in the size of its plan."""
        _, height, width = plan.geometry
        frames = media.data
        if media.modality != "video":
            frames = ops.resize(frames, height * self.patch, width * self.patch, resample="bicubic")[None]
        return EncoderInput({"frames": frames})

    def with_options(self, options: Mapping[str, Any]) -> VisionProcessor:
        """``min_pixels`` and ``max_pixels`` bound the resized picture's or frame's area, ``total_pixels``
        that of a video's frames together; `FrameSampling` has those that choose its frames."""
        rest = {name: value for name, value in options.items() if name not in AREA_OPTIONS}
        picture, video = (area.with_options(options) for area in (self.picture, self.video))
        return replace(self, picture=picture, video=video, sampling=self.sampling.with_options(rest))


def vision_processor(pictures: Json, videos: Json, width: int, **fields: Any) -> VisionProcessor:
    """From the hub's settings of pictures and of videos."""
    patch, merge = pictures.get("patch_size", 14), pictures.get("merge_size", 2)
    return VisionProcessor(
        patch=patch,
        temporal=pictures.get("temporal_patch_size", 2),
        merge=merge,
        picture=Area.from_settings(pictures, 56 * 56, 28 * 28 * 1280, patch * merge),
        video=Area.from_settings(videos, 128 * 28 * 28, 768 * 28 * 28, patch * merge),
        sampling=FrameSampling.from_settings(videos),
        mean=tuple(pictures.get("image_mean", CLIP_MEAN)),
        std=tuple(pictures.get("image_std", CLIP_STD)),
        width=width,
        **fields,
    )
