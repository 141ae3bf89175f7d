"""Pictures to one size, cropped and normalised, as ``preprocessor_config.json`` says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmcore.adapter import MediaOps
from mmcore.errors import CheckpointError
from mmcore.parts.fields import Json

if TYPE_CHECKING:
    import numpy as np

_RESAMPLES = ("nearest", "lanczos", "bilinear", "bicubic", "box")
"""In the order of Pillow's numbers."""
_HALF = (0.5, 0.5, 0.5)
MAX_ASPECT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureShape:
    """Resize, then crop the middle. With ``shortest_edge`` the aspect is kept and that edge gets the size."""

    height: int
    width: int
    shortest_edge: int = 0
    resample: str = "bicubic"
    mean: tuple[float, ...] = _HALF
    std: tuple[float, ...] = _HALF

    @classmethod
    def from_settings(cls, settings: Json) -> PictureShape:
        """From the hub's fields ``size``, ``crop_size``, ``resample``, ``image_mean`` and ``image_std``.

        Raises `CheckpointError` for a size that no picture has.
        """
        size = _size(settings.get("size"), "size")
        crop = _size(settings.get("crop_size"), "crop_size") if settings.get("do_center_crop") else size
        edge = size.get("shortest_edge", 0)
        height, width = crop.get("height", edge), crop.get("width", edge)
        if min(height, width) < 1 or not (edge or "height" in size):
            raise CheckpointError(f"preprocessor_config.json: size {size}, crop_size {crop} give no picture")
        number = settings.get("resample", 3)
        if number not in range(len(_RESAMPLES)):
            raise CheckpointError(f"preprocessor_config.json: resample {number!r} is no filter of Pillow")
        return cls(
            height=height,
            width=width,
            shortest_edge=edge,
            resample=_RESAMPLES[number],
            mean=tuple(settings.get("image_mean", _HALF)),
            std=tuple(settings.get("image_std", _HALF)),
        )

    @classmethod
    def for_tower(cls, settings: Json, side: int) -> PictureShape:
        """From the same fields, of a tower that sees squares of ``side`` x ``side`` pixels.

        Raises `CheckpointError` where the settings say another size.
        """
        shape = cls.from_settings({"size": {"height": side, "width": side}, **settings})
        if (shape.height, shape.width) != (side, side):
            raise CheckpointError(
                f"preprocessor_config.json: pictures are not {side} x {side}, as config.json says"
            )
        return shape

    @property
    def max_aspect(self) -> float:
        """Limit of what may come in, 0 for none: where the aspect is kept, a file of some bytes that is one
        pixel high would be resized to gigabytes, of which the crop keeps a sliver."""
        return MAX_ASPECT if self.shortest_edge else 0.0

    def resized(self, height: int, width: int) -> tuple[int, int]:
        """Height and width before the crop, for a picture of this size."""
        if not self.shortest_edge:
            return self.height, self.width
        longest = int(self.shortest_edge * max(height, width) / min(height, width))
        return (self.shortest_edge, longest) if height <= width else (longest, self.shortest_edge)

    def apply(self, image: np.ndarray, ops: MediaOps) -> np.ndarray:
        """uint8 [H, W, 3] to float32 [height, width, 3]."""
        return ops.normalize(self.cut(image, ops), self.mean, self.std)

    def cut(self, image: np.ndarray, ops: MediaOps) -> np.ndarray:
        """uint8 [H, W, 3] to uint8 [height, width, 3], which the encoder may normalise."""
        tall, wide = self.resized(*image.shape[:2])
        resized = ops.resize(image, tall, wide, resample=self.resample)
        top, left = (tall - self.height) // 2, (wide - self.width) // 2
        return ops.crop(resized, top, left, self.height, self.width)


def _size(value: object, name: str) -> dict[str, int]:
    """The hub writes a number or a record."""
    if isinstance(value, int):
        return {"shortest_edge": value} if name == "size" else {"height": value, "width": value}
    return dict(value) if isinstance(value, dict) else {}
