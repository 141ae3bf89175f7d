"""Bad input over every route is a typed error of that item, named, and never a warning or a leak."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inputs.media_files import encoded, jpeg_of_size, picture, png_header_only, raw_wav, tone, wav
from inputs.toy_family import ToyInputs, toy_pipeline
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from mmcore.config import MediaPolicy
from mmcore.errors import MediaError, MediaFileError, MediaFormatError, MediaLimitError, MMCoreError
from mmcore.inputs.pipeline import InputPipeline

GOOD = encoded(picture(28, 28))
TEXT = b"just a text, whatever its name says\n"
NAN_WAV = raw_wav(np.array([0, np.nan], "<f4").tobytes(), code=3, bits=32)
LIMITED = ToyInputs(max_side=5_000, max_aspect=100.0)

IMAGE_FILES: dict[str, tuple[bytes, type[MMCoreError], str]] = {
    "empty": (b"", MediaFormatError, "empty .0 bytes"),
    "text": (TEXT, MediaFormatError, "no known format; accepted picture formats: JPEG, PNG"),
    "gif": (b"GIF89a" + b"\0" * 30, MediaFormatError, "GIF has no picture"),
    "webp": (b"RIFF\x1a\0\0\0WEBPVP8 ", MediaFormatError, "WebP has no picture size"),
    "sound": (wav(np.zeros(9)), MediaFormatError, "is WAV; accepted picture formats: JPEG, PNG, WebP"),
    "truncated jpeg": (
        encoded(picture(200, 100), "JPEG")[:2_000],
        MediaFormatError,
        "JPEG cannot be d",
    ),
    "truncated png": (encoded(picture(200, 100))[:2_000], MediaFormatError, "PNG cannot be d"),
    "header of a jpeg": (encoded(picture(200, 100), "JPEG")[:30], MediaFormatError, "truncated"),
    "header of a png": (GOOD[:20], MediaFormatError, "truncated"),
    "1x1": (encoded(picture(1, 1)), MediaLimitError, "1x1 pixels: .*min_side 2"),
    "1x10000": (encoded(picture(10_000, 1)), MediaLimitError, "10000x1 pixels: .*min_side 2"),
    "3x900": (encoded(picture(3, 900)), MediaLimitError, "3x900 pixels: .*max_aspect 100"),
    "too large a side": (png_header_only(6_000, 60), MediaLimitError, "6000x60 pixels: .*max_side 5000"),
    "30000x30000 png": (
        png_header_only(30_000, 30_000),
        MediaLimitError,
        "30000x30000 pixels is over max_p",
    ),
    "30000x30000 jpeg": (
        jpeg_of_size(30_000, 30_000),
        MediaLimitError,
        "30000x30000 pixels is over max_p",
    ),
    "0x0": (png_header_only(0, 0), MediaFormatError, "picture size"),
}
AUDIO_FILES: dict[str, tuple[bytes, type[MMCoreError], str]] = {
    "empty": (b"", MediaFormatError, "empty .0 bytes"),
    "text": (TEXT, MediaFormatError, "no known format; accepted sound formats: WAV"),
    "mp3": (b"ID3\3\0", MediaFormatError, "MP3 ends inside its header: it is truncated"),
    "picture": (GOOD, MediaFormatError, "is PNG; accepted sound formats: WAV, FLAC, Ogg, MP3"),
    "no sound": (wav(np.zeros(0)), MediaLimitError, "has 0 samples, under min_samples 1"),
    "forged rate": (raw_wav(b"\0" * 64, rate=7), MediaFormatError, "sample rate of 7 Hz"),
    "forged length": (wav(np.zeros(999))[:1_000], MediaFormatError, "promises 1998 bytes"),
    "nan": (NAN_WAV, MediaFormatError, "sample 1 of the sound is not a finite number"),
    "too long": (wav(np.zeros(31 * 8_000), rate=8_000), MediaLimitError, "31.00 s, over max_seconds 30"),
}


def by_bytes(data: bytes, folder: Path) -> Any:
    return data


def by_path(data: bytes, folder: Path) -> Any:
    file = folder / "picture.png"
    file.write_bytes(data)
    return file


def by_string(data: bytes, folder: Path) -> Any:
    return str(by_path(data, folder))


def by_data_url(data: bytes, folder: Path) -> Any:
    return "data:image/png;base64," + base64.b64encode(data).decode()


ROUTES: list[Callable[[bytes, Path], Any]] = [by_bytes, by_path, by_string, by_data_url]


@pytest.fixture(scope="module")
def pipeline() -> InputPipeline:
    return toy_pipeline(adapter={"inputs": LIMITED})


def run(pipeline: InputPipeline, modality: str, media: list[Any]) -> None:
    """All the way to the arrays."""
    request = pipeline.prepare({"prompt": "x", "multi_modal_data": {modality: media}}, request_id="r")
    for item in request.items:
        pipeline.preprocess(item)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("case", IMAGE_FILES)
def test_bad_picture_files(pipeline: InputPipeline, tmp_path: Path, route: Any, case: str) -> None:
    data, error, message = IMAGE_FILES[case]
    with pytest.raises(error, match=message) as caught:
        run(pipeline, "image", [GOOD, route(data, tmp_path)])
    check_text(caught.value, tmp_path)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("case", AUDIO_FILES)
def test_bad_sound_files(pipeline: InputPipeline, tmp_path: Path, route: Any, case: str) -> None:
    data, error, message = AUDIO_FILES[case]
    with pytest.raises(error, match=message) as caught:
        run(pipeline, "audio", [route(data, tmp_path)])
    check_text(caught.value, tmp_path)


def check_text(error: MMCoreError, folder: Path) -> None:
    """No heap pointer, no path, no class of somebody else's."""
    text = str(error)
    assert not re.search(r"\b0x[0-9a-f]{4}", text)
    assert str(folder) not in text
    assert "BytesIO" not in text
    assert isinstance(error, MediaError)
    assert error.http_status == 400


