"""``mmcore generate`` with a tiny random checkpoint."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path

import pytest
from mmcore_qwen2vl.testing import write_tiny_checkpoint
from mmcore_whisper.testing import write_tiny_checkpoint as write_tiny_whisper
from PIL import Image

from mmcore import LLM, SamplingParams, TextPrompt
from mmcore.cli import main
from mmcore.cli.terminal import for_screen
from mmcore.plugins.installed import find_plugins


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def picture(tmp_path: Path) -> str:
    Image.new("RGB", (84, 56), (9, 120, 200)).save(tmp_path / "blue.png")
    return str(tmp_path / "blue.png")


def expected(model: str, picture: str) -> str:
    with LLM(model) as llm:
        prompt = TextPrompt(prompt="Which colour?", multi_modal_data={"image": [picture]})
        return llm.generate(prompt, SamplingParams(max_tokens=6)).text


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_the_text_is_that_of_the_python_api(
    model: str, picture: str, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "generate",
        model,
        "--prompt",
        "Which colour?",
        "--image",
        picture,
        "--max-tokens",
        "6",
        stream,
    ]
    assert main(command) == 0
    assert capsys.readouterr().out == expected(model, picture) + "\n"


@pytest.mark.parametrize("raw", [False, True])
def test_text_alone_is_chat_unless_raw(model: str, raw: bool, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generate", model, "--prompt", "Hello", "--max-tokens", "6", "--json"]
    assert main([*command, "--raw"] if raw else command) == 0
    answer = json.loads(capsys.readouterr().out)
    with LLM(model) as llm:
        params = SamplingParams(max_tokens=6)
        chatted = llm.chat([{"role": "user", "content": "Hello"}], params)
        continued = llm.generate("Hello", params)
    wanted, other = (continued, chatted) if raw else (chatted, continued)
    assert answer["token_ids"] == list(wanted.token_ids)
    assert answer["prompt_tokens"] == len(wanted.prompt_token_ids) != len(other.prompt_token_ids)


def test_without_a_template_text_is_continued(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What goes wrong is then told of the prompt, not of a template that never was."""
    write_tiny_whisper(tmp_path / "whisper")
    assert main(["generate", str(tmp_path / "whisper"), "--prompt", "Hello"]) == 2
    assert "chat template" not in capsys.readouterr().err


def test_json_is_one_object(model: str, picture: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generate", model, "--prompt", "Which?", "--image", picture, "--image", picture, "--json"]
    assert main([*command, "--max-tokens", "5", "--temperature", "1.5", "--seed", "3"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert len(first["token_ids"]) == 5
    assert first["finish_reason"] == "length"
    assert first["encoded_items"] == 1
    assert first["seconds"]["finished"] >= first["seconds"]["first_token"] > 0
    assert main([*command, "--max-tokens", "5", "--temperature", "1.5", "--seed", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["token_ids"] == first["token_ids"]


def test_sound_needs_no_prompt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tiny_whisper(tmp_path / "whisper")
    with wave.open(str(tmp_path / "hum.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(range(256)) * 100)
    command = ["generate", str(tmp_path / "whisper"), "--audio", str(tmp_path / "hum.wav")]
    assert main([*command, "--max-tokens", "4", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert 0 < len(answer["token_ids"]) <= 4
    assert answer["encoded_items"] == 1


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        (["--image", "nowhere.png"], 2, "no such file"),
        (["--audio", __file__], 2, "audio"),
        (["--temperature", "-1"], 2, "temperature"),
        (["--max-tokens", "0"], 2, "max_tokens"),
        (["--adapter", "absent"], 1, "'qwen2vl'"),
    ],
)
def test_mistakes_are_one_line(
    model: str, options: list[str], code: int, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", model, "--prompt", "Hello", *options]) == code
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert named in errors
    assert "Traceback" not in errors


def test_a_missing_file_is_told_before_a_model_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "no-such-model/at-all", "--image", "nowhere.png"]) == 2
    assert "there is no such file: 'nowhere.png'" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_answer_cannot_steer_the_terminal() -> None:
    text = "a\x1b[2Jb\x9bc\rd\x7f\n\té文"
    assert for_screen(text, Terminal()) == "a\ufffd[2Jb\ufffdc\ufffdd\ufffd\n\té文"
    assert for_screen(text, io.StringIO()) == text


def test_a_folder_that_is_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(tmp_path), "--prompt", "Hello"]) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_an_unknown_architecture_names_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [plugin for plugin in find_plugins("mmcore") if plugin.origin.name != "blip2"]
    monkeypatch.setattr("mmcore.plugins.discovery.find_plugins", lambda group: iter(others))
    config = {"architectures": ["Blip2ForConditionalGeneration"], "model_type": "blip-2"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["generate", str(tmp_path), "--prompt", "Hello"]) == 1
    assert "pip install mmcore-plugin-blip2" in capsys.readouterr().err
