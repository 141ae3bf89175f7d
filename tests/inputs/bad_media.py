"""Media that no family takes, with the error of each and its words; and the ways to hand a file in."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from inputs.media_files import encoded, jpeg_of_size, picture, png_header_only, raw_wav, tone, wav
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from mmcore.errors import MediaFileError, MediaFormatError, MediaLimitError, MMCoreError

Route = Callable[[bytes, Path], Any]
Error = type[MMCoreError]
FileCase = tuple[bytes, Error, str]
MemoryCase = tuple[Callable[[], Any], Error, str]

GOOD_PICTURE = encoded(picture(28, 28))
GOOD_SOUND = wav((tone(440, 16_000, 0.3) * 9_000).astype(np.int16))
TEXT = b"just a text, whatever its name says\n"
UNDECODABLE = "cannot be decoded: it is truncated"


def floats(*values: float, bits: int = 32) -> bytes:
    return raw_wav(np.array(values, f"<f{bits // 8}").tobytes(), code=3, bits=bits)


PICTURE_FILES: dict[str, FileCase] = {
    "empty": (b"", MediaFormatError, r"the file is empty \(0 bytes\)"),
    "text": (TEXT, MediaFormatError, "no known format; accepted picture formats: JPEG, PNG"),
    "sound": (GOOD_SOUND, MediaFormatError, "is WAV; accepted picture formats: JPEG, PNG, WebP"),
    "truncated jpeg": (encoded(picture(200, 100), "JPEG")[:2_000], MediaFormatError, f"JPEG {UNDECODABLE}"),
    "truncated png": (encoded(picture(200, 100))[:2_000], MediaFormatError, f"PNG {UNDECODABLE}"),
    "header of a jpeg": (encoded(picture(200, 100), "JPEG")[:30], MediaFormatError, "inside its header"),
    "header of a png": (GOOD_PICTURE[:20], MediaFormatError, "inside its header"),
    "header of a gif": (b"GIF89a" + b"\0" * 30, MediaFormatError, "GIF has no picture"),
    "header of a webp": (b"RIFF\x1a\0\0\0WEBPVP8 ", MediaFormatError, "WebP has no picture size"),
    "30000x30000": (png_header_only(30_000, 30_000), MediaLimitError, "30000x30000 .*max_pixels"),
    "30000x30000 jpeg": (jpeg_of_size(30_000, 30_000), MediaLimitError, "30000x30000 .*max_pixels"),
    "0x0": (png_header_only(0, 0), MediaFormatError, "picture size"),
}
SOUND_FILES: dict[str, FileCase] = {
    "empty": (b"", MediaFormatError, r"the file is empty \(0 bytes\)"),
    "text": (TEXT, MediaFormatError, "no known format; accepted sound formats: WAV"),
    "picture": (GOOD_PICTURE, MediaFormatError, "is PNG; accepted sound formats: WAV, FLAC, Ogg, MP3"),
    "truncated": (GOOD_SOUND[:1_000], MediaFormatError, "promises 9600 bytes .* it is truncated"),
    "half a header": (GOOD_SOUND[:30], MediaFormatError, "truncated|cut short"),
    "header of an mp3": (b"ID3\3\0", MediaFormatError, "MP3 ends inside its header"),
    "no format": (b"RIFF\x0c\0\0\0WAVEdata\0\0\0\0", MediaFormatError, "before its format"),
    "no samples": (wav(np.zeros(0)), MediaLimitError, "has 0 samples, under min_samples 1"),
    "0 channels": (raw_wav(b"\0" * 64, channels=0), MediaFormatError, "0 channels; accepted: 1 to"),
    "7 bits": (raw_wav(b"\0" * 64, bits=7), MediaFormatError, "7 bits; accepted"),
    "mp3 in a wav": (raw_wav(b"\0" * 64, code=85), MediaFormatError, "kind 85 with 16 bits; accepted"),
    "rate forged low": (raw_wav(b"\0" * 64, rate=7), MediaFormatError, "rate of 7 Hz is not plausible"),
    "rate forged high": (raw_wav(b"\0" * 64, rate=2**31), MediaFormatError, "Hz is not plausible"),
    "rate forged to zero": (raw_wav(b"\0" * 64, rate=0), MediaFormatError, " 0 Hz is not plausible"),
    "NaN": (floats(0, np.nan), MediaFormatError, "sample 1 of the sound is not a finite number"),
    "infinite": (floats(-np.inf, 0), MediaFormatError, "sample 0 of the sound is not a finite"),
    "past float32": (floats(0, 1e300, bits=64), MediaFormatError, "sample 1 of the sound"),
}


def closed() -> Image.Image:
    image = Image.open(io.BytesIO(GOOD_PICTURE))
    image.close()
    return image


PICTURES_IN_MEMORY: dict[str, MemoryCase] = {
    "PIL, truncated": (
        lambda: Image.open(io.BytesIO(PICTURE_FILES["truncated jpeg"][0])),
        MediaFormatError,
        "PIL image cannot be read",
    ),
    "PIL, closed": (closed, MediaFormatError, "PIL image cannot be read"),
    "PIL, 12000x12000": (
        lambda: JpegImageFile(io.BytesIO(jpeg_of_size(12_000, 12_000))),
        MediaLimitError,
        "12000x12000 .*max_pixels",
    ),
    "array, 30000x30000": (
        lambda: np.broadcast_to(np.uint8(0), (30_000, 30_000, 3)),
        MediaLimitError,
        "30000x30000 .*max_pixels",
    ),
    "array, empty": (lambda: np.zeros((0, 4, 3), np.uint8), MediaFormatError, "is no picture; give"),
    "array, a line": (lambda: np.zeros(12, np.uint8), MediaFormatError, "is no picture; give"),
    "array, channels first": (lambda: np.zeros((3, 28, 28), np.uint8), MediaFormatError, "is no picture"),
    "array, past one": (lambda: np.full((28, 28, 3), 2.0), MediaFormatError, r"outside \[0, 1\]"),
    "array, NaN": (lambda: np.full((28, 28, 3), np.nan), MediaFormatError, "NaN; scale it"),
    "array, int64": (lambda: np.zeros((28, 28, 3), np.int64), MediaFormatError, "int64 is no picture"),
    "array, objects": (lambda: np.full((28, 28, 3), None), MediaFormatError, "object is no picture"),
    "a number": (lambda: 3, MediaFormatError, "a int is no image; give a PIL image"),
    "a sound": (lambda: (np.zeros(9), 8_000), MediaFormatError, "a tuple is no image; give"),
    "text of a file": (lambda: io.StringIO("x"), MediaFormatError, "open it in binary mode"),
    "no file": (lambda: "nowhere/at/all.png", MediaFileError, "there is no such file"),
}
SOUNDS_IN_MEMORY: dict[str, MemoryCase] = {
    "rate forged": (lambda: (np.zeros(9), 10**9), MediaFormatError, "1000000000 Hz is not plausible"),
    "rate forged low": (lambda: (np.zeros(9), 1), MediaFormatError, "1 Hz is not plausible"),
    "rate of words": (lambda: (np.zeros(9), "16 kHz"), MediaFormatError, "a whole number of Hz"),
    "half a rate": (lambda: (np.zeros(9), 16_000.5), MediaFormatError, "a whole number of Hz"),
    "a rate of no number": (lambda: (np.zeros(9), float("nan")), MediaFormatError, "a whole number of Hz"),
    "no samples": (lambda: (np.zeros(0), 16_000), MediaLimitError, "has 0 samples, under min_samples 1"),
    "NaN": (lambda: ([0.0, np.nan], 16_000), MediaFormatError, "sample 1 of the sound is not a finite"),
    "past float32": (lambda: (np.array([0.0, 1e300]), 16_000), MediaFormatError, "sample 1 of the sound"),
    "three axes": (lambda: (np.zeros((2, 2, 2)), 16_000), MediaFormatError, "is no sound; give"),
    "words": (lambda: (["a", "b"], 16_000), MediaFormatError, "is no sound; give"),
    "ragged": (lambda: ([[1.0], [1.0, 2.0]], 16_000), MediaFormatError, "are no array; give"),
    "a sum past float32": (lambda: (np.full((4, 2), 3e38), 16_000), MediaFormatError, "sample 0 of the"),
    "complex": (lambda: (np.zeros(9, complex), 16_000), MediaFormatError, "complex128 is no sound; give"),
    "no rate": (lambda: np.zeros(9), MediaFormatError, r"no audio; give .*\(samples, rate\)"),
    "a picture": (lambda: picture(9, 9), MediaFormatError, "no audio; give a path"),
    "no file": (lambda: "nowhere/at/all.wav", MediaFileError, "there is no such file"),
}


def by_bytes(data: bytes, folder: Path) -> Any:
    return data


def by_path(data: bytes, folder: Path) -> Any:
    file = folder / "medium.png"
    file.write_bytes(data)
    return file


def by_string(data: bytes, folder: Path) -> Any:
    return str(by_path(data, folder))


def by_data_url(data: bytes, folder: Path) -> Any:
    return "data:image/png;base64," + base64.b64encode(data).decode()


ROUTES: list[Route] = [by_bytes, by_path, by_string, by_data_url]
