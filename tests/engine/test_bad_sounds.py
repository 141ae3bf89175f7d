"""Bad sound over every route fails alone; unusual sound answers as its plain form does."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine.bad_batch import PARAMS, Bench, hum, noise, sound_prompt
from inputs.media_files import raw_wav, wav

from mmcore.errors import (
    MediaFileError,
    MediaFormatError,
    MediaLimitError,
    MMCoreError,
    PlaceholderMismatchError,
    UnsupportedOptionError,
)

Route = Callable[[bytes, Path], Any]


def pcm(samples: np.ndarray) -> np.ndarray:
    values: np.ndarray = np.rint(samples * 32_767).astype("<i2")
    return values


def floats(values: list[float]) -> bytes:
    return raw_wav(np.array(values, "<f4").tobytes(), code=3, bits=32)


def compressed() -> bytes:
    return raw_wav(b"\0" * 64, code=85)


GOOD = wav(pcm(hum(3)))
FILES: dict[str, tuple[bytes, type[MMCoreError], str]] = {
    "rate forged low": (raw_wav(b"\0" * 64, rate=7), MediaFormatError, "7 Hz is not plausible"),
    "rate forged high": (raw_wav(b"\0" * 64, rate=2**31), MediaFormatError, "Hz is not plausible"),
    "rate forged to zero": (raw_wav(b"\0" * 64, rate=0), MediaFormatError, " 0 Hz is not plausible"),
    "rate forged, plausible": (
        wav(pcm(hum(3, seconds=0.9)), rate=4_000), MediaLimitError, r"lasts 3\.60 s.*max_seconds.*cut it",
    ),
    "no samples": (wav(np.zeros(0)), MediaLimitError, "has 0 samples, under min_samples 1"),
    "NaN": (floats([0.0, float("nan")]), MediaFormatError, "sample 1 of the sound is not a finite number"),
    "past float32": (
        raw_wav(np.array([0.0, 1e300]).tobytes(), code=3, bits=64), MediaFormatError, "sample 1 of the sound",
    ),
    "infinite": (floats([float("-inf"), 0.0]), MediaFormatError, "sample 0 of the sound is not a finite"),
    "truncated": (GOOD[:1_000], MediaFormatError, "promises .* it is truncated"),
    "half a header": (GOOD[:30], MediaFormatError, "truncated|cut short"),
    "no format": (b"RIFF\x0c\0\0\0WAVEdata\0\0\0\0", MediaFormatError, "before its format"),
    "0 channels": (raw_wav(b"\0" * 64, channels=0), MediaFormatError, "0 channels; accepted: 1 to"),
    "7 bits": (raw_wav(b"\0" * 64, bits=7), MediaFormatError, "7 bits; accepted"),
    "mp3 in a wav": (compressed(), MediaFormatError, "kind 85 with 16 bits; accepted"),
    "text": (b"only words\n" * 9, MediaFormatError, "no known format; accepted sound formats: WAV"),
    "mp3": (b"ID3\3\0", MediaFormatError, "the file is MP3; accepted sound formats: WAV"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + b"\0" * 30, MediaFormatError, "the file is PNG; accepted sound"),
    "0 bytes": (b"", MediaFormatError, r"empty \(0 bytes\)"),
    "too long": (wav(np.zeros(32_000)), MediaLimitError, r"lasts 2\.00 s.*max_seconds.*cut it"),
}  # fmt: skip


def by_bytes(data: bytes, folder: Path) -> Any:
    return data


def by_path(data: bytes, folder: Path) -> Any:
    file = folder / "sound.wav"
    file.write_bytes(data)
    return file


def by_string(data: bytes, folder: Path) -> Any:
    return str(by_path(data, folder))


def by_data_url(data: bytes, folder: Path) -> Any:
    return "data:audio/wav;base64," + base64.b64encode(data).decode()


ROUTES: list[Route] = [by_bytes, by_path, by_string, by_data_url]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("case", FILES)
def test_bad_files(sounds_bench: Bench, tmp_path: Path, route: Route, case: str) -> None:
    data, error, message = FILES[case]
    sounds_bench.expect(
        sound_prompt(route(data, tmp_path)), error, f"audio.*: .*({message})", forbidden=str(tmp_path)
    )


MEMORY: dict[str, tuple[Any, type[MMCoreError], str]] = {
    "rate forged": ((hum(3), 10**9), MediaFormatError, "1000000000 Hz is not plausible"),
    "rate forged low": ((hum(3), 1), MediaFormatError, "1 Hz is not plausible"),
    "rate of words": ((hum(3), "16 kHz"), MediaFormatError, "a whole number of Hz"),
    "half a rate": ((hum(3), 16_000.5), MediaFormatError, "a whole number of Hz"),
    "a rate of no number": ((hum(3), float("nan")), MediaFormatError, "a whole number of Hz"),
    "no samples": ((np.zeros(0), 16_000), MediaLimitError, "has 0 samples, under min_samples 1"),
    "NaN": ((np.array([0.0, np.nan]), 16_000), MediaFormatError, "sample 1 of the sound is not a finite"),
    "past float32": ((np.array([0.0, 1e300]), 16_000), MediaFormatError, "sample 1 of the sound is not"),
    "too long": ((np.zeros(32_000), 16_000), MediaLimitError, r"lasts 2\.00 s.*max_seconds.*cut it"),
    "three axes": ((np.zeros((2, 2, 2)), 16_000), MediaFormatError, "is no sound; give"),
    "words": ((["a", "b"], 16_000), MediaFormatError, "is no sound; give"),
    "ragged": (([[1.0], [1.0, 2.0]], 16_000), MediaFormatError, "are no array; give"),
    "a sum past float32": ((np.full((4, 2), 3e38), 16_000), MediaFormatError, "sample 0 of the sound is not"),
    "complex": ((np.zeros(9, complex), 16_000), MediaFormatError, "complex128 is no sound; give"),
    "no rate": (hum(3), MediaFormatError, r"no audio; give .*\(samples, rate\)"),
    "a picture": (noise(1), MediaFormatError, "no audio; give"),
    "no file": ("nowhere/at/all.wav", MediaFileError, "there is no such file"),
}


@pytest.mark.parametrize("case", MEMORY)
def test_bad_sound_in_memory(sounds_bench: Bench, case: str) -> None:
    value, error, message = MEMORY[case]
    sounds_bench.expect(sound_prompt(value), error, f"audio.*: .*({message})")


@pytest.mark.parametrize("case", FILES)
def test_bad_sound_in_a_conversation(sounds_bench: Bench, case: str) -> None:
    data, error, message = FILES[case]
    encoded = base64.b64encode(data).decode()
    part = {"type": "input_audio", "input_audio": {"data": encoded, "format": "wav"}}
    good = [{"role": "user", "content": [{"type": "audio", "audio": (hum(1), 16_000)}]}]
    alone = sounds_bench.llm.chat(good, PARAMS).token_ids
    outputs = sounds_bench.llm.chat([good, [{"role": "user", "content": [part]}], good], PARAMS)
    assert type(outputs[1].error) is error
    assert [outputs[0].token_ids, outputs[2].token_ids] == [alone, alone]
    with pytest.raises(error, match=message):
        _ = outputs[1].text


def test_what_the_family_does_not_take(sounds_bench: Bench) -> None:
    clip = (hum(3), 16_000)
    two = [clip, (hum(4), 16_000)]
    sounds_bench.expect(sound_prompt(two), MediaLimitError, "2 media in one prompt are over max_items 1")
    sounds_bench.expect({"prompt": ""}, PlaceholderMismatchError, "one medium|exactly one|brings none")
    sounds_bench.expect(
        sound_prompt(clip, mm_processor_kwargs={"language": "en"}),
        UnsupportedOptionError,
        "^audio: .*'language'.*decoder_options",
    )
    sounds_bench.expect(
        sound_prompt(clip, decoder_options={"language": "Klingon"}),
        UnsupportedOptionError,
        "language='klingon' is not one of",
    )
    sounds_bench.expect(
        sound_prompt(clip, decoder_options={"temperature": 1}),
        UnsupportedOptionError,
        "no decoder option 'temperature'",
    )


# ------------------------------------------------------------------ unusual and fine


@pytest.mark.parametrize("route", ROUTES)
def test_stereo_is_its_mean(sounds_bench: Bench, tmp_path: Path, route: Route) -> None:
    left, right = pcm(hum(5)) // 2 * 2, pcm(hum(6)) // 2 * 2
    mono = sounds_bench.tokens(sound_prompt((((left / 2 + right / 2) / 32_768).astype(np.float32), 16_000)))
    stereo = route(wav(np.stack([left, right], axis=1)), tmp_path)
    for output in sounds_bench.run_beside_good(sound_prompt(stereo)):
        assert output.token_ids == mono
    assert sounds_bench.tokens(sound_prompt((np.stack([left, right]), 16_000))) == mono
    assert sounds_bench.tokens(sound_prompt(wav(left))) != mono, "the answer must depend on the sound"


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_other_rates_are_resampled(sounds_bench: Bench, tmp_path: Path, route: Route, rate: int) -> None:
    """Tones that both rates can hold, each sampled at its own: the same sound, but for its edges."""
    native = sounds_bench.tokens(sound_prompt((hum(7), 16_000)))
    other = route(wav(pcm(hum(7, rate)), rate=rate), tmp_path)
    for output in sounds_bench.run_beside_good(sound_prompt(other)):
        same = sum(a == b for a, b in zip(output.token_ids, native, strict=True))
        assert same >= len(native) - 1, (output.token_ids, native)


def test_a_streamed_wav_of_open_length(sounds_bench: Bench) -> None:
    samples = pcm(hum(8))
    data = bytearray(wav(samples))
    data[4:8] = data[40:44] = struct.pack("<I", 0xFFFFFFFF)
    assert sounds_bench.tokens(sound_prompt(bytes(data))) == sounds_bench.tokens(sound_prompt(wav(samples)))
