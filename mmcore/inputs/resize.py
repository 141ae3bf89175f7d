"""Pillow's resize, a large picture in strips on several threads, bit for bit what one call gives.

Pillow resizes along one side and then along the other. Each pass takes rows, or columns, apart from each
other, so that strips of them can go side by side; Pillow lets go of the interpreter meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np
from PIL import Image

STRIPS = 8
LEAST_PIXELS = 1 << 19
"""Of a picture, before or after; a smaller one is done before threads have woken up."""
Pass = Callable[[np.ndarray], np.ndarray]


class Resizer:
    """Thread-safe. Its ``threads``, where there are several, start with the first large picture."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = max(1, min(STRIPS, threads))
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="mmcore-resize")
        self._shrinks_first = shrinks_first()

    def __call__(self, image: np.ndarray, height: int, width: int, resample: int) -> np.ndarray:
        """uint8 [H, W, 1 | 3] to [height, width, 1 | 3]."""
        old_height, old_width = image.shape[:2]
        small = max(old_height * old_width, height * width) < LEAST_PIXELS
        both_shrink = height < old_height and width < old_width  # Pillow's order is anyone's guess there
        if self._threads < 2 or small or both_shrink:
            return resized(image, height, width, resample)
        across = partial(self._across, width=width, resample=resample)
        down = partial(self._down, height=height, resample=resample)
        down_first = self._shrinks_first and height < old_height and width > old_width
        for one_side in (down, across) if down_first else (across, down):
            image = one_side(image)
        return image

    def _across(self, image: np.ndarray, width: int, resample: int) -> np.ndarray:
        """To ``width``, in strips of whole rows."""
        if image.shape[1] == width:
            return image
        out = np.empty((image.shape[0], width, image.shape[2]), np.uint8)

        def strip(rows: slice) -> None:
            out[rows] = resized(image[rows], rows.stop - rows.start, width, resample)

        self._strips(strip, image.shape[0])
        return out

    def _down(self, image: np.ndarray, height: int, resample: int) -> np.ndarray:
        """To ``height``, in strips of whole columns."""
        if image.shape[0] == height:
            return image
        out = np.empty((height, *image.shape[1:]), np.uint8)

        def strip(columns: slice) -> None:
            out[:, columns] = resized(image[:, columns], height, columns.stop - columns.start, resample)

        self._strips(strip, image.shape[1])
        return out

    def _strips(self, strip: Callable[[slice], None], length: int) -> None:
        cuts = [length * n // self._threads for n in range(self._threads + 1)]
        pieces = [slice(low, high) for low, high in pairwise(cuts) if high > low]
        list(self._pool.map(strip, pieces))


def shrinks_first() -> bool:
    """Pillow begins with the width; its version 13 with the height where that shrinks and the width grows.
    What lies between is rounded, so that the order shows."""
    image = (np.arange(32 * 32 * 3) ** 2 % 251).astype(np.uint8).reshape(32, 32, 3)
    bicubic = int(Image.Resampling.BICUBIC)
    down_first = resized(resized(image, 20, 32, bicubic), 20, 48, bicubic)
    return bool((resized(image, 20, 48, bicubic) == down_first).all())


def resized(
    image: np.ndarray, height: int, width: int, resample: int, reducing_gap: float | None = None
) -> np.ndarray:
    """In one call of Pillow."""
    single = image.shape[2] == 1
    picture = Image.fromarray(np.ascontiguousarray(image[..., 0] if single else image))
    found = np.asarray(picture.resize((width, height), resample, reducing_gap=reducing_gap))
    return found[..., None] if single else found
