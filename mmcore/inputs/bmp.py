"""The header of a BMP."""

from __future__ import annotations

import struct

from mmcore.errors import MediaFormatError
from mmcore.inputs.picture_header import PictureHeader

_CORE_HEADER = 12
_HEADERS = (_CORE_HEADER, 40, 52, 56, 64, 108, 124)
_UNPACKED = (0, 3)
"""Compressions whose rows have their full length: plain, and plain with bit masks."""
_RUN_LENGTH = (1, 2)


def read_bmp(data: bytes) -> PictureHeader:
    offset, header = struct.unpack_from("<II", data, 10)
    if header not in _HEADERS:
        raise MediaFormatError(f"the BMP has a header of {header} bytes, which is no known kind")
    if header == _CORE_HEADER:
        width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
        compression = 0
    else:
        width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
    height = abs(height)  # negative: from the top down
    if width <= 0 or height == 0:
        raise MediaFormatError("the BMP has no picture size in its header")
    if bits not in (1, 4, 8, 16, 24, 32) or compression not in _UNPACKED + _RUN_LENGTH:
        raise MediaFormatError(f"a BMP of {bits} bits and compression {compression} is not accepted")
    rows = (width * bits + 31) // 32 * 4 * height
    if compression in _UNPACKED and offset + rows > len(data):
        raise MediaFormatError(f"the BMP promises {rows} bytes of pixels and ends before: it is truncated")
    return PictureHeader("BMP", width, height, 1, ((0, len(data)),))
