"""The header of a WebP. Of an animated one the first frame counts, on the whole canvas."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from mmcore.errors import MediaFormatError
from mmcore.inputs.picture_header import PictureHeader, exif_orientation

_ANIMATED, _ALPHA = 0x02, 0x10
_KEPT = (b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF")


def read_webp(data: bytes) -> PictureHeader:
    size, orientation, flags = (0, 0), 1, None
    pieces: list[tuple[int, int] | bytes] = []
    framed = False
    for name, start, end in _chunks(data):
        if name == b"EXIF":
            orientation = exif_orientation(data[start:end])
        if name == b"VP8X":
            flags = data[start] & (_ANIMATED | _ALPHA)
            size = (_wide(data, start + 4) + 1, _wide(data, start + 7) + 1)
            pieces.append(struct.pack("<4sIB3x", b"VP8X", 10, flags) + data[start + 4 : start + 10])
        if name in _KEPT and not (name == b"ANMF" and framed):
            pieces.append((start - 8, end + (end - start) % 2))
            framed = framed or name == b"ANMF"
        if name in (b"VP8 ", b"VP8L") and flags is None:
            size = _lossy_size(data, start) if name == b"VP8 " else _lossless_size(data, start)
    if min(size) == 0:
        raise MediaFormatError("the WebP has no picture size in its header")
    length = sum(len(p) if isinstance(p, bytes) else p[1] - p[0] for p in pieces)
    head = struct.pack("<4sI4s", b"RIFF", 4 + length, b"WEBP")
    return PictureHeader("WebP", *size, orientation, (head, *pieces))


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(name, start, end) of each chunk's body."""
    position = 12
    while position + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, position)
        start, end = position + 8, position + 8 + size
        if end > len(data):
            raise MediaFormatError("the WebP ends inside a chunk: it is truncated")
        yield name, start, end
        position = end + size % 2


def _wide(data: bytes, start: int) -> int:
    """24 bits."""
    return int.from_bytes(data[start : start + 3], "little")


def _lossy_size(data: bytes, start: int) -> tuple[int, int]:
    mark, width, height = struct.unpack_from("<3x3sHH", data, start)
    return (width & 0x3FFF, height & 0x3FFF) if mark == b"\x9d\x01\x2a" else (0, 0)


def _lossless_size(data: bytes, start: int) -> tuple[int, int]:
    mark, bits = struct.unpack_from("<BI", data, start)
    return ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1) if mark == 0x2F else (0, 0)
