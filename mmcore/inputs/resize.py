"""Pillow's resize of a large picture, on a device or in strips on several threads: bit for bit what one call
gives.

Pillow resizes along one side and then along the other. Each pass takes rows, or columns, apart from each
other, so that strips of them can go side by side; Pillow lets go of the interpreter meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np
from PIL import Image

from mmcore.inputs.resize_taps import Taps, goes_down_first, has_taps, passes

logger = logging.getLogger(__name__)

STRIPS = 8
LEAST_PIXELS = 1 << 19
"""Of a picture, before or after; a smaller one is done before threads have woken up."""
ByDevice = Callable[[np.ndarray, Sequence[Taps]], np.ndarray]
"""uint8 [H, W, C] through all passes."""


class Resizer:
    """Thread-safe. Its ``threads``, where there are several, start with the first large picture.

    ``device`` is used for such pictures while it gives what Pillow does.
    """

    def __init__(self, threads: int = 1, device: ByDevice | None = None) -> None:
        self._threads = max(1, min(STRIPS, threads))
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="mmcore-resize")
        self._shrinks_first = shrinks_first()
        self._device = device
        if device is not None and not self._agrees(device):
            self._device = None

    def __call__(self, image: np.ndarray, height: int, width: int, resample: int) -> np.ndarray:
        """uint8 [H, W, 1 | 3] to [height, width, 1 | 3]."""
        old_height, old_width = image.shape[:2]
        if max(old_height * old_width, height * width) < LEAST_PIXELS:
            return resized(image, height, width, resample)
        found = (
            None if self._device is None else self._by_device(self._device, image, height, width, resample)
        )
        if found is not None:
            return found
        return self._in_strips(image, height, width, resample)

    def _by_device(
        self, device: ByDevice, image: np.ndarray, height: int, width: int, resample: int
    ) -> np.ndarray | None:
        """None where it cannot: no filter of sums, or no memory."""
        if not has_taps(resample):
            return None
        size = image.shape[0], image.shape[1]
        try:
            return device(image, passes(size, (height, width), resample, down_first=self._shrinks_first))
        except Exception as error:  # whatever stops the device, a core can do the same work
            logger.warning("a picture is resized on the host: %s: %s", type(error).__name__, error)
            return None

    def _agrees(self, device: ByDevice) -> bool:
        """Grown and shrunk, it gives Pillow's levels; the next version of Pillow may do other sums."""
        image = _speckled(48, 64)
        bicubic = int(Image.Resampling.BICUBIC)
        for height, width in ((60, 80), (40, 80), (60, 50), (20, 60), (40, 20)):
            found = self._by_device(device, image, height, width, bicubic)
            if found is None or not np.array_equal(found, resized(image, height, width, bicubic)):
                logger.warning("pictures are resized on the host: the device gives other levels than Pillow")
                return False
        return True

    def _in_strips(self, image: np.ndarray, height: int, width: int, resample: int) -> np.ndarray:
        if self._threads < 2:
            return resized(image, height, width, resample)
        across = partial(self._across, width=width, resample=resample)
        down = partial(self._down, height=height, resample=resample)
        size = image.shape[0], image.shape[1]
        down_first = self._shrinks_first and goes_down_first(size, (height, width))
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
    """Pillow begins with the width; its version 13 with the height where that shrinks by more. What lies
    between is rounded, so that the order shows."""
    image = _speckled(32, 32)
    bicubic = int(Image.Resampling.BICUBIC)
    down_first = resized(resized(image, 20, 32, bicubic), 20, 48, bicubic)
    return bool((resized(image, 20, 48, bicubic) == down_first).all())


def _speckled(height: int, width: int) -> np.ndarray:
    return (np.arange(height * width * 3) ** 2 % 251).astype(np.uint8).reshape(height, width, 3)


def resized(
    image: np.ndarray, height: int, width: int, resample: int, reducing_gap: float | None = None
) -> np.ndarray:
    """In one call of Pillow."""
    single = image.shape[2] == 1
    picture = Image.fromarray(np.ascontiguousarray(image[..., 0] if single else image))
    found = np.asarray(picture.resize((width, height), resample, reducing_gap=reducing_gap))
    return found[..., None] if single else found
