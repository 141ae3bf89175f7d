"""JPEG and PNG containers: what their headers say, and the bytes that decide pixels.

Everything else in a file (thumbnails, text, colour profiles, further pictures) is left out before Pillow
sees it: it decides nothing, and it is where decoders stumble.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mmcore.errors import MediaFormatError

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_ORIENTATION = 0x0112
_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE = frozenset((0x01, *range(0xD0, 0xD8)))
_JPEG_LEFT_OUT = frozenset((*range(0xE1, 0xEE), 0xEF, 0xFE))
"""Application segments but JFIF (E0) and Adobe's (EE, which says how CMYK is stored), and comments."""
_MAGIC = {JPEG: "JPEG", PNG: "PNG", b"GIF8": "GIF", b"BM": "BMP", b"II*\0": "TIFF", b"MM\0*": "TIFF",
          b"%PDF": "PDF", b"OggS": "Ogg", b"fLaC": "FLAC", b"ID3": "MP3", b"\xff\xfb": "MP3",
          b"\xff\xfa": "MP3", b"\xff\xf3": "MP3", b"\xff\xf2": "MP3",
          b"\x1aE\xdf\xa3": "WebM or Matroska"}  # fmt: skip
_STILL_BRANDS = (b"heic", b"heix", b"mif1", b"msf1", b"avif", b"avis")
_PNG_KEPT = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")


@dataclass(frozen=True, slots=True)
class PictureHeader:
    """Size as stored, before ``orientation`` (EXIF, 1 to 8) turns it. ``kept``: spans that decide pixels."""

    format: str
    width: int
    height: int
    orientation: int
    kept: tuple[tuple[int, int], ...]

    @property
    def turned_size(self) -> tuple[int, int]:
        """Width and height as one sees it."""
        return (self.height, self.width) if self.orientation >= 5 else (self.width, self.height)

    def cleaned(self, data: bytes) -> bytes:
        """The file without what decides nothing."""
        return b"".join(data[start:end] for start, end in self.kept)


def read_picture_header(data: bytes) -> PictureHeader:
    """Raises `MediaFormatError` for what is neither JPEG nor PNG, or ends inside its header."""
    reader: Callable[[bytes], PictureHeader] | None = None
    if data.startswith(JPEG):
        reader = _read_jpeg
    elif data.startswith(PNG):
        reader = _read_png
    if reader is None:
        raise MediaFormatError(f"{describe(data)}; accepted picture formats: JPEG, PNG")
    try:
        return reader(data)
    except (struct.error, IndexError):
        raise MediaFormatError("the file ends inside its header: it is truncated") from None


def describe(data: bytes) -> str:
    """What unaccepted bytes look like."""
    if not data:
        return "the file is empty (0 bytes)"
    return f"the file is {format_name(data) or 'of no known format'}"


def format_name(data: bytes) -> str:
    """The format that the first bytes tell; empty where they tell none."""
    for magic, name in _MAGIC.items():
        if data.startswith(magic):
            return name
    if data[:4] == b"RIFF" and len(data) >= 12:
        return {b"WEBP": "WebP", b"WAVE": "WAV", b"AVI ": "AVI"}.get(data[8:12], "RIFF")
    if data[4:8] == b"ftyp":
        return "HEIC or AVIF" if data[8:12] in _STILL_BRANDS else "MP4 or M4A"
    return ""


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


def _read_jpeg(data: bytes) -> PictureHeader:
    size, orientation, kept = (0, 0), 1, [(0, 2)]
    for marker, start, end in _jpeg_segments(data):
        if marker == 0xE1 and data[start + 4 : start + 10] == b"Exif\0\0" and orientation == 1:
            orientation = exif_orientation(data[start + 4 : end])
        if marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, start + 5)
            size = (width, height)
        if marker not in _JPEG_LEFT_OUT:
            kept.append((start, end))
    if min(size) == 0:
        raise MediaFormatError("the JPEG has no picture size in its header")
    return PictureHeader("JPEG", *size, orientation, tuple(kept))


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(marker, start, end) of each segment; the last one is the first scan with all that follows."""
    position = 2
    while True:
        while data[position] != 0xFF:  # stray bytes between segments are legal to skip
            position += 1
        while data[position + 1] == 0xFF:
            position += 1
        marker = data[position + 1]
        if marker in (0xDA, 0xD9):
            yield marker, position, len(data)
            return
        length = 0 if marker in _JPEG_BARE else struct.unpack_from(">H", data, position + 2)[0]
        yield marker, position, position + 2 + length
        position += 2 + length


def _read_png(data: bytes) -> PictureHeader:
    kind, width, height = struct.unpack_from(">4sII", data, 12)
    if kind != b"IHDR" or width == 0 or height == 0:
        raise MediaFormatError("the PNG does not start with a picture size (IHDR)")
    orientation, kept, position = 1, [(0, 8)], 8
    while position + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        end = position + 12 + length
        if kind == b"eXIf":
            orientation = exif_orientation(data[position + 8 : end - 4])
        if kind in _PNG_KEPT:
            kept.append((position, end))
        position = end
    return PictureHeader("PNG", width, height, orientation, tuple(kept))
