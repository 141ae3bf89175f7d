"""Pictures and video frames to tiles of one size, as the published code does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmcore.adapter import MediaLimits, MediaOps
from mmcore.parts.fields import only_options
from mmcore.parts.frames import FrameSampling
from mmcore.parts.pictures import PictureShape
from mmcore.parts.tiles import closest_grid, tiles
from mmcore.request import DecodedMedia, EncoderInput, ItemPlan, MediaInfo, Modality, Rows, SourceSpec, Tokens
from mmcore_nvila.features import TileMap

Ids = tuple[int, ...]

WHOLE = SourceSpec()
VIDEO_OPTIONS = ("frames", "max_frames")


@dataclass(frozen=True, slots=True, kw_only=True)
class NvilaProcessor:
    """``geometry`` of a plan: (tiles,), or (tall, wide) of a picture that is cut."""

    shape: PictureShape
    patch: int
    features: TileMap
    width: int
    """Elements of one encoder row."""
    grids: tuple[tuple[int, int], ...] = ()
    """(tall, wide) of each tiling, ascending in area; empty: pictures are never cut."""
    newline: Ids = ()
    ends: bool = True
    """A newline belongs to each tile; else it only stands between two."""
    sampling: FrameSampling
    modalities: tuple[Modality, ...] = ("image", "video")

    @property
    def limits(self) -> Mapping[str, MediaLimits]:
        return {modality: MediaLimits(max_aspect=self.shape.max_aspect) for modality in self.modalities}

    def measure(self, infos: Sequence[MediaInfo], options: Sequence[Any]) -> tuple[ItemPlan, ...]:
        """Only a prompt's single picture is cut."""
        cut = bool(self.grids) and sum(info.modality == "image" for info in infos) == 1
        return tuple(
            own._video(info) if info.modality == "video" else own._picture(info, cut)
            for info, own in zip(infos, options, strict=True)
        )

    def _picture(self, info: MediaInfo, cut: bool) -> ItemPlan:
        if not cut:
            return self._plan((1,), 1)
        geometry = closest_grid(info.height, info.width, self.grids, self.shape.height)
        if len(self.features.scales) > 1:
            return self._plan(geometry, 1)
        # The published code writes a line break behind each tile; the template writes the last one.
        return self._plan(geometry, self.features.blocks(geometry)[0], self.newline)

    def _video(self, info: MediaInfo) -> ItemPlan:
        frames = self._frames(info)
        return self._plan((len(frames),), len(frames), source=SourceSpec(frames=frames))

    def _frames(self, info: MediaInfo) -> tuple[int, ...]:
        """Evenly from the first to the last; a short video shows some twice. Few frames without a rate are a
        choice already made."""
        if self.sampling.frames or (not info.seconds and info.frames <= self.sampling.max_frames):
            return self.sampling.choose(info)[0]
        places = np.linspace(0, info.frames - 1, self.sampling.max_frames)
        return tuple(np.round(places).astype(int).tolist())

    def _plan(self, geometry: Ids, parts: int, between: Ids = (), source: SourceSpec = WHOLE) -> ItemPlan:
        """Rows in equal ``parts``, a newline behind each, and ``between`` them more tokens."""
        rows = self.features.count(geometry)
        part = Rows(rows // parts)
        last = (part, Tokens(self.newline)) if self.ends else (part,)
        pieces = (part, Tokens(self.newline + between)) * (parts - 1) + last
        return ItemPlan(pieces, rows, self.width, geometry=geometry, source=source)

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        """``patches`` float32 [tiles * patches, 3 * patch * patch]."""
        parts = [self._patches(tile, ops) for tile in self._tiles(media, plan.geometry, ops)]
        return EncoderInput({"patches": np.concatenate(parts)})

    def _tiles(self, media: DecodedMedia, geometry: tuple[int, ...], ops: MediaOps) -> list[np.ndarray]:
        """float32 [height, width, 3] each: squares first, or the whole last."""
        if len(geometry) == 1:
            pictures = media.data if media.modality == "video" else [media.data]
            return [self.shape.apply(picture, ops) for picture in pictures]
        tall, wide = geometry
        squares = [self._cut(media.data, scale, scale, ops) for scale in self.features.scales[:-1]]
        cut = [tile for part in (*squares, self._cut(media.data, tall, wide, ops)) for tile in part]
        thumbnail = not squares and geometry != (1, 1)
        return [*cut, *([self.shape.apply(media.data, ops)] if thumbnail else [])]

    def _cut(self, image: np.ndarray, tall: int, wide: int, ops: MediaOps) -> list[np.ndarray]:
        """Stretched to tall x wide tiles, bicubic whatever the file says, as Pillow does it by itself."""
        height, width = self.shape.height, self.shape.width
        resized = ops.resize(image, tall * height, wide * width, resample="bicubic")
        cut = tiles(resized, height, width, ops)
        return [ops.normalize(tile, self.shape.mean, self.shape.std) for tile in cut]

    def _patches(self, tile: np.ndarray, ops: MediaOps) -> np.ndarray:
        """A rim that is less than a patch is left out, as a convolution does."""
        side = self.features.side * self.patch
        return ops.patchify(ops.crop(tile, 0, 0, side, side)[None], patch=self.patch)

    def with_options(self, options: Mapping[str, Any]) -> NvilaProcessor:
        """``frames`` and ``max_frames`` of `FrameSampling`, for videos."""
        only_options(options, VIDEO_OPTIONS)
        return replace(self, sampling=self.sampling.with_options(options)) if options else self
