"""The header of a TIFF. Of several pictures the first counts: Pillow sees its directory alone."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from mmcore.errors import MediaFormatError
from mmcore.inputs.picture_header import PictureHeader

_WIDTH, _HEIGHT, _BITS, _COMPRESSION = 256, 257, 258, 259
_ORIENTATION, _SAMPLES, _TILE_WIDTH, _TILE_HEIGHT = 274, 277, 322, 323
_STRIPS, _TILES = (273, 278, 279), (_TILE_WIDTH, _TILE_HEIGHT, 324, 325)
_COLOUR = (262, 317, 320, 332, 338, 339, 347, 529, 530, 531, 532)
_KEPT = frozenset(
    (_WIDTH, _HEIGHT, _BITS, _COMPRESSION, 266, _SAMPLES, 284, 292, 293, *_STRIPS, *_TILES, *_COLOUR)
)
"""Layout, compression and colour. Not orientation, which is applied here, nor anything that describes."""
_COMPRESSIONS = (1, 2, 3, 4, 5, 7, 8, 32773, 32946)
"""None, fax (three kinds), LZW, JPEG, deflate, PackBits, deflate by its older number."""
_TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}
_MAX_SAMPLES = 5
_SMALL_TILE = 1 << 20
"""Pixels of a tile that may be larger than its picture."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """``number``: its value where it is one integer, else 0."""

    tag: int
    raw: bytes
    number: int


def read_tiff(data: bytes) -> PictureHeader:
    order = "<" if data[:2] == b"II" else ">"
    entries = {entry.tag: entry for entry in _entries(data, order)}
    numbers = {tag: entry.number for tag, entry in entries.items()}
    width, height = numbers.get(_WIDTH, 0), numbers.get(_HEIGHT, 0)
    if min(width, height) <= 0:
        raise MediaFormatError("the TIFF has no picture size in its header")
    _check(numbers, width * height)
    orientation = numbers.get(_ORIENTATION, 1)
    kept = sorted(tag for tag in entries if tag in _KEPT)
    directory = b"".join(entries[tag].raw for tag in kept)
    odd = len(data) % 2  # a directory starts at an even place
    head = data[:4] + struct.pack(order + "I", len(data) + odd)
    tail = bytes(odd) + struct.pack(order + "H", len(kept)) + directory + bytes(4)
    orientation = orientation if 1 <= orientation <= 8 else 1
    return PictureHeader("TIFF", width, height, orientation, (head, (8, len(data)), tail))


def _entries(data: bytes, order: str) -> Iterator[_Entry]:
    (start,) = struct.unpack_from(order + "4xI", data)
    (count,) = struct.unpack_from(order + "H", data, start)
    for place in range(start + 2, start + 2 + 12 * count, 12):
        tag, kind, length, short = struct.unpack_from(order + "HHIH", data, place)
        (value,) = struct.unpack_from(order + "I", data, place + 8)
        size = _TYPE_SIZES.get(kind, 0) * length
        if tag in _KEPT and (size == 0 or (size > 4 and value + size > len(data))):
            raise MediaFormatError(f"tag {tag} of the TIFF lies outside the file: it is truncated or damaged")
        number = {3: short, 4: value}.get(kind, 0) if length == 1 else 0
        yield _Entry(tag, data[place : place + 12], number)


def _check(numbers: dict[int, int], pixels: int) -> None:
    compression = numbers.get(_COMPRESSION, 1)
    if compression not in _COMPRESSIONS:
        raise MediaFormatError(f"TIFF compression {compression} is not accepted")
    samples = numbers.get(_SAMPLES, 1)
    if not 1 <= samples <= _MAX_SAMPLES:
        raise MediaFormatError(f"the TIFF has {samples} samples a pixel; accepted: 1 to {_MAX_SAMPLES}")
    tile = numbers.get(_TILE_WIDTH, 0) * numbers.get(_TILE_HEIGHT, 0)
    if tile > max(_SMALL_TILE, 4 * pixels):
        raise MediaFormatError(f"the TIFF has tiles of {tile} pixels for a picture of {pixels}")
