"""The header of a PNG. Of an animated one (APNG) the default picture counts, which is the first frame."""

from __future__ import annotations

import struct

from mmcore.errors import MediaFormatError
from mmcore.inputs.picture_header import PictureHeader, exif_orientation

_KEPT = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")


def read_png(data: bytes) -> PictureHeader:
    kind, width, height = struct.unpack_from(">4sII", data, 12)
    if kind != b"IHDR" or width == 0 or height == 0:
        raise MediaFormatError("the PNG does not start with a picture size (IHDR)")
    orientation, kept, position = 1, [(0, 8)], 8
    while position + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        end = position + 12 + length
        if kind == b"eXIf":
            orientation = exif_orientation(data[position + 8 : end - 4])
        if kind in _KEPT:
            kept.append((position, end))
        position = end
    return PictureHeader("PNG", width, height, orientation, tuple(kept))
