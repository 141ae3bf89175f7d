"""``mmcore chat``: lines, turns, files, errors, from a pipe."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from mmcore_qwen2vl.testing import write_tiny_checkpoint
from PIL import Image

from mmcore import LLM, SamplingParams
from mmcore.cli import main
from mmcore.cli.chat import Conversation
from mmcore.cli.chat_line import HELP, ChatLine, Medium, parse_line
from mmcore.errors import InputError, MediaFileError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def picture(tmp_path: Path) -> str:
    Image.new("RGB", (84, 56), (9, 120, 200)).save(tmp_path / "two words.png")
    return str(tmp_path / "two words.png")


def chat(monkeypatch: pytest.MonkeyPatch, model: str, lines: str, *options: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    return main(["chat", model, "--max-tokens", "6", "--temperature", "0", *options])


# ------------------------------------------------------------------ lines


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("  Hello, you \n", ChatLine(text="Hello, you")),
        ("", ChatLine()),
        ("/reset", ChatLine(command="reset")),
        ("/quit", ChatLine(command="exit")),
        ("/image https://host/cat.png", ChatLine(media=(Medium("image", "https://host/cat.png"),))),
        ("it's an open quote", ChatLine(text="it's an open quote")),
        ("absent.png what is it?", ChatLine(text="absent.png what is it?")),
        ("{own} is no picture", ChatLine(text="{own} is no picture")),
        ("/audio {cat}", ChatLine(media=(Medium("audio", "{cat}"),))),
        ("/image {cat} '{cat}'", ChatLine(media=(Medium("image", "{cat}"), Medium("image", "{cat}")))),
        ("{cat} what's this", ChatLine(text="what's this", media=(Medium("image", "{cat}"),))),
        ("{cat}", ChatLine(media=(Medium("image", "{cat}"),))),
    ],
)
def test_a_line_is_a_command_or_a_message(tmp_path: Path, line: str, meaning: ChatLine) -> None:
    cat = tmp_path / "cat.png"
    cat.touch()
    names = {"cat": str(cat), "own": __file__}
    media = tuple(Medium(m.modality, m.path.format(**names)) for m in meaning.media)
    expected = ChatLine(meaning.command, meaning.text.format(**names), media)
    assert parse_line(line.format(**names)) == expected


def test_a_name_with_blanks_is_quoted_or_follows_a_command(picture: str) -> None:
    medium = (Medium("image", picture),)
    assert parse_line(f"/image {picture}").media == medium
    assert parse_line(f"'{picture}' what is it?") == ChatLine(text="what is it?", media=medium)


@pytest.mark.parametrize(
    ("line", "error", "named"),
    [
        ("/bogus", InputError, "/help"),
        ("/image", InputError, "/image FILE"),
        ("/image a.png", MediaFileError, "'a.png'"),
        ("/nowhere/a.png what is it?", MediaFileError, "'/nowhere/a.png'"),
    ],
)
def test_a_wrong_line_says_what_is_right(line: str, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=re.escape(named)):
        parse_line(line)


def test_a_question_without_an_answer_is_taken_back() -> None:
    talk = Conversation("Be brief.")
    talk.ask("Hello")
    talk.answer("")
    assert talk.messages == [{"role": "system", "content": "Be brief."}]
    talk.ask("Hello")
    talk.answer("Hi")
    assert [turn["role"] for turn in talk.messages] == ["system", "user", "assistant"]
    talk.reset()
    assert [turn["role"] for turn in talk.messages] == ["system"]


def test_the_help_fits_a_narrow_terminal() -> None:
    assert max(map(len, HELP.splitlines())) < 80


# ------------------------------------------------------------------ turns


def answers(model: str, picture: str) -> list[str]:
    """The same conversation through the Python API, and a new one after it."""
    params = SamplingParams(max_tokens=6, temperature=0)
    parts = [{"type": "image", "image": picture}, {"type": "text", "text": "Which colour?"}]
    turns: list[dict[str, object]] = [{"role": "user", "content": parts}]
    with LLM(model) as llm:
        first = llm.chat(turns, params).text
        turns += [{"role": "assistant", "content": first}, {"role": "user", "content": "Why?"}]
        return [first, llm.chat(turns, params).text, llm.chat([turns[-1]], params).text]


def test_a_conversation_keeps_its_turns_and_its_cache(
    model: str, picture: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = f"/image {picture}\nWhich colour?\nWhy?\n/reset\nWhy?\n/exit\nnever read\n"
    assert chat(monkeypatch, model, lines, "--log-level", "info") == 0
    shown = capsys.readouterr()
    expected = answers(model, picture)
    assert shown.out == "".join(f"{text}\n" for text in expected)
    assert expected[1] != expected[2], "the second turn knows the first"
    pattern = r"\[(request-\d)\] finished .* (\d+) of \d+ prompt tokens cached, (\d) items"
    logged = re.findall(pattern, shown.err)
    assert [name for name, _, _ in logged] == ["request-0", "request-1", "request-2"]
    assert int(logged[1][1]) > 0, "the second turn computes the first again"
    assert [items for _, _, items in logged] == ["1", "0", "0"]


def test_an_error_is_told_and_the_conversation_goes_on(
    model: str, picture: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = f"/image absent.png\n/audio {picture}\nWhat?\nWhy?\n"
    assert chat(monkeypatch, model, lines) == 2
    shown = capsys.readouterr()
    assert shown.out == answers(model, picture)[2] + "\n"
    assert [line.startswith("error: ") for line in shown.err.splitlines()] == [True, True]
    assert "absent.png" in shown.err
    assert "audio" in shown.err


def test_an_empty_line_sends_files_alone(
    model: str, picture: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, model, f"'{picture}'\n\n\n") == 0
    assert len(capsys.readouterr().out.splitlines()) >= 1
