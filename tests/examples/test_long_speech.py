"""Long speech with published checkpoints: text and times are those of transformers' sequential decoding."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizer

from mmcore import LLM, Transcript

RATE = 16_000
READINGS = "pocketsphinx==5.1.1"
"""Its source archive has sentences of a LibriVox reading of "Sense and Sensibility", in the public domain."""


def read_wav(source: Any) -> np.ndarray:
    with wave.open(source) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def joined(clips: list[np.ndarray], seconds: float, seed: int) -> np.ndarray:
    """Clips in any order and loudness, silence of up to 9 s between them, cut at ``seconds``."""
    rng, parts, length = np.random.default_rng(seed), [], 0
    while length < seconds * RATE:
        clip = clips[rng.integers(len(clips))] * np.float32(rng.uniform(0.2, 1.0))
        parts += [clip, np.zeros(int(rng.uniform(0, 9) * RATE), np.float32)]
        length += len(parts[-2]) + len(parts[-1])
    return np.concatenate(parts)[: int(seconds * RATE)]


@pytest.fixture(scope="module")
def llm(model: Path) -> Iterator[LLM]:
    with LLM(model, dtype="float32", device="cpu") as llm:
        yield llm


@pytest.fixture(scope="module")
def clips(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    """Beckett's line, and five sentences of the reading."""
    folder = tmp_path_factory.mktemp("readings")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=pocketsphinx"]
    found = subprocess.run([*pip, f"--dest={folder}", READINGS])
    if found.returncode != 0:
        pytest.skip(f"{READINGS} cannot be fetched")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = sorted(n for n in files.getnames() if "/librivox/" in n and n.endswith(".wav"))
        contents = [files.extractfile(name) for name in names]
        readings = [read_wav(io.BytesIO(content.read())) for content in contents if content]
    return [read_wav(str(recording)), *readings]


def reference(model: Path, samples: np.ndarray) -> tuple[str, list[tuple[float, float, str]]]:
    """Text and segments with words; the language is heard where there is a choice."""
    extractor = WhisperFeatureExtractor.from_pretrained(model)
    features = extractor(
        samples, sampling_rate=RATE, return_tensors="pt", truncation=False, padding="longest"
    ).input_features
    whisper: Any = WhisperForConditionalGeneration.from_pretrained(model, dtype=torch.float32)
    task = {"task": "transcribe"} if whisper.generation_config.is_multilingual else {}
    output = whisper.generate(features, return_timestamps=True, return_segments=True, **task)
    tokenizer = WhisperTokenizer.from_pretrained(model)
    said = [
        (float(s["start"]), float(s["end"]), tokenizer.decode(s["tokens"], skip_special_tokens=True).strip())
        for s in output["segments"][0]
    ]
    text = tokenizer.decode(output["sequences"][0], skip_special_tokens=True).strip()
    return text, [segment for segment in said if segment[2]]


def check_equal(transcript: Transcript, model: Path, samples: np.ndarray) -> None:
    text, segments = reference(model, samples)
    assert transcript.text == text
    assert [segment.text for segment in transcript.segments] == [words for _, _, words in segments]
    for segment, (start, end, _) in zip(transcript.segments, segments, strict=True):
        assert (segment.start, segment.end) == pytest.approx((start, end), abs=1e-6)
    assert len(segments) > len(samples) / RATE / 30


def test_a_recording_of_40_seconds(llm: LLM, model: Path, recording: Path) -> None:
    samples = joined([read_wav(str(recording))], 40, seed=4)
    check_equal(llm.transcribe((samples, RATE)), model, samples)


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "seed"), [(35, 0), (62, 1), (100, 2), (180, 3), (300, 4)])
def test_five_recordings_of_35_to_300_seconds(
    llm: LLM, model: Path, clips: list[np.ndarray], seconds: int, seed: int
) -> None:
    samples = joined(clips, seconds, seed)
    check_equal(llm.transcribe((samples, RATE)), model, samples)
