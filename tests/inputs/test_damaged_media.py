"""Files of every accepted format, cut, damaged, mislabelled or lying: typed errors, bounded memory."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.media_files import encoded, picture, raw_wav, wav
from inputs.sound_files import FORMATS, compressed, sample_file

from mmcore.config import MediaPolicy
from mmcore.errors import MediaError, MediaFormatError, MediaLimitError
from mmcore.inputs.fetch import MediaFetcher
from mmcore.inputs.media import decode, open_media
from mmcore.request import DecodedMedia, SourceSpec

FETCHER = MediaFetcher(MediaPolicy(max_pixels=1 << 16, max_samples=1 << 20))
BASE, NEXT = picture(20, 12), picture(20, 12, 3)
TIFFS = ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg")
PICTURES = {
    **{kind: encoded(BASE, kind) for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP")},
    **{f"TIFF {name}": encoded(BASE, "TIFF", compression=name) for name in TIFFS},
    "TIFF group4": encoded(BASE.convert("1"), "TIFF", compression="group4"),
    "animated GIF": encoded(BASE, "GIF", save_all=True, append_images=[NEXT]),
    "animated WEBP": encoded(BASE, "WEBP", save_all=True, append_images=[NEXT]),
}
NOISE = np.random.default_rng(0).integers(-9_000, 9_000, (4_000, 2), dtype=np.int16)
SOUNDS = {"WAV": wav(NOISE), **{kind: sample_file(kind) for kind in FORMATS}}
FILES = [("image", kind) for kind in PICTURES] + [("audio", kind) for kind in SOUNDS]
MAY_BE_CUT = ("MP3", "Ogg Opus", "Ogg Vorbis")
"""Sound without a length in its header: a cut at the end of a frame or page makes a shorter one."""


def file_of(modality: str, kind: str) -> bytes:
    return (PICTURES if modality == "image" else SOUNDS)[kind]


def read(modality: str, data: bytes) -> DecodedMedia | MediaError:
    """What comes out, which is media or a typed error and never anything else."""
    spec = SourceSpec(sample_rate=16_000) if modality == "audio" else SourceSpec()
    try:
        return decode(open_media(modality, data, FETCHER, spec.sample_rate).source, modality, spec)
    except MediaError as error:
        return error


@pytest.mark.parametrize(("modality", "kind"), FILES)
@given(cut=st.floats(0.0, 1.0, exclude_max=True))
def test_a_file_cut_anywhere_is_an_error_or_says_the_same(modality: str, kind: str, cut: float) -> None:
    """Pictures may lack what stands behind their pixels. Sound without a length is shorter then, at best."""
    data = file_of(modality, kind)
    whole, part = read(modality, data), read(modality, data[: int(cut * len(data))])
    assert isinstance(whole, DecodedMedia)
    if isinstance(part, MediaError):
        assert part.http_status == 400
        return
    if modality == "image":
        assert part.data.shape == whole.data.shape
    else:
        assert kind in MAY_BE_CUT
        assert len(part.data) <= len(whole.data) + 512


@pytest.mark.parametrize(("modality", "kind"), FILES)
@given(
    places=st.lists(
        st.tuples(st.floats(0.0, 1.0, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4
    ),
    front=st.booleans(),
)
def test_a_damaged_file_is_media_or_a_typed_error(
    modality: str, kind: str, places: list[tuple[float, int]], front: bool
) -> None:
    """Headers are hit as often as what follows them. A neighbour is read as ever."""
    data = bytearray(file_of(modality, kind))
    reach = min(len(data), 300) if front else len(data)
    for place, value in places:
        data[int(place * reach)] = value
    media = read(modality, bytes(data))
    if isinstance(media, DecodedMedia):
        limits = FETCHER.policy
        assert media.data.size <= (3 * limits.max_pixels if modality == "image" else limits.max_samples)


@pytest.mark.parametrize(("modality", "kind"), FILES)
def test_content_decides_not_what_it_is_given_as(modality: str, kind: str) -> None:
    other = "audio" if modality == "image" else "image"
    with pytest.raises(MediaFormatError, match=r"accepted (sound|picture) formats: "):
        open_media(other, file_of(modality, kind), FETCHER)


# ------------------------------------------------------------------ headers that lie


def _patched(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :]


def _table(kind: bytes, body: bytes) -> bytes:
    """An MP4 with one of its tables claiming something else."""
    data = sample_file("M4A")
    return _patched(data, data.index(kind) + 4, body)


def _flac_of(samples: int) -> bytes:
    data = sample_file("FLAC")
    (packed,) = struct.unpack_from(">Q", data, 18)
    return _patched(data, 18, struct.pack(">Q", packed >> 36 << 36 | samples))


LIES: dict[str, tuple[str, Callable[[], bytes], type[MediaError], str]] = {
    "a flac of days": ("audio", lambda: _flac_of(2**36 - 1), MediaLimitError, "over max_samples"),
    "a flac of a second more": ("audio", lambda: _flac_of(14_401), MediaFormatError, "holds 0.30 s"),
    "a wav of gigabytes": (
        "audio",
        lambda: _patched(wav(NOISE), 40, b"\xf0\xff\xff\xff"), MediaFormatError, "promises 4294967280",
    ),
    "an mp4 of 4 billion frames": (
        "audio",
        lambda: _table(b"stsz", struct.pack(">III", 0, 1, 2**32 - 1)), MediaLimitError, "claims 4294967",
    ),
    "an mp4 of one long run": (
        "audio",
        lambda: _table(b"stts", struct.pack(">IIII", 0, 1, 2**32 - 1, 1)), MediaLimitError, "claims 42949",
    ),
    "an mp4 with a long table": (
        "audio",
        lambda: _table(b"stts", struct.pack(">II", 0, 2**32 - 1)), MediaFormatError, "longer than its box",
    ),
    "an mp4 of many edits": (
        "audio",
        lambda: _table(b"elst", struct.pack(">II", 0, 2**31)), MediaLimitError, "in 2147483648 edits",
    ),
    "an mp4 with a packed header": (
        "audio", lambda: _patched(sample_file("M4A"), sample_file("M4A").index(b"mvhd"), b"cmov"),
        MediaFormatError, "compressed header",
    ),
    "a webm that ends early": (
        "audio", lambda: sample_file("WebM")[:-1], MediaFormatError, "ends before the size",
    ),
    "a tag of a large size": (
        "audio",
        lambda: b"ID3\4\0\0\x7f\x7f\x7f\x7f" + sample_file("MP3"), MediaFormatError, "ends before the size",
    ),
    "a webp of a large canvas": (
        "image",
        lambda: _patched(PICTURES["animated WEBP"], 24, b"\xff" * 6),
        MediaLimitError,
        "16777216x16777216",
    ),
    "a gif of a large frame": (
        "image", lambda: _gif_frame(60_000, 60_000), MediaLimitError, "60000x60000 pixels",
    ),
    "a tiff of a large tile": (
        "image", lambda: _tiled(60_000), MediaFormatError, "tiles of 3600000000 pixels for a picture of 256",
    ),
}  # fmt: skip


def _gif_frame(width: int, height: int) -> bytes:
    data = PICTURES["GIF"]
    place = data.index(b"\x2c\0\0\0\0") + 5
    return _patched(data, place, struct.pack("<HH", width, height))


def _tiled(side: int) -> bytes:
    tags = [
        (256, 16),
        (257, 16),
        (258, 8),
        (259, 1),
        (262, 1),
        (322, side),
        (323, side),
        (324, 8),
        (325, 256),
    ]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<I", 264) + bytes(256) + struct.pack("<H", len(tags)) + entries + bytes(4)


@pytest.mark.parametrize("case", LIES)
def test_headers_that_lie(case: str) -> None:
    modality, make, error, message = LIES[case]
    with pytest.raises(error, match=message):
        open_media(modality, make(), FETCHER)


# ------------------------------------------------------------------ bombs, in a process of their own

CHILD = """
import json, resource, sys, time
from pathlib import Path
from mmcore.config import MediaPolicy
from mmcore.errors import MediaError
from mmcore.inputs.fetch import MediaFetcher
from mmcore.inputs.media import decode, open_media
from mmcore.request import SourceSpec

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

