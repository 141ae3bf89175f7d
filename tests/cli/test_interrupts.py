"""Ctrl-C, in real processes: nothing is left behind. The last test has a real terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mmcore_qwen2vl.testing import write_tiny_checkpoint

LONG = ["--max-tokens", "100000", "--temperature", "3", "--seed", "1"]
TERMINAL = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
"""Gives its arguments a terminal of their own; what is written to its standard input is typed there."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny")))


@contextmanager
def running(tmp_path: Path, *command: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own; at the end neither a process nor a temporary file is left of it."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    child = subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(scratch), "OMP_NUM_THREADS": "1", **environ},
    )
    try:
        yield child
        child.wait(timeout=60)
        with pytest.raises(ProcessLookupError):
            os.killpg(child.pid, 0)
        assert list(scratch.iterdir()) == []
    finally:
        child.kill()
        child.communicate()


def read_until(child: subprocess.Popen[bytes], text: bytes) -> bytes:
    """Standard output up to ``text``, and not a byte of what follows."""
    assert child.stdout is not None
    seen = b""
    while not seen.endswith(text):
        more = os.read(child.stdout.fileno(), 1)
        assert more, f"the process ended after {seen!r}"
        seen += more
    return seen


def write(child: subprocess.Popen[bytes], text: bytes) -> None:
    assert child.stdin is not None
    child.stdin.write(text)
    child.stdin.flush()


def errors(child: subprocess.Popen[bytes]) -> str:
    assert child.stderr is not None
    return child.stderr.read().decode()


@pytest.mark.parametrize("seconds", [0.7, 1.5])
def test_while_it_loads(tmp_path: Path, model: str, seconds: float) -> None:
    with running(tmp_path, "-m", "mmcore", "generate", model, "--prompt", "Hello", *LONG) as child:
        time.sleep(seconds)
        child.send_signal(signal.SIGINT)
        assert errors(child) in ("interrupted\n", "")
    # Python itself ends by the signal where that came before main(), or inside an exec of a string
    assert child.returncode in (130, -signal.SIGINT)


def test_while_it_answers(tmp_path: Path, model: str) -> None:
    with running(tmp_path, "-m", "mmcore", "generate", model, "--prompt", "Hello", *LONG) as child:
        assert child.stdout is not None
        os.read(child.stdout.fileno(), 1)
        child.send_signal(signal.SIGINT)
        assert "Traceback" not in errors(child)
    assert child.returncode == 130


def test_in_a_chat_the_first_stops_the_answer_and_the_second_leaves(tmp_path: Path, model: str) -> None:
    with running(tmp_path, "-m", "mmcore", "chat", model, *LONG) as child:
        write(child, b"Hello\n")
        assert child.stdout is not None
        os.read(child.stdout.fileno(), 1)
        child.send_signal(signal.SIGINT)
        read_until(child, b"\n")
        write(child, b"/help\n")
        read_until(child, b"/reset")
        child.send_signal(signal.SIGINT)
        assert errors(child) == "interrupted\n"
    assert child.returncode == 130


def test_at_a_terminal(tmp_path: Path, model: str) -> None:
    command = ["-c", TERMINAL, sys.executable, "-m", "mmcore", "chat", model, *LONG]
    with running(tmp_path, *command, NO_COLOR="1", TERM="xterm", COLUMNS="40") as child:
        assert b"loading" in read_until(child, b"> ")
        write(child, b"Hello\n")
        read_until(child, b"Hello\r\n")
        assert child.stdout is not None
        os.read(child.stdout.fileno(), 1)
        write(child, b"\x03")
        read_until(child, b"(Ctrl-C again leaves)")
        write(child, b"/help\n")
        assert b"/reset" in read_until(child, b"leaves.")
        read_until(child, b"> ")  # typed before it, in cooked mode, Ctrl-D would be lost
        write(child, b"\x04")
    assert child.returncode == 0
