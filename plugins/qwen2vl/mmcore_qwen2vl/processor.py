"""Pictures to patches, as the published image processor does it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmcore.adapter import MediaLimits, MediaOps
from mmcore.errors import MediaLimitError, UnsupportedOptionError
from mmcore.request import DecodedMedia, EncoderInput, ItemPlan, MediaInfo, Modality, Rows

MAX_ASPECT = 200.0
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """Nearest multiples of ``factor`` with an area in [min_pixels, max_pixels] and about the same aspect.

    Rounding is to even (Qwen2-VL's `vision_process`). Raises `MediaLimitError` past an aspect of 200.
    """
    if max(height, width) > MAX_ASPECT * min(height, width):
        raise MediaLimitError(
            f"image of {width}x{height} pixels: its aspect is over max_aspect {MAX_ASPECT:g}; crop it"
        )
    rows, columns = round(height / factor), round(width / factor)
    if rows * columns * factor * factor > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        rows = max(1, math.floor(height / shrink / factor))
        columns = max(1, math.floor(width / shrink / factor))
    elif rows * columns * factor * factor < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        rows, columns = math.ceil(height * grow / factor), math.ceil(width * grow / factor)
    return rows * factor, columns * factor


@dataclass(frozen=True, slots=True)
class ImageProcessor:
    """``geometry`` of a plan is the grid in patches: time, height, width."""

    patch: int
    temporal: int
    merge: int
    min_pixels: int
    max_pixels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    width: int
    """Elements of one encoder row."""

    @property
    def modalities(self) -> tuple[Modality, ...]:
        return ("image",)

    @property
    def limits(self) -> Mapping[Modality, MediaLimits]:
        return {"image": MediaLimits(max_aspect=MAX_ASPECT)}

    def measure(self, infos: Sequence[MediaInfo], options: Sequence[Any]) -> tuple[ItemPlan, ...]:
        return tuple(processor._plan(info) for info, processor in zip(infos, options, strict=True))

    def _plan(self, info: MediaInfo) -> ItemPlan:
        factor = self.patch * self.merge
        height, width = smart_resize(info.height, info.width, factor, self.min_pixels, self.max_pixels)
        rows = (height // factor) * (width // factor)
        grid = (1, height // self.patch, width // self.patch)
        return ItemPlan(pieces=(Rows(rows),), rows=rows, width=self.width, geometry=grid)

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        """``patches`` float32 [grid area, 3 * temporal * patch * patch]; a picture is its own next frame."""
        _, height, width = plan.geometry
        image = ops.resize(media.data, height * self.patch, width * self.patch, resample="bicubic")
        pixels = ops.normalize(image, self.mean, self.std)
        frames = np.broadcast_to(pixels, (self.temporal, *pixels.shape))
        patches = ops.patchify(frames, patch=self.patch, temporal=self.temporal, merge=self.merge)
        return EncoderInput({"patches": patches})

    def with_options(self, options: Mapping[str, Any]) -> ImageProcessor:
        """``min_pixels`` and ``max_pixels`` bound the resized picture's area."""
        for name, value in options.items():
            if name not in ("min_pixels", "max_pixels"):
                raise UnsupportedOptionError(
                    f"image option {name!r} is unknown; use min_pixels or max_pixels"
                )
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UnsupportedOptionError(f"image option {name}={value!r} must be a count of pixels")
        changed = replace(self, **options)
        if changed.min_pixels > changed.max_pixels:
            raise UnsupportedOptionError(
                f"image options: min_pixels {changed.min_pixels} is over max_pixels {changed.max_pixels}"
            )
        return changed


def image_processor(settings: Mapping[str, Any], width: int) -> ImageProcessor:
    """From ``preprocessor_config.json`` or the image part of ``processor_config.json``.

    The area's bounds are ``min_pixels`` and ``max_pixels`` or ``size.shortest_edge`` and ``.longest_edge``.
    """
    size = settings.get("size") or {}
    smallest = settings.get("min_pixels") or size.get("shortest_edge") or 56 * 56
    largest = settings.get("max_pixels") or size.get("longest_edge") or 28 * 28 * 1280
    return ImageProcessor(
        patch=settings.get("patch_size", 14),
        temporal=settings.get("temporal_patch_size", 2),
        merge=settings.get("merge_size", 2),
        min_pixels=smallest,
        max_pixels=largest,
        mean=tuple(settings.get("image_mean", CLIP_MEAN)),
        std=tuple(settings.get("image_std", CLIP_STD)),
        width=width,
    )
