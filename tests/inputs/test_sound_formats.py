"""Each accepted sound format, by every route: the same samples, its windows cuts of the whole."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.media_files import tone, wav
from inputs.sound_files import FORMATS, compressed, sample_file

from mmcore.config import MediaPolicy
from mmcore.errors import MediaFormatError, MediaLimitError, MissingExtraError
from mmcore.inputs.fetch import MediaFetcher
from mmcore.inputs.media import OpenedMedia, decode, open_media
from mmcore.inputs.resample import resample
from mmcore.inputs.unpack import unpack_sound
from mmcore.request import ArraySource, SourceSpec

FETCHER = MediaFetcher(MediaPolicy())
LOSS = {"FLAC": 1e-4, "MP3": 0.03, "M4A": 0.06, "MP4": 0.06, "Matroska": 0.06}
"""How far a tone may be from itself; 0.01 where nothing is said."""


def heard(media: OpenedMedia, spec: SourceSpec) -> np.ndarray:
    return decode(media.source, "audio", spec).data


@pytest.mark.parametrize("kind", FORMATS)
def test_a_tone_comes_out_as_it_went_in_by_every_route(kind: str, tmp_path: Path) -> None:
    """Both channels as their mean; some encoders put a moment of silence before it."""
    left = 0.5 * tone(440, 48_000)
    data = compressed(np.stack([left, left / 2]), kind)
    path = tmp_path / "named.wrongly"
    path.write_bytes(data)
    url = "data:audio/wav;base64," + base64.b64encode(data).decode()
    first = heard(open_media("audio", data, FETCHER), SourceSpec())
    middle = 0.75 * left[12_000:36_000]
    lags = range(12_000 - 128, 12_000 + 1_200)
    assert min(np.abs(first[lag : lag + 24_000] - middle).max() for lag in lags) < LOSS.get(kind, 0.01)
    for value in (path, str(path), url, io.BytesIO(data)):
        assert np.array_equal(heard(open_media("audio", value, FETCHER), SourceSpec()), first)


@pytest.mark.parametrize("kind", FORMATS)
@given(start=st.integers(0, 6_000), length=st.integers(0, 6_000))
def test_a_window_is_a_cut_of_the_whole(kind: str, start: int, length: int) -> None:
    """Also of the whole decoded first and resampled then."""
    media = _opened(kind)
    assert isinstance(media.source, ArraySource)
    assert media.info.sample_rate == 16_000
    window = heard(media, SourceSpec(sample_rate=16_000, start=start, stop=start + length))
    native = heard(open_media("audio", sample_file(kind), FETCHER), SourceSpec())
    expected = resample(native, 48_000, 16_000)
    assert media.info.samples == len(expected)
    assert np.allclose(window, expected[start : start + length], atol=1e-6)


def _opened(kind: str) -> OpenedMedia:
    return open_media("audio", sample_file(kind), FETCHER, sample_rate=16_000)


def test_the_digest_is_that_of_the_file() -> None:
    flac, again = (open_media("audio", sample_file("FLAC"), FETCHER, rate) for rate in (0, 16_000))
    assert flac.digest == again.digest
    assert flac.digest != open_media("audio", sample_file("MP3"), FETCHER).digest


def test_without_the_extra_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    data = sample_file("MP3")
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'mmcore-runtime\[media\]'"):
        open_media("audio", data, FETCHER)
    assert open_media("audio", wav(np.zeros(9)), FETCHER).info.samples == 9, "a WAV needs no extra"


@pytest.mark.parametrize("kind", FORMATS)
def test_decoding_stops_at_the_budget(kind: str) -> None:
    """Whether the header says it before or the samples say it by and by."""
    data = sample_file(kind)
    unpack_sound(data, MediaPolicy(max_samples=40_000))
    with pytest.raises(MediaLimitError, match="samples x channels are over max_samples 20000"):
        unpack_sound(data, MediaPolicy(max_samples=20_000))


@pytest.mark.parametrize("kind", FORMATS)
def test_sound_is_no_picture(kind: str) -> None:
    with pytest.raises(MediaFormatError, match="accepted picture formats: JPEG, PNG, WebP, GIF, BMP, TIFF"):
        open_media("image", sample_file(kind), FETCHER)


@pytest.mark.parametrize(("muxer", "codec"), [("matroska", "pcm_s16le"), ("matroska", "ac3"), ("mp4", "ac3")])
def test_codecs_that_are_not_accepted(muxer: str, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "other", (muxer, codec))
    data = compressed(np.zeros((1, 9_600)), "other")
    with pytest.raises(MediaFormatError, match="accepted: flac, vorbis, opus, mp3, aac"):
        unpack_sound(data, MediaPolicy())


def test_tags_before_an_mp3_are_never_read() -> None:
    """One may unpack to gigabytes; here it says that it does, and is nonsense besides."""
    data = sample_file("MP3")
    plain = unpack_sound(data, MediaPolicy()).data
    tag = b"ID3\4\0\0" + bytes([0, 0, 8, 0]) + b"TXXX\0\0\7\x76\0\x09\x7f\x7f\x7f\x7f" + b"\xff" * 1_010
    assert len(tag) == 10 + (8 << 7)
    assert np.array_equal(unpack_sound(tag + data, MediaPolicy()).data, plain)
