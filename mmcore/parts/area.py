"""Pictures and frames of any shape, resized to multiples of a patch inside bounds of their area."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mmcore.errors import MediaLimitError, UnsupportedOptionError
from mmcore.parts.fields import Json

MAX_ASPECT = 200.0
AREA_OPTIONS = {"min_pixels": "smallest", "max_pixels": "largest", "total_pixels": "total"}
"""Per-request options, and the bound that each one sets."""


@dataclass(frozen=True, slots=True)
class Area:
    """In pixels. ``total`` bounds all frames of a video together, 0 not at all."""

    smallest: int
    largest: int
    total: int = 0

    @classmethod
    def from_settings(cls, settings: Json, smallest: int, largest: int, factor: int) -> Area:
        """``min_pixels`` and ``max_pixels``, or ``size.shortest_edge`` and ``.longest_edge``, or these.

        With ``cap_pixels_per_frame`` the total is nine tenths of ``max_video_tokens`` of ``factor``^2 pixels.
        """
        size = settings.get("size") or {}
        capped = settings.get("cap_pixels_per_frame")
        return cls(
            settings.get("min_pixels") or size.get("shortest_edge") or smallest,
            settings.get("max_pixels") or size.get("longest_edge") or largest,
            int(settings.get("max_video_tokens", 128_000) * factor * factor * 0.9) if capped else 0,
        )

    def with_options(self, options: Mapping[str, Any]) -> Area:
        """``AREA_OPTIONS``; others are left to others. Raises `UnsupportedOptionError` by name."""
        chosen = {name: value for name, value in options.items() if name in AREA_OPTIONS}
        for name, value in chosen.items():
            if type(value) is not int or value < 1:
                raise UnsupportedOptionError(f"option {name}={value!r} must be a count of pixels")
        return replace(self, **{AREA_OPTIONS[name]: value for name, value in chosen.items()})

    def of_frames(self, count: int, temporal: int = 1) -> Area:
        """Bounds of each of ``count`` frames, ``temporal`` of which go into one patch: an even share of the
        total, never less than 1.05 times the smallest (``cap_pixels_per_frame`` of transformers 5.24)."""
        if not self.total:
            return self
        share = min(self.largest, self.total * temporal // count)
        return replace(self, largest=max(share, int(self.smallest * 1.05)))

    def fit(self, height: int, width: int, factor: int) -> tuple[int, int]:
        """Height and width: the nearest multiples of ``factor`` inside the bounds, of about this aspect.

        Rounding is to even (`smart_resize` of transformers 5.24). Raises `MediaLimitError` past an aspect of
        200, where the nearest multiples are far from it.
        """
        if max(height, width) > MAX_ASPECT * min(height, width):
            raise MediaLimitError(
                f"{width}x{height} pixels: the aspect is over max_aspect {MAX_ASPECT:g}; crop it"
            )
        if self.smallest > self.largest:
            raise UnsupportedOptionError(
                f"min_pixels {self.smallest} is over max_pixels {self.largest}; give both"
            )
        rows, columns = round(height / factor), round(width / factor)
        if rows * columns * factor * factor > self.largest:
            shrink = math.sqrt(height * width / self.largest)
            rows = max(1, math.floor(height / shrink / factor))
            columns = max(1, math.floor(width / shrink / factor))
        elif rows * columns * factor * factor < self.smallest:
            grow = math.sqrt(self.smallest / (height * width))
            rows, columns = math.ceil(height * grow / factor), math.ceil(width * grow / factor)
        return rows * factor, columns * factor
