"""The log: one format, request ids, levels; silent in library use."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mmcore_qwen2vl.testing import write_tiny_checkpoint

from mmcore.cli import main
from mmcore.cli.logs import log_level, logging_to_stderr
from mmcore.errors import ConfigError

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO) mmcore\.\w+ \[(request-0|-)\] ")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny")))


@pytest.mark.parametrize(
    ("before", "after", "variable", "levels"),
    [
        ([], [], "", set()),
        ([], ["--log-level", "info"], "", {"INFO"}),
        (["--log-level", "debug"], [], "", {"INFO", "DEBUG"}),
        ([], [], "Info", {"INFO"}),
        ([], ["--log-level", "error"], "debug", set()),
    ],
)
def test_a_command_logs_what_is_asked_for(
    model: str,
    before: list[str],
    after: list[str],
    variable: str,
    levels: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MMCORE_LOG", variable)
    assert main([*before, "generate", model, "--prompt", "Hello", "--max-tokens", "3", *after]) == 0
    found = [LINE.match(line) for line in capsys.readouterr().err.splitlines()]
    assert {line[1] for line in found if line} == levels
    assert all(found)


def test_a_failed_request_is_logged_with_its_code(
    model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "no.png").write_text("no picture")
    command = ["generate", model, "--image", str(tmp_path / "no.png"), "--log-level", "info"]
    assert main(command) == 2
    assert "[request-0] failed (media_format): " in capsys.readouterr().err


def test_a_wrong_level_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MMCORE_LOG", "loud")
    assert main(["plugins"]) == 2
    assert capsys.readouterr().err.startswith("error: MMCORE_LOG='loud' is no level; use one of debug, ")
    with pytest.raises(ConfigError):
        log_level(None)
    assert log_level("debug") == "debug"


def test_nothing_of_it_stays_after_a_command() -> None:
    logger = logging.getLogger("mmcore")
    before = (logger.level, list(logger.handlers))
    with logging_to_stderr("debug"):
        assert logger.isEnabledFor(logging.DEBUG)
    assert (logger.level, list(logger.handlers)) == before


def test_a_library_is_silent_until_its_user_wants_it() -> None:
    code = (
        "import mmcore.request_log, logging; log = logging.getLogger('mmcore.engine');"
        "log.error('unseen'); logging.basicConfig(format='seen: %(message)s'); log.error('this')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "seen: this\n"


def test_records_without_a_request_have_a_dash() -> None:
    stream, real = io.StringIO(), sys.stderr
    sys.stderr = stream
    try:
        with logging_to_stderr("info"):
            logging.getLogger("mmcore.sample").info("hello")
    finally:
        sys.stderr = real
    assert stream.getvalue().endswith(" INFO mmcore.sample [-] hello\n")
