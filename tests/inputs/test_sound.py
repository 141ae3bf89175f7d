"""Sound in every form comes out as mono float32, at the rate that was planned."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.media_files import raw_wav, tone, wav

from mmcore.errors import MediaFormatError
from mmcore.inputs.resample import resample, resample_stream, resampled_length
from mmcore.inputs.sound import array_sound, cut_sound, cut_wav, wav_info
from mmcore.inputs.wav import read_wav_header
from mmcore.request import DecodedMedia, SourceSpec

HALF = 0.5


def whole(data: bytes) -> DecodedMedia:
    return cut_wav(data, SourceSpec())


@pytest.mark.parametrize(
    ("code", "bits", "body"),
    [
        (1, 8, bytes([192])),
        (1, 16, struct.pack("<h", 1 << 14)),
        (1, 24, struct.pack("<i", 1 << 30)[1:]),
        (1, 32, struct.pack("<i", 1 << 30)),
        (3, 32, struct.pack("<f", HALF)),
        (3, 64, struct.pack("<d", HALF)),
    ],
)
def test_every_width_of_sample(code: int, bits: int, body: bytes) -> None:
    media = whole(raw_wav(body * 4, code=code, bits=bits))
    assert media.data.tolist() == [HALF] * 4
    assert media.data.dtype == np.float32
    assert media.sample_rate == 16_000


def test_negative_samples_of_24_bits() -> None:
    assert whole(raw_wav(struct.pack("<i", -(1 << 30))[1:], bits=24)).data.tolist() == [-HALF]


def test_the_extensible_header() -> None:
    plain = raw_wav(struct.pack("<f", HALF), code=3, bits=32)
    extra = struct.pack("<HHIH", 22, 32, 0, 3) + b"\0" * 14
    form = struct.pack("<H", 0xFFFE) + plain[22:36] + extra
    body = b"fmt " + struct.pack("<I", len(form)) + form + plain[36:]
    assert whole(b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body).data.tolist() == [HALF]


def test_chunks_of_other_kinds_are_passed_over() -> None:
    plain = wav(np.full(8, 100))
    noted = plain[:12] + b"LIST" + struct.pack("<I", 5) + b"hello\0" + plain[12:] + b"id3 \1\0\0\0x\0"
    assert np.array_equal(whole(noted).data, whole(plain).data)


def test_a_recorder_that_streams_leaves_its_sizes_open() -> None:
    data = wav(np.arange(100))
    for mark in (b"\xff" * 4, b"\0" * 4):
        streamed = data[:4] + mark + data[8:40] + b"\xff\xff\xff\xff" + data[44:]
        assert wav_info(streamed)[0].samples == 100


def test_stereo_is_the_mean() -> None:
    media = whole(wav(np.stack([np.full(10, 8192), np.full(10, 24576)], axis=1)))
    assert media.data.tolist() == [HALF] * 10


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (np.full(10, HALF), HALF),
        (np.full((10, 2), HALF, np.float64), HALF),
        (np.full((2, 100), HALF, np.float32), HALF),
        (np.full(10, 1 << 14, np.int16), HALF),
        (np.full(10, 1 << 30, np.int32), HALF),
        (np.full(10, 192, np.uint8), HALF),
        ([HALF] * 10, HALF),
    ],
)
def test_arrays_of_every_type(samples: Any, expected: float) -> None:
    media = array_sound(samples, 16_000)
    assert media.data.ndim == 1
    assert set(media.data.tolist()) == {expected}


def test_the_header_says_how_long_it_lasts() -> None:
    info, channels = wav_info(wav(np.zeros((8_000, 2)), rate=8_000))
    assert (info.samples, info.sample_rate, info.seconds, channels) == (8_000, 8_000, 1.0, 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"RIFF", "no known format"),
        (b"ID3\3", "MP3"),
        (b"OggS", "Ogg"),
        (b"fLaC", "FLAC"),
        (wav(np.zeros(10))[:20], "cut short"),
        (wav(np.zeros(10))[:36], "no samples"),
        (wav(np.zeros(10))[:50], "promises 20 bytes of samples and holds 6"),
        (raw_wav(b"\0\0", rate=0), "sample rate of 0 Hz"),
        (raw_wav(b"\0\0", rate=1), "sample rate of 1 Hz"),
        (raw_wav(b"\0\0", rate=4_000_000_000), "sample rate of 4000000000 Hz"),
        (raw_wav(b"\0\0", channels=0), "0 channels"),
        (raw_wav(b"\0\0", channels=9_999), "9999 channels"),
        (raw_wav(b"\0\0", bits=12), "12 bits"),
        (raw_wav(b"\0\0", code=85), "kind 85"),
    ],
)
def test_headers_that_lie(data: bytes, message: str) -> None:
    with pytest.raises(MediaFormatError, match=message):
        read_wav_header(data)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_no_numbers(value: float) -> None:
    samples = np.zeros(10, np.float32)
    samples[3] = value
    with pytest.raises(MediaFormatError, match="sample 3 of the sound is not a finite number"):
        array_sound(samples, 16_000)
    with pytest.raises(MediaFormatError, match="sample 3"):
        whole(raw_wav(samples.tobytes(), code=3, bits=32))


@pytest.mark.parametrize(
    ("samples", "rate", "message"),
    [
        (np.zeros(4), 100, "not plausible"),
        (np.zeros(4), "fast", "whole number"),
        (np.zeros(4), 16_000.5, "whole number"),
        (np.zeros((2, 2, 2)), 16_000, "no sound"),
        (np.zeros(4, complex), 16_000, "complex128"),
        (np.array(["a"]), 16_000, "no sound"),
    ],
)
def test_arrays_that_are_no_sound(samples: Any, rate: Any, message: str) -> None:
    with pytest.raises(MediaFormatError, match=message):
        array_sound(samples, rate)


# ------------------------------------------------------------------ sample rates

RATES = (8_000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000)


@pytest.mark.parametrize("rate", [*RATES, 12_345, 383_999])
def test_a_tone_stays_the_tone(rate: int) -> None:
    """Within 1e-3 of the tone itself, away from the ends; its pitch does not drift."""
    out = resample(tone(440, rate).astype(np.float32), rate, 16_000)
    expected = tone(440, 16_000)
    assert len(out) == 16_000
    assert np.abs(out - expected)[400:-400].max() < 1e-3


@pytest.mark.parametrize("rate", [24_000, 44_100, 48_000])
def test_what_the_target_cannot_hold_is_filtered_out(rate: int) -> None:
    """A tone above the target's Nyquist frequency would come back as another tone."""
    out = resample(tone(9_500, rate).astype(np.float32), rate, 16_000)
    assert np.abs(out)[400:-400].max() < 1e-3


