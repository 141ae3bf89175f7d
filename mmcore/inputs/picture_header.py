"""What a picture's header says, and which of the file's bytes decide its pixels.

Everything else in a file (thumbnails, text, colour profiles, further pictures) is left out before Pillow
sees it: it decides nothing, and it is where decoders stumble.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_ORIENTATION = 0x0112


@dataclass(frozen=True, slots=True)
class PictureHeader:
    """Size as stored, before ``orientation`` (EXIF, 1 to 8) turns it.

    ``kept``: what decides pixels, as spans [start, end) of the file and bytes that stand for others.
    """

    format: str
    width: int
    height: int
    orientation: int
    kept: tuple[tuple[int, int] | bytes, ...]

    @property
    def turned_size(self) -> tuple[int, int]:
        """Width and height as one sees it."""
        return (self.height, self.width) if self.orientation >= 5 else (self.width, self.height)

    def cleaned(self, data: bytes) -> bytes:
        """The file without what decides nothing."""
        return b"".join(
            piece if isinstance(piece, bytes) else data[piece[0] : piece[1]] for piece in self.kept
        )


def exif_orientation(exif: bytes) -> int:
    """EXIF tag 0x0112 of the first directory, 1 where there is none or it makes no sense."""
    body = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(body[:2])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "4xI", body)
        (count,) = struct.unpack_from(order + "H", body, start)
        for entry in range(start + 2, start + 2 + 12 * min(count, 256), 12):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", body, entry)
            if tag == _ORIENTATION:
                return value if kind == 3 and 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1
