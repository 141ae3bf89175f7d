"""Pictures, from whatever they come in, to uint8 RGB: the one normalising step.

EXIF rotation applied, palettes looked up, alpha laid over white, CMYK converted, 16 bits cut to their upper
8, the first frame of an animation: the same for files, bytes, PIL images and arrays.
"""

from __future__ import annotations

import io
import threading
from typing import Any

import numpy as np
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from mmcore.errors import MediaFormatError, MediaLimitError
from mmcore.inputs.container import read_picture_header
from mmcore.inputs.picture_header import exif_orientation
from mmcore.request import DecodedMedia, MediaInfo

_FILE_CLASSES: dict[str, Any] = {
    "JPEG": JpegImagePlugin.JpegImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "WebP": WebPImagePlugin.WebPImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
}
_TURNS = {
    2: (Image.Transpose.FLIP_LEFT_RIGHT,),
    3: (Image.Transpose.ROTATE_180,),
    4: (Image.Transpose.FLIP_TOP_BOTTOM,),
    5: (Image.Transpose.TRANSPOSE,),
    6: (Image.Transpose.ROTATE_270,),
    7: (Image.Transpose.TRANSVERSE,),
    8: (Image.Transpose.ROTATE_90,),
}
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N", "I")
_LOADING = tuple(threading.Lock() for _ in range(64))
"""By image: two prompts may bring one lazily opened image at once, and Pillow would read its file twice."""
_ALPHA = ("RGBA", "LA", "PA", "RGBa", "La")


def picture_info(data: bytes) -> MediaInfo:
    """Width and height as one sees it, from the header alone. Raises `MediaFormatError`."""
    width, height = read_picture_header(data).turned_size
    return MediaInfo("image", width=width, height=height)


def decode_picture(data: bytes) -> DecodedMedia:
    """Raises `MediaFormatError`. The size has been checked on the header before."""
    header = read_picture_header(data)
    try:
        # The classes themselves: Image.open would warn about large pictures, which a budget governs here.
        with _FILE_CLASSES[header.format](io.BytesIO(header.cleaned(data))) as image:
            image.load()
            return _decoded(to_rgb(image, header.orientation))
    except MemoryError:
        raise MediaLimitError("the picture does not fit into memory") from None
    except Exception:  # Pillow's decoders raise whatever they stumble over
        raise MediaFormatError(f"the {header.format} cannot be decoded: it is truncated or damaged") from None


def pil_picture(image: Image.Image) -> DecodedMedia:
    """A snapshot: the caller may change the image afterwards."""
    try:
        with _LOADING[id(image) % len(_LOADING)]:
            image.load()
            exif = image.info.get("exif", b"")
            return _decoded(to_rgb(image, exif_orientation(exif) if isinstance(exif, bytes) else 1))
    except MemoryError:
        raise MediaLimitError("the picture does not fit into memory") from None
    except Exception:
        raise MediaFormatError("the PIL image cannot be read: truncated, damaged or closed") from None


def array_picture(array: np.ndarray) -> DecodedMedia:
    """uint8 or uint16 [h, w], [h, w, 1 | 3 | 4], or floats in [0, 1] of these shapes."""
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or 0 in array.shape:
        raise MediaFormatError(
            f"an array of shape {array.shape} is no picture; give [h, w], [h, w, 3] or [h, w, 4]"
        )
    levels = _levels(array)
    if levels.shape[2] == 1:
        levels = np.repeat(levels, 3, axis=2)
    if levels.shape[2] == 4:
        return _decoded(to_rgb(Image.fromarray(np.ascontiguousarray(levels)), 1))
    return DecodedMedia("image", np.array(levels, np.uint8, order="C"))


def to_rgb(image: Image.Image, orientation: int) -> Image.Image:
    """Any loaded PIL image to mode RGB, turned as ``orientation`` says."""
    if image.mode in _SIXTEEN_BITS:
        levels = np.clip(np.asarray(image), 0, 0xFFFF).astype(np.uint16) >> 8
        image = Image.fromarray(levels.astype(np.uint8))
    elif image.mode in _ALPHA or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    if image.mode != "RGB":
        image = image.convert("RGB")
    for turn in _TURNS.get(orientation, ()):
        image = image.transpose(turn)
    return image


def _decoded(image: Image.Image) -> DecodedMedia:
    """Of an image in mode RGB; the bytes that Pillow packs are the array's, which nobody writes to."""
    pixels = np.frombuffer(image.tobytes(), np.uint8)
    return DecodedMedia("image", pixels.reshape(image.height, image.width, 3))


def _levels(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.uint16:
        return (array >> 8).astype(np.uint8)
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if not np.issubdtype(array.dtype, np.floating):
        raise MediaFormatError(f"an array of {array.dtype} is no picture; give uint8 or floats in [0, 1]")
    if not np.all((array >= 0.0) & (array <= 1.0)):  # NaN fails both
        raise MediaFormatError("a picture of floats holds values outside [0, 1] or NaN; scale it")
    return np.rint(array.astype(np.float64) * 255.0).astype(np.uint8)