@pytest.mark.parametrize("case", [c for c, (_, _, m) in IMAGE_FILES.items() if "cannot be d" not in m])
def test_errors_name_the_item(pipeline: InputPipeline, case: str) -> None:
    with pytest.raises(MMCoreError, match=r"^image 2 of 3: "):
        pipeline.prepare(
            {"prompt": "x", "multi_modal_data": {"image": [GOOD, IMAGE_FILES[case][0], GOOD]}}, request_id="r"
        )


def truncated_pil() -> Image.Image:
    return Image.open(io.BytesIO(encoded(picture(200, 100), "JPEG")[:2_000]))


def claiming_pil() -> Image.Image:
    return JpegImageFile(io.BytesIO(jpeg_of_size(12_000, 12_000)))


def closed_pil() -> Image.Image:
    image = Image.open(io.BytesIO(GOOD))
    image.close()
    return image


MEMORY: dict[str, tuple[str, Callable[[], Any], type[MMCoreError], str]] = {
    "a truncated PIL image": ("image", truncated_pil, MediaFormatError, "PIL image cannot be read"),
    "a closed PIL image": ("image", closed_pil, MediaFormatError, "PIL image cannot be read"),
    "a tiny PIL image": ("image", lambda: picture(1, 1), MediaLimitError, "1x1 pixels"),
    "a thin PIL image": ("image", lambda: picture(10_000, 2), MediaLimitError, "max_side 5000"),
    "a PIL image that claims a lot": ("image", claiming_pil, MediaLimitError, "max_pixels"),
    "an array that claims a lot": (
        "image", lambda: np.broadcast_to(np.uint8(0), (30_000, 30_000, 3)), MediaLimitError, "max_pixels",
    ),
    "a tiny array": ("image", lambda: np.zeros((1, 1, 3), np.uint8), MediaLimitError, "1x1 pixels"),
    "an empty array": ("image", lambda: np.zeros((0, 4, 3), np.uint8), MediaFormatError, "no picture"),
    "a line": ("image", lambda: np.zeros(12, np.uint8), MediaFormatError, "no picture"),
    "channels first": ("image", lambda: np.zeros((3, 28, 28), np.uint8), MediaFormatError, "no picture"),
    "floats past one": ("image", lambda: np.full((28, 28, 3), 2.0), MediaFormatError, r"outside \[0, 1\]"),
    "floats of no number": ("image", lambda: np.full((28, 28, 3), np.nan), MediaFormatError, "NaN"),
    "signed integers": ("image", lambda: np.zeros((28, 28, 3), np.int64), MediaFormatError, "int64"),
    "objects": ("image", lambda: np.full((28, 28, 3), None), MediaFormatError, "object"),
    "a number": ("image", lambda: 3, MediaFormatError, "a int is no image; give a PIL image"),
    "sound as a picture": ("image", lambda: (np.zeros(9), 8_000), MediaFormatError, "a tuple is no image"),
    "a picture as sound": ("audio", lambda: picture(9, 9), MediaFormatError, "no audio; give a path"),
    "an array without a rate": ("audio", lambda: np.zeros(9), MediaFormatError, r"give .*\(samples, rate\)"),
    "no samples": ("audio", lambda: (np.zeros(0), 16_000), MediaLimitError, "has 0 samples"),
    "a forged rate": ("audio", lambda: (np.zeros(9), 10**9), MediaFormatError, "not plausible"),
    "samples of no number": ("audio", lambda: ([0.0, np.nan], 16_000), MediaFormatError, "sample 1"),
    "too long": ("audio", lambda: (np.zeros(31 * 8_000), 8_000), MediaLimitError, "max_seconds 30"),
}  # fmt: skip


