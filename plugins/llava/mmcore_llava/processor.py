"""Pictures and video frames to tiles of one size, as the published image processors do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmcore.adapter import MediaLimits, MediaOps
from mmcore.errors import UnsupportedOptionError
from mmcore.parts.frames import FrameSampling
from mmcore.parts.pictures import PictureShape
from mmcore.parts.tiles import fitted, squared, tiles
from mmcore.request import DecodedMedia, EncoderInput, ItemPlan, MediaInfo, Modality, Rows, SourceSpec
from mmcore_llava.features import FeatureMap

WHOLE = SourceSpec()
MAX_ASPECT = 100.0
"""Beyond it the best tiling leaves less than one line of features."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlavaProcessor:
    """``geometry`` of a plan: () for one tile; tall, wide, height, width for a picture cut into tall x wide
    tiles besides the whole; the number of frames for a video."""

    shape: PictureShape
    features: FeatureMap
    width: int
    """Elements of one encoder row."""
    resolutions: tuple[tuple[int, int], ...] = ()
    """Height and width of each tiling, in pixels; empty: pictures are never cut."""
    lone: bool = False
    """Only a prompt's single picture is cut; of several each becomes a square."""
    sampling: FrameSampling | None = None

    @property
    def modalities(self) -> tuple[Modality, ...]:
        return ("image", "video") if self.sampling else ("image",)

    @property
    def limits(self) -> Mapping[Modality, MediaLimits]:
        aspect = MAX_ASPECT if self.resolutions else self.shape.max_aspect
        return {modality: MediaLimits(max_aspect=aspect) for modality in self.modalities}

    def measure(self, infos: Sequence[MediaInfo], options: Sequence[Any]) -> tuple[ItemPlan, ...]:
        pictures = sum(info.modality == "image" for info in infos)
        cut = bool(self.resolutions) and not (self.lone and pictures > 1)
        return tuple(
            processor._video(info) if info.modality == "video" else processor._picture(info, cut)
            for info, processor in zip(infos, options, strict=True)
        )

    def _picture(self, info: MediaInfo, cut: bool) -> ItemPlan:
        if not cut:
            return self._plan(())
        height, width = best_resolution(info.height, info.width, self.resolutions)
        return self._plan((height // self.shape.height, width // self.shape.width, info.height, info.width))

    def _video(self, info: MediaInfo) -> ItemPlan:
        assert self.sampling is not None
        frames, _ = self.sampling.choose(info)
        return self._plan((len(frames),), SourceSpec(frames=frames))

    def _plan(self, geometry: tuple[int, ...], source: SourceSpec = WHOLE) -> ItemPlan:
        rows = self.features.count(geometry)
        return ItemPlan((Rows(rows),), rows, self.width, geometry=geometry, source=source)

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        """``pixels`` uint8 [tiles, height, width, 3]; the whole comes before its tiles. The encoder cuts
        and normalises them."""
        return EncoderInput({"pixels": np.stack(self._tiles(media, plan, ops))})

    def _tiles(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> list[np.ndarray]:
        """uint8 [height, width, 3] each."""
        shape, stretched = self.shape, replace(self.shape, shortest_edge=0)
        if media.modality == "video":
            return [stretched.cut(frame, ops) for frame in media.data]
        if not plan.geometry:
            colour = [int(255 * mean) for mean in shape.mean]
            return [shape.cut(squared(media.data, colour) if self.lone else media.data, ops)]
        tall, wide = plan.geometry[0] * shape.height, plan.geometry[1] * shape.width
        field = fitted(media.data, tall, wide, ops, resample=shape.resample)
        return [stretched.cut(media.data, ops), *tiles(field, shape.height, shape.width, ops)]

    def with_options(self, options: Mapping[str, Any]) -> LlavaProcessor:
        """Those of `FrameSampling`, for videos."""
        if not options:
            return self
        if self.sampling is None:
            raise UnsupportedOptionError(f"pictures of this model have no option {next(iter(options))!r}")
        return replace(self, sampling=self.sampling.with_options(options))


def best_resolution(height: int, width: int, resolutions: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The one that keeps most of the picture's pixels, and of those the one that wastes least."""

    def rank(resolution: tuple[int, int]) -> tuple[int, int]:
        tall, wide = resolution
        scale = min(wide / width, tall / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, kept - tall * wide

    return max(resolutions, key=rank)
