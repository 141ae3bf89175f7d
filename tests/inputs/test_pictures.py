"""Pictures in every form come out as the same uint8 RGB."""

from __future__ import annotations

import io
import struct
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.media_files import encoded, picture, png_header_only
from PIL import Image, ImageOps

from mmcore.errors import MediaFormatError
from mmcore.inputs.container import read_picture_header
from mmcore.inputs.picture import array_picture, decode_picture, picture_info, pil_picture
from mmcore.inputs.picture_header import exif_orientation

BASE = picture(20, 12)


def exif(orientation: int, order: str = "<", kind: int = 3) -> bytes:
    mark = b"II*\0" if order == "<" else b"MM\0*"
    entry = struct.pack(order + "HHIHH", 0x0112, kind, 1, orientation, 0)
    return b"Exif\0\0" + mark + struct.pack(order + "IH", 8, 1) + entry + struct.pack(order + "I", 0)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_applied_by_every_route(kind: str, orientation: int) -> None:
    body = exif(orientation)
    if kind == "TIFF":  # its own directory says it
        data = encoded(BASE, kind, tiffinfo={0x0112: orientation})
    else:
        data = encoded(BASE, kind, exif=body)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    by_file = decode_picture(data).data
    by_pil = pil_picture(Image.open(io.BytesIO(data))).data
    info = picture_info(data)
    assert np.array_equal(by_file, expected)
    assert np.array_equal(by_pil, expected)
    assert (info.height, info.width) == expected.shape[:2]


@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_of_either_byte_order(order: str) -> None:
    assert exif_orientation(exif(6, order)) == 6
    assert exif_orientation(exif(6, order).removeprefix(b"Exif\0\0")) == 6


@pytest.mark.parametrize(
    "data", [b"", b"Exif\0\0II*\0", exif(9), exif(0), exif(6, kind=4), exif(6)[:-9], b"II"]
)
def test_exif_that_makes_no_sense_turns_nothing(data: bytes) -> None:
    assert exif_orientation(data) == 1