@pytest.mark.parametrize("case", MEMORY)
def test_bad_media_in_memory(pipeline: InputPipeline, case: str, tmp_path: Path) -> None:
    modality, make, error, message = MEMORY[case]
    with pytest.raises(error, match=message) as caught:
        run(pipeline, modality, [make()])
    assert str(caught.value).startswith(f"{modality}: ")
    check_text(caught.value, tmp_path)


def test_budgets_of_the_policy() -> None:
    small = toy_pipeline(policy=MediaPolicy(max_bytes=5_000, max_pixels=1_000, max_samples=1_000))
    for media, message in (
        (GOOD + b"\0" * 5_000, "max_bytes 5000"),
        (encoded(Image.new("L", (40, 40))), "max_pixels 1000"),
        (np.zeros((40, 40), np.uint8), "max_pixels 1000"),
    ):
        with pytest.raises(MediaLimitError, match=f"image: .*{message}"):
            run(small, "image", [media])
    for sound in (wav(np.zeros((600, 2))), (np.zeros((600, 2)), 8_000)):
        with pytest.raises(MediaLimitError, match="audio: 1200 samples x channels are over max_samples 1000"):
            run(small, "audio", [sound])


def test_a_missing_file_is_told_without_more_than_the_caller_gave(pipeline: InputPipeline) -> None:
    with pytest.raises(MediaFileError, match=r"^image: there is no such file: 'nothing/here\.png'$"):
        run(pipeline, "image", ["nothing/here.png"])


def test_good_sound_of_every_kind_comes_through(pipeline: InputPipeline) -> None:
    """8 kHz, stereo: what is unusual and fine stays fine."""
    samples = tone(440, 8_000)
    stereo = (np.stack([samples, samples], axis=1) * 30_000).astype(np.int16)
    for media in (wav(stereo, rate=8_000), (stereo, 8_000), (samples, 8_000)):
        request = pipeline.prepare({"prompt": "x", "multi_modal_data": {"audio": media}}, request_id="r")
        arrays = pipeline.preprocess(request.items[0]).arrays
        scale = np.abs(arrays["samples"]).max()
        assert np.abs(arrays["samples"] / scale - tone(440, 16_000))[400:-400].max() < 2e-2
        assert request.items[0].plan.rows == 10


def test_a_rotated_picture_is_measured_as_one_sees_it(pipeline: InputPipeline) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(picture(84, 28), "JPEG", exif=exif)
    for media in (data, Image.open(io.BytesIO(data))):
        (item,) = pipeline.prepare(
            {"prompt": "x", "multi_modal_data": {"image": media}}, request_id="r"
        ).items
        assert item.plan.geometry == (3, 1)
        assert pipeline.preprocess(item).arrays["pixels"].shape == (84, 28, 3)
