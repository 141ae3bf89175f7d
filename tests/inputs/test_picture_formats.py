"""Each accepted picture format, by every route, in every mode that it holds."""

from __future__ import annotations

import base64
import io
import struct
from pathlib import Path

import numpy as np
import pytest
from inputs.media_files import encoded, picture
from PIL import Image

from mmcore.config import MediaPolicy
from mmcore.errors import MediaFormatError
from mmcore.inputs.container import read_picture_header
from mmcore.inputs.fetch import MediaFetcher
from mmcore.inputs.media import decode, open_media
from mmcore.inputs.picture import decode_picture, picture_info, pil_picture
from mmcore.request import SourceSpec

BASE = picture(20, 12)
RGBA = Image.fromarray(np.random.default_rng(1).integers(0, 256, (12, 20, 4), dtype=np.uint8))
SIXTEEN = Image.fromarray(np.random.default_rng(2).integers(0, 65536, (12, 20), dtype=np.uint16))
MODES = {
    "rgb": BASE,
    "alpha": RGBA,
    "palette": BASE.quantize(16),
    "grey": BASE.convert("L"),
    "bilevel": BASE.convert("1"),
    "cmyk": BASE.convert("CMYK"),
    "16 bit": SIXTEEN,
    "grey and alpha": RGBA.convert("LA"),
}
TIFFS = [
    f"TIFF {c}"
    for c in ("raw", "tiff_lzw", "tiff_deflate", "tiff_adobe_deflate", "packbits", "jpeg", "group4")
]
KINDS = ["JPEG", "PNG", "WEBP", "GIF", "BMP", *TIFFS]
CANNOT = {
    "alpha": ["JPEG", "TIFF group4"],
    "palette": ["JPEG", "TIFF jpeg", "TIFF group4"],
    "grey": ["TIFF group4"],
    "rgb": ["TIFF group4"],
    "bilevel": ["TIFF jpeg"],
    "cmyk": ["PNG", "GIF", "BMP", "TIFF group4"],
    "16 bit": ["JPEG", "BMP", "TIFF jpeg", "TIFF group4"],
    "grey and alpha": ["JPEG", "BMP", "TIFF group4"],
}
"""What a format does not hold."""
FILES = [(mode, kind) for mode in MODES for kind in KINDS if kind not in CANNOT[mode]]


def file_of(mode: str, kind: str) -> bytes:
    name, _, compression = kind.partition(" ")
    options = {"compression": compression} if compression else {}
    return encoded(MODES[mode], name, **({"lossless": True} if name == "WEBP" else options))


@pytest.mark.parametrize(("mode", "kind"), FILES)
def test_every_format_and_mode_by_every_route(mode: str, kind: str, tmp_path: Path) -> None:
    data = file_of(mode, kind)
    path = tmp_path / "named.wrongly"
    path.write_bytes(data)
    url = "data:application/octet-stream;base64," + base64.b64encode(data).decode()
    fetcher = MediaFetcher(MediaPolicy())
    expected = pil_picture(Image.open(io.BytesIO(data))).data
    held = io.BytesIO(data)
    held.seek(7)
    with path.open("rb") as file:
        for value in (data, memoryview(data), path, str(path), path.as_uri(), url, held, file):
            opened = open_media("image", value, fetcher)
            assert np.array_equal(decode(opened.source, "image", SourceSpec()).data, expected)
            assert (opened.info.height, opened.info.width) == expected.shape[:2] == (12, 20)


@pytest.mark.parametrize("mode", MODES)
def test_formats_without_loss_agree(mode: str) -> None:
    """With Pillow's own conversion of the picture, alpha over white, too."""
    expected = pil_picture(MODES[mode]).data
    for kind in ("PNG", "BMP", "TIFF raw", "TIFF tiff_lzw", "TIFF packbits"):
        if kind not in CANNOT[mode] and (mode, kind) != ("alpha", "BMP"):
            assert np.array_equal(decode_picture(file_of(mode, kind)).data, expected), kind


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "TIFF", "PNG"])
def test_of_several_pictures_the_first_counts(kind: str) -> None:
    others = [picture(20, 12, seed) for seed in (3, 4)]
    options = {"lossless": True} if kind == "WEBP" else {}
    several = encoded(BASE, kind, save_all=True, append_images=others, **options)
    one = encoded(BASE, kind, **options)
    assert np.array_equal(decode_picture(several).data, decode_picture(one).data)
    if kind in ("GIF", "WEBP"):
        assert len(read_picture_header(several).cleaned(several)) < len(one) + 200


def test_a_gif_frame_that_reaches_over_its_screen_counts_whole() -> None:
    """Pillow widens the picture then; a budget on the screen alone would be passed by."""
    data = bytearray(encoded(BASE, "GIF"))
    data[6:10] = struct.pack("<HH", 1, 1)
    assert picture_info(bytes(data)).width == 20
    assert decode_picture(bytes(data)).data.shape == (12, 20, 3)


@pytest.mark.parametrize(
    ("tag", "value", "message"),
    [
        (259, 50_000, "compression 50000 is not accepted"),
        (259, 6, "compression 6 is not accepted"),
        (277, 200, "200 samples a pixel"),
        (256, 0, "no picture size"),
    ],
)
def test_tiff_tags_that_are_refused(tag: int, value: int, message: str) -> None:
    data = bytearray(file_of("rgb", "TIFF raw"))
    place = data.index(struct.pack("<HHI", tag, 3 if tag in (259, 277) else 4, 1)) + 8
    data[place : place + 4] = struct.pack("<I", value)
    with pytest.raises(MediaFormatError, match=message):
        decode_picture(bytes(data))


def test_a_bmp_from_the_top_down_and_one_that_promises_too_much() -> None:
    data = bytearray(encoded(BASE, "BMP"))
    upright = decode_picture(bytes(data)).data
    data[22:26] = struct.pack("<i", -12)
    assert np.array_equal(decode_picture(bytes(data)).data, upright[::-1])
    data[22:26] = struct.pack("<i", 13)
    with pytest.raises(MediaFormatError, match="promises 780 bytes of pixels"):
        picture_info(bytes(data))
