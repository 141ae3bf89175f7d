"""``mmcore transcribe`` with a tiny random checkpoint."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest
from mmcore_qwen2vl.testing import write_tiny_checkpoint as write_tiny_reader
from mmcore_whisper.testing import write_tiny_checkpoint

from mmcore import LLM, Transcript
from mmcore.cli import main
from mmcore.subtitles import srt, vtt


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two recordings of several windows (1 s each)."""
    folder = tmp_path_factory.mktemp("recordings")
    for name, seed in (("one", 1), ("two", 2)):
        samples = np.random.default_rng(seed).normal(0, 6000, 16_000 * 3).astype("<i2")
        samples[16_000:20_000] = 0
        with wave.open(str(folder / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", ""))
            file.writeframes(samples.tobytes())
    return [str(folder / "one.wav"), str(folder / "two.wav")]


@pytest.fixture(scope="module")
def expected(model: str, files: list[str]) -> list[Transcript]:
    with LLM(model) as llm:
        return llm.transcribe(list(files), "de", use_tqdm=False)


def written(segments: Transcript, kind: str) -> str:
    if kind == "text":
        return "".join(f"{segment.text}\n" for segment in segments.segments)
    return "".join((srt if kind == "srt" else vtt)(segments.segments))


@pytest.mark.parametrize("kind", ["text", "srt", "vtt"])
def test_one_recording_goes_to_standard_output(
    model: str, files: list[str], expected: list[Transcript], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["transcribe", files[0], "--model", model, "--language", "de", "--format", kind]) == 0
    printed = capsys.readouterr()
    assert printed.out == written(expected[0], kind)
    assert len(expected[0].segments) > 1
    assert printed.err == "", "no bar where nobody looks"


def test_json_is_one_line_a_recording(
    model: str, files: list[str], expected: list[Transcript], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["transcribe", *files, "--model", model, "--language", "german", "--format", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["file"] for line in lines] == files
    for line, transcript in zip(lines, expected, strict=True):
        assert (line["text"], line["language"], line["duration"]) == (transcript.text, "de", 3.0)
        segments = [(segment["start"], segment["end"], segment["text"]) for segment in line["segments"]]
        assert segments == [(one.start, one.end, one.text) for one in transcript.segments]


def test_several_subtitle_files_need_a_folder(
    model: str,
    files: list[str],
    expected: list[Transcript],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["transcribe", *files, "--model", model, "--language", "de", "--format", "vtt"]
    assert main(command) == 2
    assert "--output FOLDER" in capsys.readouterr().err
    assert main([*command, "--output", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == ""
    for name, transcript in zip(("one", "two"), expected, strict=True):
        assert (tmp_path / "out" / f"{name}.vtt").read_text(encoding="utf-8") == written(transcript, "vtt")


def test_a_recording_that_fails_stops_no_other(
    model: str,
    files: list[str],
    expected: list[Transcript],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "bad.wav").write_bytes(b"RIFF")
    bad = str(tmp_path / "bad.wav")
    assert main(["transcribe", bad, files[0], "--model", model, "--language", "de"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {bad}: ")
    assert printed.err.count("\n") == 1
    assert printed.out.endswith(f"{files[0]}:\n{written(expected[0], 'text')}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.wav", "--model", "MODEL"], "no such file: 'nowhere.wav'"),
        (["FILE", "--model", "MODEL", "--language", "klingon"], "language='klingon'"),
        (["FILE", "--model", "MODEL", "--task", "sing"], "task='sing'"),
        (["FILE", "FILE", "--model", "MODEL", "--output", "FOLDER"], "two of them have one name"),
    ],
)
def test_mistakes_are_told_in_one_line(
    model: str,
    files: list[str],
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stand_ins = {"MODEL": model, "FILE": files[0], "FOLDER": str(tmp_path)}
    assert main(["transcribe", *(stand_ins.get(word, word) for word in arguments)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_model_that_does_not_transcribe_says_so(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tiny_reader(tmp_path)
    assert main(["transcribe", files[0], "--model", str(tmp_path)]) == 2
    assert "adapter 'qwen2vl' does not transcribe" in capsys.readouterr().err
