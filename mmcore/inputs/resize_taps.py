"""How Pillow resizes along one side, as integers: which pixels make a pixel, and how much of each.

Facts of Pillow's ``Resample.c``: a filter's weights, normed in double precision, are rounded to 22 bits after
the point; their products with the levels add up exactly, half a level is added, and the point is cut off.
Whoever does the same sums gets the same levels. After Pillow 13 the height comes first where it shrinks by
more than twice as many pixels as the width; before, the width always does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from PIL import Image

BITS = 22
Doubles = NDArray[np.float64]


def _box(x: Doubles) -> Doubles:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def _bilinear(x: Doubles) -> Doubles:
    return np.maximum(1.0 - np.abs(x), 0.0)


def _bicubic(x: Doubles) -> Doubles:
    """Keys 1981 with a = -0.5."""
    a, x = -0.5, np.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _lanczos(x: Doubles) -> Doubles:
    return np.where((x >= -3.0) & (x < 3.0), np.sinc(x) * np.sinc(x / 3.0), 0.0)


_FILTERS: Mapping[int, tuple[float, Callable[[Doubles], Doubles]]] = MappingProxyType(
    {
        int(Image.Resampling.BOX): (0.5, _box),
        int(Image.Resampling.BILINEAR): (1.0, _bilinear),
        int(Image.Resampling.BICUBIC): (2.0, _bicubic),
        int(Image.Resampling.LANCZOS): (3.0, _lanczos),
    }
)
"""By Pillow's number: how far a filter reaches at scale 1, and its weight at a distance."""


@dataclass(frozen=True, eq=False, slots=True)
class Taps:
    """One pass of M pixels along ``axis``, 0 down or 1 across: each is the sum of K neighbours."""

    axis: int
    first: NDArray[np.int32]  # [M]
    weights: NDArray[np.int32]  # [M, K], zero behind a pixel's last neighbour

    @classmethod
    def of(cls, axis: int, old: int, new: int, resample: int) -> Taps:
        """From ``old`` pixels to ``new`` ones."""
        reach, weight = _FILTERS[resample]
        scale = old / new
        spread = max(scale, 1.0)
        count = int(np.ceil(reach * spread)) * 2 + 1
        centre = (np.arange(new) + 0.5) * scale
        low = np.maximum((centre - reach * spread + 0.5).astype(np.int64), 0)
        high = np.minimum((centre + reach * spread + 0.5).astype(np.int64), old)
        place = low[:, None] + np.arange(count)
        shares = weight((place - centre[:, None] + 0.5) * (1.0 / spread))
        shares[place >= high[:, None]] = 0.0
        total = np.zeros(new)
        for column in shares.T:  # one after the other: a sum in another order rounds otherwise
            total += column
        shares /= np.where(total == 0.0, 1.0, total)[:, None]
        rounded = np.trunc(shares * (1 << BITS) + np.where(shares < 0, -0.5, 0.5))
        return cls(axis, low.astype(np.int32), rounded.astype(np.int32))


def passes(size: tuple[int, int], wanted: tuple[int, int], resample: int, *, down_first: bool) -> list[Taps]:
    """From one (height, width) to another, in Pillow's order. ``down_first``: as from Pillow 13 on."""
    axes = (0, 1) if down_first and goes_down_first(size, wanted) else (1, 0)
    return [Taps.of(axis, size[axis], wanted[axis], resample) for axis in axes if size[axis] != wanted[axis]]


def goes_down_first(size: tuple[int, int], wanted: tuple[int, int]) -> bool:
    """From Pillow 13 on."""
    lost = [old - new for old, new in zip(size, wanted, strict=True)]
    return lost[0] > 0 and lost[0] > 2 * lost[1]


def has_taps(resample: int) -> bool:
    """Whether the filter is one of sums: ``NEAREST`` is not."""
    return resample in _FILTERS
