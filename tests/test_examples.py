"""The examples run, with a tiny random checkpoint in the reader's place."""

from __future__ import annotations

import importlib.util
import re
import wave
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from mmcore_qwen2vl.testing import write_tiny_checkpoint
from mmcore_whisper.testing import write_tiny_checkpoint as write_tiny_whisper
from PIL import Image

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name: str) -> Callable[[Sequence[str]], None]:
    """An example's `main`."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    main: Callable[[Sequence[str]], None] = module.main
    return main


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("pictures")
    for name, colour in (("red", (200, 0, 0)), ("green", (0, 200, 0))):
        Image.new("RGB", (84, 56), colour).save(folder / f"{name}.png")
    return sorted(str(path) for path in folder.glob("*.png"))


def test_read_pictures_encodes_each_picture_once(
    model: str, pictures: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    example("read_pictures")([*pictures, "--model", model])
    text = capsys.readouterr().out
    assert text.endswith("6 prompts, 2 encoder runs\n")
    assert len(re.findall(r"^green\.png ", text, re.MULTILINE)) == 3


def test_stream_answers_brings_a_picture(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    example("stream_answers")(["--model", model])
    assert capsys.readouterr().out.startswith(("What does", "Read this"))


def test_stream_answers_prints_two_growing_answers(
    model: str, pictures: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    example("stream_answers")([pictures[0], "--model", model])
    lines = capsys.readouterr().out.split("\n")
    for question in ("What does the picture say?", "Read this picture."):
        assert sum(line.startswith(question) for line in lines) > 1


def test_video_says_how_much_is_seen(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """16 frames at 8 a second are 4 at 2 a second, and 8 at 4."""
    example("video")(["--model", model])
    assert capsys.readouterr().out.startswith("drawn: 4 frames, ")
    example("video")(["--model", model, "--fps", "4"])
    assert capsys.readouterr().out.startswith("drawn: 8 frames, ")


def test_transcribe_prints_the_segments_of_each_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tiny_whisper(tmp_path / "whisper")
    with wave.open(str(tmp_path / "hum.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(range(256)) * 300)
    recordings = [str(tmp_path / "hum.wav")] * 2
    example("transcribe")([*recordings, "--model", str(tmp_path / "whisper"), "--language", "de"])
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("hum.wav: 2.4 s, language de") == 2
    assert len(lines) > 2
