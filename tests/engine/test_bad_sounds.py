"""Bad sound over every route fails alone; unusual sound answers as its plain form does."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import numpy as np
import pytest
from engine.bad_batch import PARAMS, Bench, hum, sound_prompt
from inputs.bad_media import ROUTES, SOUND_FILES, SOUNDS_IN_MEMORY, Route
from inputs.media_files import wav

from mmcore.errors import MediaLimitError, PlaceholderMismatchError, UnsupportedOptionError


def pcm(samples: np.ndarray) -> np.ndarray:
    values: np.ndarray = np.rint(samples * 32_767).astype("<i2")
    return values


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("case", SOUND_FILES)
def test_bad_files(sounds_bench: Bench, tmp_path: Path, route: Route, case: str) -> None:
    data, error, message = SOUND_FILES[case]
    sounds_bench.expect(
        sound_prompt(route(data, tmp_path)), error, f"audio.*: .*({message})", forbidden=str(tmp_path)
    )


@pytest.mark.parametrize("case", SOUNDS_IN_MEMORY)
def test_bad_sound_in_memory(sounds_bench: Bench, case: str) -> None:
    make, error, message = SOUNDS_IN_MEMORY[case]
    sounds_bench.expect(sound_prompt(make()), error, f"audio.*: .*({message})")


@pytest.mark.parametrize("case", SOUND_FILES)
def test_bad_sound_in_a_conversation(sounds_bench: Bench, case: str) -> None:
    data, error, message = SOUND_FILES[case]
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
