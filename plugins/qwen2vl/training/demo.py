"""Draws the demonstration pictures; `text.DEMO_TEXTS` keeps their lines out of training.

python demo.py --fonts DATA/fonts --out ../mmcore_qwen2vl/demo
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Sign:
    """One line on a background that runs from one colour to another, left to right."""

    name: str
    text: str
    size: tuple[int, int]
    face: str
    pixels: int
    ink: Colour
    left: Colour
    right: Colour


SIGNS = (
    Sign(
        "sign.png",
        "harbour lights",
        (448, 56),
        "GentiumPlus-BoldItalic.ttf",
        42,
        (255, 236, 200),
        (12, 44, 84),
        (30, 88, 120),
    ),
    Sign(
        "station_left.png",
        "north gate 12",
        (224, 56),
        "Cabin-Bold.otf",
        30,
        (255, 255, 255),
        (150, 36, 40),
        (170, 52, 44),
    ),
    Sign(
        "station_right.png",
        "two rivers",
        (224, 56),
        "Cabin-Bold.otf",
        30,
        (255, 255, 255),
        (24, 96, 72),
        (36, 116, 84),
    ),
    Sign(
        "bread.jpg",
        "fresh bread daily",
        (336, 84),
        "Caladea-Bold.ttf",
        38,
        (92, 52, 24),
        (250, 236, 208),
        (244, 216, 172),
    ),
)


def draw_sign(sign: Sign, fonts: Path) -> Image.Image:
    """The line in the middle of its background."""
    width, height = sign.size
    share = np.linspace(0, 1, width)[None, :, None]
    field = np.array(sign.left) * (1 - share) + np.array(sign.right) * share
    image = Image.fromarray(np.broadcast_to(field, (height, width, 3)).round().astype(np.uint8))
    font = ImageFont.truetype(fonts / sign.face, sign.pixels, layout_engine=ImageFont.Layout.BASIC)
    left, top, right, bottom = font.getbbox(sign.text)
    place = ((width - right - left) // 2, (height - bottom - top) // 2)
    ImageDraw.Draw(image).text(place, sign.text, font=font, fill=sign.ink)
    return image


def draw_shape() -> Image.Image:
    """A teal circle on a light ground, 64 x 64, as the pictures of easy-vqa are."""
    image = Image.new("RGB", (64, 64), (250, 244, 232))
    ImageDraw.Draw(image).ellipse((16, 20, 46, 50), fill=(0, 128, 128))
    return image


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fonts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for sign in SIGNS:
        draw_sign(sign, args.fonts).save(args.out / sign.name, quality=88)
    draw_shape().save(args.out / "teal_circle.png")


if __name__ == "__main__":
    main()
