"""The header of a GIF. The first frame counts; what follows it is left out."""

from __future__ import annotations

import struct

from mmcore.errors import MediaFormatError
from mmcore.inputs.picture_header import PictureHeader

_EXTENSION, _FRAME, _END = 0x21, 0x2C, 0x3B
_GRAPHIC_CONTROL = 0xF9


def read_gif(data: bytes) -> PictureHeader:
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    position = 13 + _table_size(flags)
    kept: list[tuple[int, int] | bytes] = [(0, position)]
    while data[position] == _EXTENSION:
        end = _blocks_end(data, position + 2)
        if data[position + 1] == _GRAPHIC_CONTROL:  # which colour is transparent
            kept.append((position, end))
        position = end
    if data[position] != _FRAME:
        raise MediaFormatError("the GIF has no picture in it")
    left, top, own_width, own_height, flags = struct.unpack_from("<HHHHB", data, position + 1)
    # A frame may reach over the screen, which Pillow then widens.
    width, height = max(width, left + own_width), max(height, top + own_height)
    if min(width, height, own_width, own_height) == 0:
        raise MediaFormatError("the GIF has no picture size in its header")
    end = _blocks_end(data, position + 11 + _table_size(flags))
    return PictureHeader("GIF", width, height, 1, (*kept, (position, end), bytes([_END])))


def _table_size(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _blocks_end(data: bytes, position: int) -> int:
    """Where a chain of data blocks ends, the empty one included."""
    while data[position]:
        position += 1 + data[position]
    return position + 1
