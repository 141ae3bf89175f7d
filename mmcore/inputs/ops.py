"""Media operations on the host: Pillow and numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
from PIL import Image

from mmcore.errors import PluginError
from mmcore.inputs import mel
from mmcore.inputs.resize import Resizer, resized

_FILTERS = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
    "lanczos": Image.Resampling.LANCZOS,
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
}


@dataclass(frozen=True, slots=True)
class NumpyOps:
    """Implements `mmcore.adapter.MediaOps`. Pure functions; safe in any thread."""

    backend: ClassVar[str] = "numpy"
    resizer: Resizer = field(default_factory=Resizer, repr=False, compare=False)

    def resize(
        self,
        image: np.ndarray,
        height: int,
        width: int,
        *,
        resample: str = "bicubic",
        reducing_gap: float | None = None,
    ) -> np.ndarray:
        if resample not in _FILTERS:
            raise PluginError(f"resample={resample!r} is none of {', '.join(_FILTERS)}")
        if image.shape[-3:-1] == (height, width):  # Pillow would give a copy
            return image
        if image.ndim > 3:
            each = partial(
                self.resize, height=height, width=width, resample=resample, reducing_gap=reducing_gap
            )
            return np.stack([each(frame) for frame in image])
        if reducing_gap is not None:
            return resized(image, height, width, _FILTERS[resample], reducing_gap)
        return self.resizer(image, height, width, _FILTERS[resample])

    def grey(self, image: np.ndarray) -> np.ndarray:
        flat = np.ascontiguousarray(image).reshape(-1, image.shape[-2], 3)
        return np.asarray(Image.fromarray(flat).convert("L")).reshape(image.shape[:-1])

    def crop(self, image: np.ndarray, top: int, left: int, height: int, width: int) -> np.ndarray:
        if min(top, left) < 0 or top + height > image.shape[-3] or left + width > image.shape[-2]:
            raise PluginError(f"crop of {height}x{width} at ({top}, {left}) leaves {image.shape[-3:-1]}")
        return image[..., top : top + height, left : left + width, :]

    def pad(
        self, image: np.ndarray, height: int, width: int, *, top: int, left: int, value: int
    ) -> np.ndarray:
        field = np.full((*image.shape[:-3], height, width, image.shape[-1]), value, image.dtype)
        inner = self.crop(field, top, left, image.shape[-3], image.shape[-2])
        inner[...] = image
        return field

    def normalize(self, image: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
        levels = np.arange(256)[:, None] / 255.0
        table = ((levels - np.asarray(mean)) / np.asarray(std)).astype(np.float32)  # [256, channels]
        out = np.empty(image.shape, np.float32)
        for channel in range(image.shape[-1]):
            out[..., channel] = table[:, channel].take(image[..., channel], mode="clip")
        return out

    def patchify(self, frames: np.ndarray, *, patch: int, temporal: int = 1, merge: int = 1) -> np.ndarray:
        if len(frames) == 1 and temporal > 1:  # cut once, then repeated
            vectors = self.patchify(frames, patch=patch, merge=merge)
            planes = vectors.reshape(len(vectors), frames.shape[-1], 1, patch * patch)
            shape = (len(vectors), planes.shape[1], temporal, patch * patch)
            return _copy(np.broadcast_to(planes, shape)).reshape(len(vectors), -1)
        missing = -len(frames) % temporal
        if missing:
            frames = np.concatenate([frames, np.repeat(frames[-1:], missing, axis=0)])
        count, height, width, channels = frames.shape
        rows, columns = height // (merge * patch), width // (merge * patch)
        if rows * merge * patch != height or columns * merge * patch != width:
            raise PluginError(f"{height}x{width} is no multiple of patches of {patch} merged by {merge}")
        lines = frames.reshape(
            count // temporal, temporal, rows, merge, patch, columns, merge, patch * channels
        )
        patches = _copy(lines.transpose(0, 2, 5, 3, 6, 1, 4, 7))  # whole lines of a patch move at once
        pixels = patches.reshape(-1, temporal * patch * patch, channels)
        return _copy(pixels.transpose(0, 2, 1)).reshape(len(pixels), -1)

    def log_mel(self, samples: np.ndarray, *, mels: int, fft: int, hop: int, sample_rate: int) -> np.ndarray:
        return mel.log_mel(samples, mels=mels, fft=fft, hop=hop, sample_rate=sample_rate)


def _copy(view: np.ndarray) -> np.ndarray:
    """In C order. Unlike ``reshape``, an assignment lets go of the interpreter while it copies."""
    out = np.empty(view.shape, view.dtype)
    out[...] = view
    return out
