"""The header of a JPEG."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from mmcore.errors import MediaFormatError
from mmcore.inputs.picture_header import PictureHeader, exif_orientation

_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE = frozenset((0x01, *range(0xD0, 0xD8)))
_MARKER = re.compile(rb"\xff[^\xff]", re.DOTALL)
_LEFT_OUT = frozenset((*range(0xE1, 0xEE), 0xEF, 0xFE))
"""Application segments but JFIF (E0) and Adobe's (EE, which says how CMYK is stored), and comments."""


def read_jpeg(data: bytes) -> PictureHeader:
    size, orientation, kept = (0, 0), 1, [(0, 2)]
    for marker, start, end in _segments(data):
        if marker == 0xE1 and data[start + 4 : start + 10] == b"Exif\0\0" and orientation == 1:
            orientation = exif_orientation(data[start + 4 : end])
        if marker in _SIZES:
            height, width = struct.unpack_from(">HH", data, start + 5)
            size = (width, height)
        if marker not in _LEFT_OUT:
            kept.append((start, end))
    if min(size) == 0:
        raise MediaFormatError("the JPEG has no picture size in its header")
    return PictureHeader("JPEG", *size, orientation, tuple(kept))


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(marker, start, end) of each segment; the last one is the first scan with all that follows."""
    position = 2
    while True:
        found = _MARKER.search(data, position)  # stray bytes between segments are legal to skip
        if found is None:
            raise IndexError
        position, marker = found.start(), data[found.start() + 1]
        if marker in (0xDA, 0xD9):
            yield marker, position, len(data)
            return
        length = 0 if marker in _BARE else struct.unpack_from(">H", data, position + 2)[0]
        yield marker, position, position + 2 + length
        position += 2 + length
