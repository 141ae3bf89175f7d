"""Draws lines as 8-bit glyph masks on the CPU, with the place of every character."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from text import TextSource

COLUMN = 7  # the auxiliary head names the character in each 7-pixel column of a 28x28 token
NONE = 0
CHARS = {chr(c): c - 32 for c in range(33, 127)}  # class of the auxiliary head; a space has none
NUM_CLASSES = 95
MIN_SIZE, MAX_SIZE = 13, 46


@dataclass(frozen=True)
class FontBook:
    """Faces of the families on one side of the font split, grouped by family."""

    root: Path
    families: tuple[tuple[str, tuple[str, ...]], ...]

    def draw(self, rng: Random) -> tuple[str, str]:
        """A random family, then one of its faces."""
        family, faces = rng.choice(self.families)
        return family, rng.choice(faces)

    def font(self, face: str, size: int) -> ImageFont.FreeTypeFont:
        """The face at a pixel size (cached)."""
        return _font(str(self.root / face), size)


@functools.lru_cache(maxsize=4000)
def _font(path: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)


@functools.lru_cache(maxsize=200_000)
def _advance(path: str, size: int, char: str) -> float:
    return _font(path, size).getlength(char)


def load_fonts(data: Path, held_out: bool) -> FontBook:
    """The training families, or the held-out one."""
    table = json.loads((data / "fonts.json").read_text())
    chosen = tuple((row["family"], tuple(row["faces"])) for row in table if row["held_out"] == held_out)
    return FontBook(data / "fonts", chosen)


@dataclass(frozen=True)
class Drawing:
    """One picture of glyphs: mask uint8 [H, W], the text, aux uint8 [tokens, 4], the family's name."""

    mask: np.ndarray
    text: str
    aux: np.ndarray
    family: str


def blank(height: int, width: int) -> Drawing:
    """A picture without any glyph; its text is empty."""
    tokens = height * width // 784
    return Drawing(np.zeros((height, width), np.uint8), "", np.zeros((tokens, 4), np.uint8), "")


def draw_page(
    rng: Random,
    fonts: FontBook,
    source: TextSource,
    shape: tuple[int, int],
    *,
    kind: str | None = None,
    lines: int = 1,
    max_chars: int = 24,
) -> Drawing:
    """Draws `lines` lines, one below the other, at a random place of a picture of `shape` (H, W)."""
    height, width = shape
    scale = rng.uniform(0.75, 1.8) if rng.random() < 0.2 else 1.0
    canvas_h, canvas_w = round(height * scale), round(width * scale)
    family, face = fonts.draw(rng)
    size = _size(rng, height, lines, width)
    room = max(1, int(width / (0.42 * size)))
    texts = [source.line(rng, min(room, max_chars), kind) for _ in range(lines)]
    while True:
        font = fonts.font(face, max(8, round(size * scale)))
        boxes = [font.getbbox(text) for text in texts]
        step = int(font.size * 1.25)
        total = step * (lines - 1) + boxes[-1][3]
        widest = max(box[2] - min(0, box[0]) for box in boxes)
        if widest <= canvas_w - 2 and total - boxes[0][1] <= canvas_h - 1:
            break
        size -= 1
        if size < MIN_SIZE:
            size = MIN_SIZE + rng.randint(0, 3)
            texts = [source.line(rng, max(1, min(room, max_chars) * 2 // 3), kind) for _ in range(lines)]
            room = max(2, room - 1)
            family, face = fonts.draw(rng)
    image, centres = _paint(rng, font, str(fonts.root / face), texts, boxes, (canvas_h, canvas_w), step)
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    ratio_x, ratio_y = width / canvas_w, height / canvas_h
    aux = _columns([(x * ratio_x, y * ratio_y, c) for x, y, c in centres], height, width)
    return Drawing(np.asarray(image), "\n".join(texts), aux, family)


def _size(rng: Random, height: int, lines: int, width: int) -> int:
    top = min(MAX_SIZE, int(height / lines * 0.92), max(MIN_SIZE + 3, width // 3))
    if height <= 28:
        top = 24
    low = min(MIN_SIZE, top)
    return rng.randint(low, top) if rng.random() < 0.7 else rng.randint(low, max(low, min(top, 28)))


def _paint(
    rng: Random,
    font: ImageFont.FreeTypeFont,
    path: str,
    texts: list[str],
    boxes: list[tuple[float, float, float, float]],
    canvas: tuple[int, int],
    step: int,
) -> tuple[Image.Image, list[tuple[float, float, str]]]:
    height, width = canvas
    image = Image.new("L", (width, height), 0)
    draw = ImageDraw.Draw(image)
    bottom = int(step * (len(texts) - 1) + boxes[-1][3])
    top = rng.randint(-int(boxes[0][1]), max(-int(boxes[0][1]), height - bottom))
    aligned = rng.random() < 0.5
    spare = width - max(int(b[2]) for b in boxes)
    left = rng.randint(0, max(0, spare))
    centres: list[tuple[float, float, str]] = []
    for i, (text, box) in enumerate(zip(texts, boxes, strict=True)):
        x = left if aligned else rng.randint(0, max(0, width - int(box[2])))
        x += max(0, -int(box[0]))
        y = top + i * step
        draw.text((x, y), text, font=font, fill=255)
        pen, middle = float(x), y + (box[1] + box[3]) / 2
        for char in text:
            advance = _advance(path, int(font.size), char)
            centres.append((pen + advance / 2, middle, char))
            pen += advance
    return image, centres


def _columns(centres: list[tuple[float, float, str]], height: int, width: int) -> np.ndarray:
    across = width // 28
    aux = np.zeros((height * width // 784, 4), np.uint8)
    for x, y, char in centres:
        row, col = min(height // 28 - 1, max(0, int(y) // 28)), min(width - 1, max(0, int(x)))
        aux[row * across + col // 28, col % 28 // COLUMN] = CHARS.get(char, NONE)
    return aux
