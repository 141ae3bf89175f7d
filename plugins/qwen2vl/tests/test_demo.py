"""``mmcore demo``: what it shows, with a tiny random checkpoint in the reader's place."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from mmcore_qwen2vl import cli, terminal
from mmcore_qwen2vl.testing import write_tiny_checkpoint
from PIL import Image

from mmcore.cli import main


class Screen(io.TextIOWrapper):
    """A stream that says whether it is a terminal."""

    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """448 x 56, red above and blue below."""
    image = Image.new("RGB", (448, 56), (255, 0, 0))
    image.paste((0, 0, 255), (0, 28, 448, 56))
    image.save(tmp_path / "line.png")
    return tmp_path / "line.png"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


def test_a_second_question_needs_no_second_run_of_the_encoder(
    model: Path, picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--model", str(model), "--image", str(picture)]) == 0
    text = capsys.readouterr().out
    assert f"picture  {picture} (448 x 56)" in text
    assert re.findall(r"^question (.*)$", text, re.MULTILINE) == list(cli.QUESTIONS)
    assert text.count("the encoder ran") == 1
    assert text.count("the encoder did not run") == 1
    assert "2 questions, 1 encoder run, " in text
    assert "\x1b" not in text
    costs = [line for line in text.split("\n") if line.startswith((" " * 9, "engine "))]
    assert len(costs) == 5
    assert max(map(len, costs)) <= 80, "wraps in a usual terminal"


def test_the_reader_that_is_shipped_reads_the_picture_that_is_shipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo"]) == 0
    answers = re.findall(r"^answer   (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert answers == ["harbour lights"] * 2


def test_own_question(model: Path, picture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["demo", "--model", str(model), "--image", str(picture), "--question", "Which colour?"]
    assert main(arguments) == 0
    assert re.findall(r"^question (.*)$", capsys.readouterr().out, re.MULTILINE) == ["Which colour?"]


def test_a_file_that_is_no_picture_is_a_mistake_of_the_caller(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.png").write_text("these are notes")
    assert main(["demo", "--model", str(model), "--image", str(tmp_path / "notes.png")]) == 2
    shown = capsys.readouterr()
    assert re.search(r"^error: ", shown.err, re.MULTILINE)
    assert shown.out.endswith("\n"), "the error would stand on the answer's line"


def test_a_missing_picture_is_told_before_anything_is_loaded(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--model", str(model), "--image", "nowhere.png"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "error: there is no such file: 'nowhere.png'\n"


def test_a_picture_in_the_home_folder(
    model: Path, picture: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(picture.parent))
    assert main(["demo", "--model", str(model), "--image", "~/line.png", "--question", "What?"]) == 0
    shown = capsys.readouterr().out
    assert "(448 x 56)" in shown
    assert "engine   1 question, 1 encoder run, " in shown


def test_a_missing_checkpoint_says_what_to_do(
    tmp_path: Path, picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--model", str(tmp_path), "--image", str(picture)]) == 1
    assert "reinstall mmcore-plugin-qwen2vl" in capsys.readouterr().err


def test_the_drawing_has_the_pictures_colours_and_shape(
    picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "65")
    lines = terminal.draw(picture).split("\n")
    assert len(lines) == 4
    assert {line.count(terminal.HALF_BLOCK) for line in lines} == {64}
    assert "\x1b[38;2;255;0;0;48;2;255;0;0m" in lines[0]
    assert "\x1b[38;2;0;0;255;48;2;0;0;255m" in lines[-1]


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (900, 1), (7, 3)])
def test_odd_pictures_are_drawn(size: tuple[int, int], tmp_path: Path) -> None:
    Image.new("L", size, 128).save(tmp_path / "odd.png")
    drawing = terminal.draw(tmp_path / "odd.png")
    assert 1 <= len(drawing.split("\n")) <= terminal.MAX_ROWS


@pytest.mark.parametrize(
    ("is_terminal", "encoding", "environ", "coloured"),
    [
        (True, "utf-8", {"TERM": "xterm-256color"}, True),
        (False, "utf-8", {"TERM": "xterm-256color"}, False),
        (True, "ascii", {"TERM": "xterm-256color"}, False),
        (True, "utf-8", {"TERM": "dumb"}, False),
        (True, "utf-8", {"TERM": "xterm-256color", "NO_COLOR": ""}, False),
    ],
)
def test_colours_only_where_they_can_be_shown(
    is_terminal: bool,
    encoding: str,
    environ: dict[str, str],
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert terminal.has_colours(Screen(terminal=is_terminal, encoding=encoding)) is coloured
