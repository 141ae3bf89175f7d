"""The command as a process: exit codes, one-line errors, plugins that misbehave."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mmcore
from mmcore.cli import main
from mmcore.errors import CheckpointError, MediaFormatError

COMMANDS = """
from mmcore import hookimpl
from mmcore.errors import InputError

@hookimpl
def mmcore_add_cli_commands(subparsers):
    for name, run in (("say", say), ("refuse", refuse), ("break", fail), ("wait", wait), ("spill", spill)):
        subparsers.add_parser(name, help="a command of a plugin").set_defaults(run=run)

def say(arguments):
    print("hello from a plugin")
    return 7

def refuse(arguments):
    raise InputError("the picture is upside down; turn it")

def fail(arguments):
    raise ZeroDivisionError("by zero")

def wait(arguments):
    import time
    print("waiting", flush=True)
    time.sleep(30)

def spill(arguments):
    for line in range(100_000):
        print("line", line)
    return 0
"""
CLASHING = """
from mmcore import hookimpl

@hookimpl
def mmcore_add_cli_commands(subparsers):
    raise RuntimeError("no command today")
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment in which a plugin with commands, and one that fails to add any, are installed."""
    for name, source in (("commands", COMMANDS), ("clashing", CLASHING)):
        info = tmp_path / f"fake_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: fake-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[mmcore]\n{name} = fake_{name}\n")
        (tmp_path / f"fake_{name}.py").write_text(source)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def run(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mmcore", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60, check=False)


def test_version() -> None:
    done = run(dict(os.environ), "--version")
    assert (done.returncode, done.stdout) == (0, f"mmcore {mmcore.__version__}\n")


def test_help_lists_the_commands_of_plugins(environ: dict[str, str]) -> None:
    done = run(environ, "--help")
    assert done.returncode == 0
    for command in ("generate", "plugins", "say"):
        assert re.search(rf"^    {command} ", done.stdout, re.MULTILINE)


def test_a_plugin_that_cannot_add_commands_is_named_and_left_out(environ: dict[str, str]) -> None:
    done = run(environ, "say")
    assert (done.returncode, done.stdout) == (7, "hello from a plugin\n")
    assert "plugin 'clashing' (fake-clashing 1.0) could not add its commands" in done.stderr
    assert "no command today" in done.stderr


def test_the_exit_code_tells_whose_fault_it_is(environ: dict[str, str]) -> None:
    refused, broken = run(environ, "refuse"), run(environ, "break")
    assert refused.returncode == 2
    assert "\nerror: the picture is upside down; turn it\n" in refused.stderr
    assert broken.returncode == 1
    assert "\nerror: ZeroDivisionError: by zero\n" in broken.stderr
    assert "Traceback" not in refused.stderr + broken.stderr


def test_debug_shows_the_traceback(environ: dict[str, str]) -> None:
    done = run({**environ, "MMCORE_DEBUG": "1"}, "refuse")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "upside down" in done.stderr


def test_interrupted(environ: dict[str, str]) -> None:
    command = [sys.executable, "-m", "mmcore", "wait"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "Traceback" not in errors


def test_a_reader_that_goes_away_is_no_traceback(environ: dict[str, str]) -> None:
    command = [sys.executable, "-m", "mmcore", "spill"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "line 0\n"
        child.stdout.close()
        assert child.stderr is not None
        errors = child.stderr.read()
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


def test_a_full_disk_is_no_bug(environ: dict[str, str]) -> None:
    command = [sys.executable, "-m", "mmcore", "plugins"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environ)
    assert done.returncode == 1
    assert done.stderr.endswith("error: No space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["bogus"], "bogus"),
        (["generate"], "MODEL"),
        (["generate", "m", "--max-tokens", "many"], "many"),
        (["generate", "m", "--dtype", "int3"], "int3"),
        (["plugins", "--yaml"], "--yaml"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    first, hint, _ = capsys.readouterr().err.split("\n")
    assert first.startswith("error: ")
    assert named in first
    assert "--help" in hint


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "generate" in capsys.readouterr().err


def test_a_strict_environment_fails_the_command(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "fake_commands.py").write_text("import nowhere_at_all")
    listed = run(environ, "plugins", "--json")
    assert listed.returncode == 0
    broken = {entry["name"]: entry for entry in json.loads(listed.stdout)["plugins"]}["commands"]
    assert (broken["status"], broken["distribution"]) == ("broken", "fake-commands")
    assert "1 plugin(s) did not load" in run(environ, "--help").stdout
    done = run({**environ, "MMCORE_STRICT_PLUGINS": "1"}, "plugins")
    assert done.returncode == 1
    assert done.stderr.startswith("error: plugin 'commands' (fake-commands 1.0) did not load")


def test_status_of_error_kinds() -> None:
    """The exit code follows `http_status`: what a caller can mend is 2."""
    assert MediaFormatError.http_status < 500 <= CheckpointError.http_status
