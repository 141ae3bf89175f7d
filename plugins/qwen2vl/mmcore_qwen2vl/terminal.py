"""A picture in a terminal: two pixels a character, by the upper half block."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TextIO

MAX_COLUMNS = 96
MAX_ROWS = 24
HALF_BLOCK = "\u2580"
RESET = "\x1b[0m"


def has_colours(stream: TextIO) -> bool:
    """Whether 24-bit colour escapes may be written to ``stream``."""
    encodes = (stream.encoding or "").lower().replace("-", "") == "utf8"
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM", "dumb") == "dumb"
    return stream.isatty() and encodes and not plain


def read_size(picture: Path) -> tuple[int, int] | None:
    """(width, height), None where the file is no picture: the model's own error says more about it."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(picture) as image:
            return image.size
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError):
        return None


def draw(picture: Path) -> str:
    """The picture, shrunk to the terminal, as lines of coloured half blocks."""
    from PIL import Image

    with Image.open(picture) as image:
        width, height = _fit(*image.size)
        data = image.convert("RGB").resize((width, height)).tobytes()
    pixels = [data[start : start + 3] for start in range(0, len(data), 3)]
    rows = [pixels[start : start + width] for start in range(0, len(pixels), width)]
    return "\n".join(_line(upper, lower) for upper, lower in zip(rows[::2], rows[1::2], strict=True))


def _line(upper: Sequence[bytes], lower: Sequence[bytes]) -> str:
    """Runs of one colour pair share one escape sequence."""
    runs = groupby(zip(upper, lower, strict=True))
    return "".join(_escape(*pair) + HALF_BLOCK * sum(1 for _ in run) for pair, run in runs) + RESET


def _escape(upper: bytes, lower: bytes) -> str:
    return "\x1b[38;2;{};{};{};48;2;{};{};{}m".format(*upper, *lower)


def _fit(width: int, height: int) -> tuple[int, int]:
    """Columns, and an even number of pixel rows, that keep the shape and fit the terminal."""
    columns = min(width, shutil.get_terminal_size().columns - 1, MAX_COLUMNS)
    scale = min(columns / width, 2 * MAX_ROWS / height, 1.0)
    return max(1, round(width * scale)), max(2, 2 * round(height * scale / 2))