def read(modality, data):
    try:
        media = open_media(modality, data, fetcher, 16_000)
        spec = SourceSpec(sample_rate=16_000, stop=480_000) if modality == "audio" else SourceSpec()
        return len(decode(media.source, modality, spec).data)
    except MediaError as error:
        return f"{type(error).__name__}: {error}"

fetcher = MediaFetcher(MediaPolicy(max_pixels=1 << 20))
for name, modality in json.loads(sys.argv[2]):
    read(modality, (Path(sys.argv[1]) / "warm").read_bytes() if modality == "audio" else b"")
    before, start = peak(), time.process_time()
    said = read(modality, (Path(sys.argv[1]) / name).read_bytes())
    print(json.dumps([name, said, peak() - before, time.process_time() - start]))
"""


def _frames_of(mp3: bytes) -> bytes:
    """Without the tag before them."""
    return mp3[mp3.index(b"\xff\xf3") :]


HOURS: dict[str, Callable[[], bytes]] = {
    "FLAC": lambda: compressed(np.zeros((1, 3_600 * 8_000), np.float32), "FLAC", rate=8_000),
    "MP3": lambda: 60 * _frames_of(compressed(np.zeros((1, 60 * 16_000), np.float32), "MP3", rate=16_000)),
}
"""An hour of silence."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[object, int, float]]:
    """What each bomb gave, the MiB by which it raised the peak, and CPU seconds."""
    folder = tmp_path_factory.mktemp("bombs")
    lies = {name: make() for name, (_, make, _, _) in LIES.items()}
    hours = {f"an hour of silence, {kind}": make() for kind, make in HOURS.items()}
    bombs = {"a wav of 60 MB": raw_wav(bytes(60_000_000), rate=48_000, channels=2, bits=24)}
    order = []
    for name, data in {**lies, **hours, **bombs}.items():
        (folder / name).write_bytes(data)
        order.append((name, LIES[name][0] if name in LIES else "audio"))
    (folder / "warm").write_bytes(sample_file("MP3"))
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), json.dumps(order)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr
    lines = [json.loads(line) for line in child.stdout.splitlines()]
    return {name: (said, mebibytes, seconds) for name, said, mebibytes, seconds in lines}


@pytest.mark.parametrize("case", LIES)
def test_what_lies_costs_next_to_nothing(case: str, measured: dict[str, tuple[object, int, float]]) -> None:
    said, mebibytes, _ = measured[case]
    assert str(said).startswith(LIES[case][2].__name__)
    assert mebibytes <= 8


@pytest.mark.parametrize("kind", HOURS)
def test_an_hour_of_silence_is_cheap(kind: str, measured: dict[str, tuple[object, int, float]]) -> None:
    """230 MB if it were held as samples; its first window comes out as any other."""
    said, mebibytes, seconds = measured[f"an hour of silence, {kind}"]
    assert said == 480_000
    assert mebibytes <= 64
    assert seconds < 20


def test_a_window_of_a_large_wav_takes_a_window_of_memory(
    measured: dict[str, tuple[object, int, float]],
) -> None:
    said, mebibytes, _ = measured["a wav of 60 MB"]
    assert said == 480_000
    assert mebibytes <= 60_000_000 / (1 << 20) * 2 + 80, "the file read twice, and some 30 s of floats"