@given(noise=st.binary(max_size=64))
def test_broken_exif_never_stops_a_picture_or_warns(noise: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = encoded(BASE, "JPEG")
        body = b"Exif\0\0II*\0\x08\0\0\0" + noise
        data = data[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(body)) + body + data[2:]
        assert decode_picture(data).data.size == 20 * 12 * 3


def test_alpha_lies_over_white() -> None:
    image = Image.new("RGBA", (2, 1), (10, 20, 30, 0))
    image.putpixel((1, 0), (10, 20, 30, 255))
    for media in (decode_picture(encoded(image)), pil_picture(image), array_picture(np.asarray(image))):
        assert media.data.tolist() == [[[255, 255, 255], [10, 20, 30]]]


def test_half_transparent_is_half_white() -> None:
    image = Image.new("LA", (1, 1), (0, 128))
    assert decode_picture(encoded(image)).data.tolist() == [[[127, 127, 127]]]


@pytest.mark.parametrize("transparency", [0, b"\0\xff"])
def test_a_palette_with_a_transparent_colour(transparency: Any) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([200, 0, 0, 0, 100, 0])
    image.putpixel((1, 0), 1)
    data = encoded(image, transparency=transparency)
    assert decode_picture(data).data.tolist() == [[[255, 255, 255], [0, 100, 0]]]
    assert pil_picture(Image.open(io.BytesIO(data))).data.tolist() == [[[255, 255, 255], [0, 100, 0]]]


@pytest.mark.parametrize(
    "mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "YCbCr", "HSV", "LAB", "I", "F", "RGBX"]
)
def test_every_mode_of_pil_becomes_rgb(mode: str) -> None:
    image = BASE.convert("L").convert(mode) if mode in ("I", "F", "LA", "1", "P") else _as(mode)
    media = pil_picture(image)
    assert media.data.shape == (12, 20, 3)
    assert media.data.dtype == np.uint8
    assert not media.data.flags.writeable  # items, UUIDs and encoder inputs share it


def _as(mode: str) -> Image.Image:
    return Image.new("LAB", (20, 12)) if mode == "LAB" else BASE.convert(mode)


def test_cmyk_jpeg() -> None:
    image = Image.new("CMYK", (16, 16), (255, 0, 0, 0))
    assert decode_picture(encoded(image, "JPEG")).data[8, 8].tolist() == pytest.approx([0, 255, 255], abs=3)


def test_sixteen_bits_keep_their_upper_eight() -> None:
    levels = np.arange(0, 65536, 4096, dtype=np.uint16).reshape(4, 4)
    expected = (levels >> 8).astype(np.uint8)
    image = Image.fromarray(levels)
    for media in (decode_picture(encoded(image)), pil_picture(image), array_picture(levels)):
        assert np.array_equal(media.data, np.repeat(expected[..., None], 3, axis=2))


@pytest.mark.parametrize("shape", [(12, 20), (12, 20, 1), (12, 20, 3), (12, 20, 4)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.float16])
def test_arrays_of_every_shape_and_type(shape: tuple[int, ...], dtype: Any) -> None:
    levels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    given_array = levels if dtype == np.uint8 else (levels / 255.0).astype(dtype)
    media, expected = array_picture(given_array), array_picture(levels)
    assert media.data.shape == (12, 20, 3)
    assert np.array_equal(media.data, expected.data)
    if shape[-1] == 3:
        assert np.array_equal(media.data, levels)


def test_the_same_picture_by_every_route_is_the_same(tmp_path: Path) -> None:
    data = encoded(BASE)
    for media in (decode_picture(data), pil_picture(BASE), array_picture(np.asarray(BASE))):
        assert np.array_equal(media.data, np.asarray(BASE))


def test_a_picture_is_a_snapshot() -> None:
    pixels = np.zeros((4, 4, 3), np.uint8)
    image = Image.fromarray(pixels)
    by_array, by_pil = array_picture(pixels), pil_picture(image)
    pixels[:] = 9
    image.paste((9, 9, 9), (0, 0, 4, 4))
    assert by_array.data.max() == 0
    assert by_pil.data.max() == 0


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_one_lazily_opened_image_in_many_threads(kind: str) -> None:
    """A list of prompts about one picture is prepared by several threads at once."""
    data = encoded(picture(400, 300), kind)
    expected = decode_picture(data).data
    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            shared, start = Image.open(io.BytesIO(data)), threading.Barrier(8)
            jobs = [pool.submit(snapshot, shared, start) for _ in range(8)]
            assert all(np.array_equal(job.result(), expected) for job in jobs)


def snapshot(image: Image.Image, start: threading.Barrier) -> np.ndarray:
    start.wait()
    return pil_picture(image).data


def test_what_does_not_decide_pixels_is_left_out_of_the_file() -> None:
    notes = Image.new("RGB", (8, 8))
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    info.add_text("comment", "x" * 10_000, zip=True)
    data = encoded(notes, pnginfo=info, icc_profile=b"p" * 3_000)
    assert len(read_picture_header(data).cleaned(data)) < 200
    photo = encoded(BASE, "JPEG", exif=exif(3), comment=b"hi")
    assert b"Exif" not in read_picture_header(photo).cleaned(photo)


def test_a_large_picture_warns_nobody() -> None:
    """Pillow's own warning about large pictures would be somebody else's business."""
    with pytest.raises(MediaFormatError, match="cannot be decoded"):
        decode_picture(png_header_only(12_000, 9_000))
    assert picture_info(png_header_only(30_000, 30_000)).width == 30_000


def test_progressive_grey_and_interlaced_files() -> None:
    assert np.array_equal(decode_picture(encoded(BASE, "JPEG", progressive=True)).data.shape, (12, 20, 3))
    grey = decode_picture(encoded(BASE.convert("L"), "JPEG")).data
    assert np.array_equal(grey[..., 0], grey[..., 2])


@given(
    cut=st.integers(0, 400),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_damaged_files_are_typed_errors_or_pictures(
    kind: str, cut: int, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(encoded(BASE, kind))
    for place, value in flips:
        data[place % len(data)] = value
    message = complaint(bytes(data[: len(data) - cut]))
    assert "0x" not in message
    assert "BytesIO" not in message


def complaint(data: bytes) -> str:
    """What is wrong with a file; empty where it is a picture (or claims to be too large to try)."""
    try:
        header = read_picture_header(data)
        if header.width * header.height < 1 << 20:
            decode_picture(data)
    except MediaFormatError as error:
        return str(error)
    return ""
