"""``mmcore transcribe``: recordings of any length to text, JSON or subtitles."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from mmcore.cli.loading import loaded
from mmcore.cli.options import add_running, check_files
from mmcore.cli.terminal import for_screen

if TYPE_CHECKING:
    from mmcore import LLM, Transcript, TranscriptSegment
    from mmcore.transcribe import TranscriptHandle

FORMATS = {"text": "txt", "json": "json", "srt": "srt", "vtt": "vtt"}
"""Format to file suffix."""


def add_transcribe_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "transcribe",
        help="write down what is said in recordings",
        description=(
            "Write down what is said in each FILE, of any length. All run together and are printed in order, "
            "each segment as soon as it is known."
        ),
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a recording")
    parser.add_argument(
        "--model", metavar="MODEL", required=True, help="a speech recognition checkpoint: folder or hub name"
    )
    parser.add_argument("--language", help="a code or a name (default: what is heard at the start)")
    parser.add_argument("--task", default="transcribe", help="transcribe, or translate into English")
    parser.add_argument(
        "--initial-prompt", metavar="TEXT", help="sets style and spelling of names, as if it came before"
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: %(default)s")
    parser.add_argument(
        "--output", metavar="FOLDER", type=Path, help="write a file for each recording there, print nothing"
    )
    add_running(parser)
    parser.set_defaults(run=run_transcribe)


def run_transcribe(arguments: argparse.Namespace) -> int:
    """A recording that fails is told on standard error, and the others go on."""
    _check_output(arguments)
    check_files(arguments.files)
    with loaded(arguments) as (llm, _), ExitStack() as stack:
        handles = [_start(llm, name, arguments) for name in arguments.files]
        for handle in handles:
            stack.callback(handle.abort)
        codes = [
            _write(handle, name, arguments) for handle, name in zip(handles, arguments.files, strict=True)
        ]
    return max(codes)


def _check_output(arguments: argparse.Namespace) -> None:
    """Raises `ConfigError` where two recordings would share a file."""
    from mmcore.errors import ConfigError

    names = [Path(name).stem for name in arguments.files]
    if arguments.output is None:
        if arguments.format in ("srt", "vtt") and len(names) > 1:
            raise ConfigError(f"{arguments.format} holds one recording: give --output FOLDER for several")
        return
    if len(set(names)) < len(names):
        raise ConfigError("--output names each file after its recording, and two of them have one name")
    arguments.output.mkdir(parents=True, exist_ok=True)


def _start(llm: LLM, name: str, arguments: argparse.Namespace) -> TranscriptHandle:
    return llm.transcribe_async(
        name,
        arguments.language,
        arguments.task,
        initial_prompt=arguments.initial_prompt,
        streaming=True,
    )


def _write(handle: TranscriptHandle, name: str, arguments: argparse.Namespace) -> int:
    """One recording's transcript to its file or to standard output; an exit code."""
    from mmcore.errors import MMCoreError

    try:
        if arguments.output is None:
            _write_to(sys.stdout, handle, name, arguments)
        else:
            target = arguments.output / f"{Path(name).stem}.{FORMATS[arguments.format]}"
            with target.open("w", encoding="utf-8") as stream:
                _write_to(stream, handle, name, arguments)
    except MMCoreError as error:
        print(f"error: {name}: {error}", file=sys.stderr)
        return 2 if error.http_status < 500 else 1
    return 0


def _write_to(stream: TextIO, handle: TranscriptHandle, name: str, arguments: argparse.Namespace) -> None:
    from tqdm import tqdm

    shown = sys.stderr.isatty()
    with tqdm(desc=name, unit="s", unit_scale=True, disable=not shown, leave=False) as bar:
        for piece in _pieces(_heard(handle, bar), name, arguments):
            tqdm.write(for_screen(piece, stream), file=stream, end="")
            stream.flush()


def _heard(handle: TranscriptHandle, bar: Any) -> Iterator[Transcript]:
    """The transcript as it grows, the bar with it: seconds of sound."""
    for transcript in handle:
        bar.total = transcript.duration
        bar.update(transcript.position - bar.n)
        yield transcript


def _pieces(heard: Iterator[Transcript], name: str, arguments: argparse.Namespace) -> Iterator[str]:
    """What is written, piece by piece."""
    from mmcore.subtitles import srt, vtt

    if arguments.format == "json":
        *_, whole = heard
        yield _as_json(whole, name)
    elif arguments.format == "srt":
        yield from srt(_segments(heard))
    elif arguments.format == "vtt":
        yield from vtt(_segments(heard))
    else:
        if arguments.output is None and len(arguments.files) > 1:
            yield f"{name}:\n"
        yield from (f"{segment.text}\n" for segment in _segments(heard))


def _segments(heard: Iterator[Transcript]) -> Iterator[TranscriptSegment]:
    """Each segment once, as soon as it is there."""
    given = 0
    for transcript in heard:
        yield from transcript.segments[given:]
        given = len(transcript.segments)


def _as_json(transcript: Transcript, name: str) -> str:
    """One line for programs; times in seconds."""
    import json
    from dataclasses import asdict

    segments: Sequence[dict[str, Any]] = [asdict(segment) for segment in transcript.segments]
    fields = {"file": name, "text": transcript.text, "language": transcript.language}
    return json.dumps({**fields, "duration": transcript.duration, "segments": segments}) + "\n"
