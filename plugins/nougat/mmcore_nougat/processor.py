"""One page to one size, as ``NougatImageProcessor`` and ``DonutImageProcessor`` of transformers do it.

Levels stay uint8: the encoder normalises them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmcore.adapter import MediaLimits, MediaOps
from mmcore.errors import UnsupportedOptionError
from mmcore.request import DecodedMedia, EncoderInput, ItemPlan, MediaInfo, Modality

INK = 200
"""Of 255 levels between a page's darkest and lightest: what is below is ink."""
MIN_SIDE, MAX_ASPECT = 32, 20
MAX_STRIP = 100
"""Ink of a longer aspect (a rule alone) is not cut out: at a page's width it would not fit a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageProcessor:
    """Margins are cut off, the page is turned, scaled to fit, and padded with black to height x width."""

    height: int
    width: int
    resample: str
    crops: bool
    turns: bool
    reduces: bool
    """What is scaled down to fit is scaled as a Pillow thumbnail, bicubic with a reducing gap."""
    rows: int
    row_width: int
    modalities: tuple[Modality, ...] = ("image",)

    @property
    def limits(self) -> Mapping[Modality, MediaLimits]:
        aspect = float(self._longest(MAX_ASPECT))
        return {"image": MediaLimits(min_side=MIN_SIDE, max_aspect=aspect, max_items=1)}

    def measure(self, infos: Sequence[MediaInfo], options: Sequence[Any]) -> tuple[ItemPlan, ...]:
        return tuple(ItemPlan((), self.rows, self.row_width) for _ in infos)

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        """``page`` uint8 [height, width, 3]."""
        page = media.data
        if self.crops:
            page = without_margins(page, ops, self._longest(MAX_STRIP))
        if self.turns and (self.width - self.height) * (page.shape[1] - page.shape[0]) < 0:
            page = np.rot90(page, 3)
        page = ops.resize(page, *self._grown(*page.shape[:2]), resample=self.resample)
        page = self._shrunk(page, ops)
        top, left = (self.height - page.shape[0]) // 2, (self.width - page.shape[1]) // 2
        page = ops.pad(page, self.height, self.width, top=top, left=left, value=0)
        return EncoderInput({"page": page})

    def with_options(self, options: Mapping[str, Any]) -> PageProcessor:
        for name in options:
            raise UnsupportedOptionError(f"pages have no option {name!r}")
        return self

    def _longest(self, aspect: int) -> int:
        """``aspect``, or that of which a whole pixel is left where the page is scaled to fit."""
        return min(aspect, self.height, self.width)

    def _grown(self, height: int, width: int) -> tuple[int, int]:
        """The shorter side gets the length of the field's shorter side."""
        short = min(self.height, self.width)
        long = int(short * max(height, width) / min(height, width))
        return (short, long) if height <= width else (long, short)

    def _shrunk(self, page: np.ndarray, ops: MediaOps) -> np.ndarray:
        """No side longer than the field's."""
        tall, wide = page.shape[:2]
        height, width = min(tall, self.height), min(wide, self.width)
        if (height, width) == (tall, wide):
            return page
        if tall > wide:
            width = int(wide * height / tall)
        elif wide > tall:
            height = int(tall * width / wide)
        if self.reduces:
            return ops.resize(page, height, width, resample="bicubic", reducing_gap=2.0)
        return ops.resize(page, height, width, resample=self.resample)


def without_margins(page: np.ndarray, ops: MediaOps, max_aspect: float) -> np.ndarray:
    """The rectangle that holds all ink; a page of one level stays whole, and one whose ink is a line."""
    grey = ops.grey(page)
    light, dark = int(grey.max()), int(grey.min())
    if light == dark:
        return page
    scaled = (np.arange(256) - dark) / (light - dark) * 255
    ink = (scaled < INK)[grey]
    rows, columns = (np.flatnonzero(ink.any(axis=axis)) for axis in (1, 0))
    height, width = int(rows[-1] - rows[0]) + 1, int(columns[-1] - columns[0]) + 1
    if max(height, width) > max_aspect * min(height, width):
        return page
    return ops.crop(page, int(rows[0]), int(columns[0]), height, width)
