"""Formats by their first bytes: which reader reads a picture's header, and what else bytes may be."""

from __future__ import annotations

import struct
from collections.abc import Callable

from mmcore.errors import MediaFormatError
from mmcore.inputs.bmp import read_bmp
from mmcore.inputs.gif import read_gif
from mmcore.inputs.jpeg import read_jpeg
from mmcore.inputs.picture_header import PictureHeader
from mmcore.inputs.png import read_png
from mmcore.inputs.tiff import read_tiff
from mmcore.inputs.webp import read_webp

_MAGIC = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"GIF8": "GIF", b"BM": "BMP",
          b"II*\0": "TIFF", b"MM\0*": "TIFF", b"%PDF": "PDF", b"OggS": "Ogg", b"fLaC": "FLAC",
          b"ID3": "MP3", b"\xff\xfb": "MP3", b"\xff\xfa": "MP3", b"\xff\xf3": "MP3", b"\xff\xf2": "MP3",
          b"\x1aE\xdf\xa3": "WebM or Matroska"}  # fmt: skip
_STILL_BRANDS = (b"heic", b"heix", b"mif1", b"msf1", b"avif", b"avis")
_READERS: dict[str, Callable[[bytes], PictureHeader]] = {
    "JPEG": read_jpeg,
    "PNG": read_png,
    "WebP": read_webp,
    "GIF": read_gif,
    "BMP": read_bmp,
    "TIFF": read_tiff,
}
PICTURE_FORMATS = ", ".join(_READERS)


def read_picture_header(data: bytes) -> PictureHeader:
    """Raises `MediaFormatError` for what is no accepted format, or ends inside its header."""
    reader = _READERS.get(format_name(data))
    if reader is None:
        raise MediaFormatError(f"{describe(data)}; accepted picture formats: {PICTURE_FORMATS}")
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
