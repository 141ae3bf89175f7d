"""Recordings longer than a window, through `LLM.transcribe`, against transformers' sequential decoding."""

from __future__ import annotations

import asyncio
import resource
import time
import wave
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmcore_whisper.testing import write_tiny_checkpoint
from transformers import WhisperFeatureExtractor

from mmcore import LLM, KvCacheConfig, Transcript
from mmcore.errors import MediaError, UnsupportedOptionError

RATE = 16_000
Spoken = tuple[float, float, str]


def recording(seed: int, seconds: float | None = None) -> np.ndarray:
    """Noise, tones and silence in turn, up to some ten windows of the tiny checkpoints."""
    rng = np.random.default_rng(seed)
    wanted = int((seconds or rng.uniform(1.02, 9)) * RATE)
    parts: list[np.ndarray] = []
    while sum(map(len, parts)) < wanted:
        time = np.arange(int(rng.uniform(0.1, 1.5) * RATE)) / RATE
        parts += [
            rng.standard_normal(len(time)) * rng.choice([1e-3, 0.1, 0.5]),
            np.sin(2 * np.pi * rng.uniform(80, 4000) * time) * rng.uniform(0.1, 0.9),
            np.zeros(int(rng.uniform(0, 0.7) * RATE)),
        ]
    return np.concatenate(parts)[:wanted].astype(np.float32)


def reference_segments(tiny: Any, samples: np.ndarray, **options: Any) -> tuple[str, list[Spoken]]:
    """The whole text and every segment with words, by `generate(return_timestamps=True)`."""
    extractor = WhisperFeatureExtractor.from_pretrained(tiny.folder)
    features = extractor(
        samples, sampling_rate=RATE, return_tensors="pt", truncation=False, padding="longest"
    )
    with torch.no_grad():
        output = tiny.reference.generate(
            features.input_features, return_timestamps=True, return_segments=True, **options
        )
    first = tiny.adapter.decoding.tokens.first_timestamp
    decode = tiny.checkpoint.tokenizer.decode
    said = [
        (float(s["start"]), float(s["end"]), decode([i for i in s["tokens"].tolist() if i < first]))
        for s in output["segments"][0]
    ]
    text = "".join(words for _, _, words in said).strip()
    return text, [(start, end, words.strip()) for start, end, words in said if words.strip()]


def check_equal(transcript: Transcript, expected: tuple[str, list[Spoken]]) -> None:
    text, spoken = expected
    assert transcript.text == text
    assert [segment.text for segment in transcript.segments] == [words for _, _, words in spoken]
    ours = [(segment.start, segment.end) for segment in transcript.segments]
    assert ours == [pytest.approx((start, end)) for start, end, _ in spoken]


@pytest.mark.parametrize("variant", ["multilingual", "english", "large"])
def test_transcripts_equal_the_reference(tiny_of: Any, llm_of: Any, variant: str) -> None:
    lengths = {"multilingual": (2.3, 3.1, 1.01), "english": (1.5, 2.0), "large": (3.3, 5.0)}
    recordings = [recording(seed, seconds) for seed, seconds in enumerate(lengths[variant])]
    options = {} if variant == "english" else {"language": "de", "task": "translate"}
    transcripts = llm_of(variant).transcribe([(x, RATE) for x in recordings], use_tqdm=False, **options)
    if variant == "multilingual":
        assert sum(len(transcript.segments) > 2 for transcript in transcripts) > 1
    for samples, transcript in zip(recordings, transcripts, strict=True):
        check_equal(transcript, reference_segments(tiny_of(variant), samples, **options))
        assert transcript.language == ("en" if variant == "english" else "de")
        assert transcript.duration == len(samples) / RATE
        assert transcript.position == pytest.approx(transcript.duration, abs=0.01)


def test_the_language_is_the_one_that_the_reference_hears(tiny_of: Any, llm_of: Any) -> None:
    tiny, recordings = tiny_of("multilingual"), [recording(seed, 1.3) for seed in range(20, 23)]
    transcripts = llm_of("multilingual").transcribe([(x, RATE) for x in recordings], use_tqdm=False)
    chosen = {token: code for code, token in tiny.adapter.decoding.tokens.languages}
    extractor = WhisperFeatureExtractor.from_pretrained(tiny.folder)
    for samples, transcript in zip(recordings, transcripts, strict=True):
        features = extractor(
            samples, sampling_rate=RATE, return_tensors="pt", truncation=False, padding="longest"
        )
        heard = tiny.reference.detect_language(features.input_features, num_segment_frames=100)
        assert transcript.language == chosen[int(heard)]
        check_equal(transcript, reference_segments(tiny, samples, task="transcribe"))
    assert len({transcript.language for transcript in transcripts}) > 1


def test_an_initial_prompt_goes_before_every_window_as_in_the_reference(tiny_of: Any, llm_of: Any) -> None:
    from transformers import WhisperTokenizer

    tiny, samples = tiny_of("multilingual"), recording(3, 2.4)
    ids = WhisperTokenizer.from_pretrained(tiny.folder).get_prompt_ids("Lucky", return_tensors="pt")
    expected = reference_segments(tiny, samples, language="en", task="transcribe", prompt_ids=ids)
    llm = llm_of("multilingual")
    check_equal(llm.transcribe((samples, RATE), "en", initial_prompt="Lucky"), expected)
    assert llm.transcribe((samples, RATE), "en").text != expected[0], "else it would say little"


# ------------------------------------------------------------------ what callers see