@pytest.mark.parametrize("rate", RATES)
def test_silence_and_constants_stay(rate: int) -> None:
    assert not resample(np.zeros(rate, np.float32), rate, 16_000).any()
    assert resample(np.ones(rate, np.float32), rate, 16_000)[500:-500] == pytest.approx(1.0, abs=1e-5)


@given(
    rate=st.sampled_from(RATES),
    samples=st.integers(0, 3_000),
    start=st.integers(0, 2_000),
    length=st.integers(0, 2_000),
)
def test_a_window_equals_the_cut_of_the_whole(rate: int, samples: int, start: int, length: int) -> None:
    sound = np.random.default_rng(samples).standard_normal(samples).astype(np.float32)
    whole = resample(sound, rate, 16_000)
    assert len(whole) == resampled_length(samples, rate, 16_000)
    window = resample(sound, rate, 16_000, start, start + length)
    assert np.allclose(window, whole[start : start + length], atol=1e-6)
    assert len(window) == len(whole[start : start + length])


def test_the_plan_says_which_window_at_which_rate() -> None:
    media = DecodedMedia("audio", tone(440, 8_000).astype(np.float32), sample_rate=8_000)
    cut = cut_sound(media, SourceSpec(sample_rate=16_000, start=4_000, stop=8_000))
    assert cut.sample_rate == 16_000
    assert np.abs(cut.data - tone(440, 16_000)[4_000:8_000]).max() < 1e-3
    assert cut_sound(media, SourceSpec()).data is not media.data
    assert np.array_equal(cut_sound(media, SourceSpec()).data, media.data)


@given(
    rate=st.sampled_from([8_000, 44_100, 48_000, 47_999]), cuts=st.lists(st.integers(0, 9_000), max_size=6)
)
def test_sound_that_comes_in_blocks_is_resampled_as_a_whole(rate: int, cuts: list[int]) -> None:
    sound = np.random.default_rng(rate).standard_normal(9_000).astype(np.float32)
    blocks = np.split(sound, sorted(cuts))
    whole_of_it = resample(sound, rate, 16_000)
    joined = np.concatenate(list(resample_stream(blocks, rate, 16_000)))
    assert len(joined) == len(whole_of_it)
    assert np.allclose(joined, whole_of_it, atol=1e-6)


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
@given(start=st.integers(0, 700), length=st.integers(0, 700))
def test_a_window_of_a_file_reads_only_its_own_bytes(bits: int, start: int, length: int) -> None:
    """And equals the slice of the whole: what lies far from it may as well be other noise."""
    rate, width = 22_050, bits // 8 * 2
    body = np.random.default_rng(0).bytes(800 * width)
    spec = SourceSpec(sample_rate=16_000, start=start, stop=start + length)
    data = raw_wav(body, channels=2, rate=rate, bits=bits)
    expected = cut_wav(data, SourceSpec(sample_rate=16_000)).data[start : start + length]
    window = cut_wav(data, spec).data
    assert np.allclose(window, expected, atol=1e-6)
    near = max(0, start * rate // 16_000 - 110), (start + length) * rate // 16_000 + 110
    other = bytearray(bytes(len(body)))
    other[near[0] * width : near[1] * width] = body[near[0] * width : near[1] * width]
    forgotten = raw_wav(bytes(other[: len(body)]), channels=2, rate=rate, bits=bits)
    assert np.array_equal(cut_wav(forgotten, spec).data, window)


@pytest.mark.parametrize(("rate", "target"), [(48_000, 16_000), (44_100, 16_000), (22_050, 16_000)])
def test_what_the_target_cannot_hold_is_gone_and_what_it_can_hold_stays(rate: int, target: int) -> None:
    """Above the new Nyquist frequency 100 dB down, so that nothing folds back; up to 0.9 of it untouched."""
    for hertz in np.linspace(target / 2 * 1.005, rate / 2 * 0.99, 7):
        assert np.abs(resample(tone(hertz, rate), rate, target)[400:-400]).max() < 1e-5
    for hertz in np.linspace(50, target / 2 * 0.9, 7):
        kept = resample(tone(hertz, rate), rate, target)[400:-400]
        assert np.abs(kept - tone(hertz, target)[400:-400]).max() < 1e-4