def test_one_alone_or_many_together_say_the_same(llm_of: Any) -> None:
    llm, recordings = llm_of("multilingual"), [(recording(seed, 2.5), RATE) for seed in range(40, 42)]
    together = llm.transcribe(recordings, use_tqdm=False)
    assert together == [llm.transcribe(one) for one in recordings]


def test_without_timestamps_the_text_is_the_same(llm_of: Any) -> None:
    llm, sound = llm_of("multilingual"), (recording(50, 2.0), RATE)
    plain, timed = llm.transcribe(sound, timestamps=None), llm.transcribe(sound)
    assert plain.text == timed.text
    assert (plain.segments, timed.segments == ()) == ((), False)


def test_a_recording_is_encoded_once_and_its_cross_states_are_shared(llm_of: Any) -> None:
    llm, sound = llm_of("multilingual"), (recording(60, 4.2), RATE)
    first = llm.transcribe(sound, "en")
    before = llm.stats
    assert llm.transcribe(sound, "en") == first
    after = llm.stats
    links = after.requests_finished - before.requests_finished
    assert links > 3
    assert after.items_preprocessed == before.items_preprocessed
    assert after.scheduler.encoder_misses == before.scheduler.encoder_misses
    assert after.scheduler.cross_hits - before.scheduler.cross_hits == links


def test_segments_come_window_by_window(llm_of: Any) -> None:
    handle = llm_of("multilingual").transcribe_async((recording(70, 4.0), RATE), "en", streaming=True)
    seen = list(handle)
    assert len(seen) > 3
    for before, after in pairwise(seen):
        assert after.segments[: len(before.segments)] == before.segments
        assert after.position >= before.position
    assert seen[-1] == handle.result()
    assert seen[-1].position == pytest.approx(4.0)


def test_handles_are_awaited_and_iterated(llm_of: Any) -> None:
    llm, sound = llm_of("multilingual"), (recording(71, 2.0), RATE)

    async def listen() -> tuple[Transcript, list[Transcript]]:
        grown = [part async for part in llm.transcribe_async(sound, "en", streaming=True)]
        return await llm.transcribe_async(sound, "en"), grown

    whole, grown = asyncio.run(listen())
    assert whole == grown[-1] == llm.transcribe(sound, "en")


def test_abort_gives_what_there_is_and_leaves_nothing_behind(llm_of: Any) -> None:
    llm, sound = llm_of("multilingual"), (recording(72, 60.0), RATE)
    handle = llm.transcribe_async(sound, "en", streaming=True)
    for transcript in handle:
        if transcript.segments:
            handle.abort()
            break
    partial = handle.result(30)
    assert 0 < partial.position < 60
    llm.transcribe((recording(73, 1.5), RATE))
    stats = llm.stats.scheduler
    assert (stats.running, stats.waiting) == (0, 0)


def test_a_bad_recording_fails_alone(llm_of: Any) -> None:
    llm, good = llm_of("multilingual"), (recording(80, 2.5), RATE)
    bad = good[0].copy()
    bad[30_000] = np.nan
    transcripts = llm.transcribe([good, (bad, RATE), (good[0][:0], RATE), good], use_tqdm=False)
    assert transcripts[0] == transcripts[3] == llm.transcribe(good)
    assert all(isinstance(transcript.error, MediaError) for transcript in transcripts[1:3])
    with pytest.raises(MediaError, match="sample 30000"):
        llm.transcribe((bad, RATE))


@pytest.mark.parametrize(
    ("variant", "options", "words"),
    [
        ("multilingual", {"language": "klingon"}, "language='klingon' is not one of.*en, zh, de"),
        ("multilingual", {"task": "sing"}, "task='sing'.*transcribe, translate"),
        ("multilingual", {"timestamps": "word"}, "timestamps='word'"),
        ("english", {"language": "de"}, "language='de' is not one of this checkpoint's: en"),
        ("english", {"task": "translate"}, "task='translate'"),
    ],
)
def test_what_is_refused(llm_of: Any, variant: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedOptionError, match=words):
        llm_of(variant).transcribe((recording(0), RATE), **options)


# ------------------------------------------------------------------ silence


def test_silence_comes_to_an_end(llm_of: Any) -> None:
    transcript = llm_of("multilingual").transcribe((np.zeros(8 * RATE, np.float32), RATE), "en")
    assert transcript.position == transcript.duration == 8


@pytest.mark.slow
def test_an_hour_of_silence_is_quick_and_needs_little_memory(tmp_path: Path) -> None:
    """As a file of 58 MB, in windows of 30 s; decoded whole it would be 230 MB, its spectrogram 115 MB."""
    write_tiny_checkpoint(tmp_path / "model", rows=1500)
    with wave.open(str(tmp_path / "hour.wav"), "wb") as file:
        file.setparams((1, 1, RATE, 0, "NONE", ""))
        file.writeframes(b"\x80" * RATE * 3600)
    cache = KvCacheConfig(max_tokens=40_000)
    with LLM(tmp_path / "model", dtype="float32", device="cpu", kv_cache_config=cache) as llm:
        llm.transcribe((np.zeros(65 * RATE, np.float32), RATE), "en")
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        transcript = llm.transcribe(str(tmp_path / "hour.wav"), "en")
        seconds = time.monotonic() - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"an hour of silence: {seconds:.1f} s, {grown:.0f} MB more")
    assert transcript.position == transcript.duration == 3600
    assert seconds < 300
    assert grown < 200
