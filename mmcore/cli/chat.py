"""``mmcore chat``: a conversation with a checkpoint, at a terminal or from a pipe.

Each turn sends the whole conversation; its earlier turns are in the prefix cache and cost nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmcore.cli.chat_line import HELP, ChatLine, Medium, parse_line
from mmcore.cli.exit_code import exit_code
from mmcore.cli.loading import loaded
from mmcore.cli.options import add_model, add_running, add_sampling, sampling
from mmcore.cli.terminal import print_growing
from mmcore.errors import MMCoreError

if TYPE_CHECKING:
    from mmcore import LLM, SamplingParams

PROMPT = "> "


def add_chat_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "chat",
        help="talk with a model, about pictures and sound too",
        description="Talk with a model. Lines come from the terminal or from a pipe.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser)
    parser.add_argument("--system", metavar="TEXT", default="", help="what the model is told first")
    add_sampling(parser)
    add_running(parser)
    parser.set_defaults(run=run_chat)


def run_chat(arguments: argparse.Namespace) -> int:
    params = sampling(arguments)
    with loaded(arguments) as (llm, _):
        session = ChatSession(llm, params, Conversation(arguments.system))
        return session.run(_typed_lines if sys.stdin.isatty() else _piped_lines)


@dataclass
class Conversation:
    """The turns so far, and the media that wait for the next message."""

    system: str = ""
    turns: list[dict[str, Any]] = field(default_factory=list)
    media: list[Medium] = field(default_factory=list)

    @property
    def messages(self) -> list[dict[str, Any]]:
        start = [{"role": "system", "content": self.system}] if self.system else []
        return start + self.turns

    def ask(self, text: str) -> None:
        parts: list[dict[str, Any]] = [
            {"type": m.modality, m.modality: m.path if ":" in m.path else Path(m.path)} for m in self.media
        ]
        if text:
            parts.append({"type": "text", "text": text})
        self.turns.append({"role": "user", "content": parts if self.media else text})
        self.media.clear()

    def answer(self, text: str) -> None:
        """Without a word, the question is taken back too: templates want turns by turns."""
        if text:
            self.turns.append({"role": "assistant", "content": text})
        else:
            self.turns.pop()

    def reset(self) -> None:
        self.turns.clear()
        self.media.clear()


class ChatSession:
    """Reads lines, prints answers. Errors of one message are told and the conversation goes on."""

    def __init__(self, llm: LLM, params: SamplingParams, conversation: Conversation) -> None:
        self._llm = llm
        self._params = params
        self._conversation = conversation
        self._is_typed = sys.stdin.isatty()
        self._code = 0

    def run(self, lines: Callable[[], Iterator[str]]) -> int:
        """The exit code: at a terminal 0, from a pipe that of the last line that failed."""
        self._say("/help lists the commands, Ctrl-D leaves")
        interrupted = False
        reader = lines()
        while True:
            try:
                for line in reader:
                    interrupted = interrupted and not self._is_typed
                    if not self._do(line):
                        return self._code
                return self._code
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted, reader = True, lines()
                print(flush=True)
                self._say("Ctrl-C again leaves")

    def _do(self, line: str) -> bool:
        """False: the conversation is over."""
        try:
            parsed = parse_line(line)
        except MMCoreError as error:
            self._tell(error)
            return True
        if parsed.command == "help":
            print(HELP)
        elif parsed.command == "reset":
            self._conversation.reset()
            self._say("the conversation is forgotten")
        elif not parsed.command:
            self._take(parsed)
        return parsed.command != "exit"

    def _take(self, line: ChatLine) -> None:
        waiting = bool(self._conversation.media)
        self._conversation.media += line.media
        if line.text or (waiting and not line.media):
            self._conversation.ask(line.text)
            self._answer()
        for medium in line.media if not line.text else ():
            self._say(f"{medium.modality} {medium.path}: goes with the next message")

    def _answer(self) -> None:
        text = ""
        handle = self._llm.chat_async(self._conversation.messages, self._params, streaming=True)
        try:
            for output in print_growing(handle):
                text = output.text
            print(flush=True)
        except MMCoreError as error:
            text = ""
            self._tell(error)
        finally:  # an answer that was stopped stays as far as it came
            if not handle.done:
                handle.abort()
            self._conversation.answer(text)

    def _tell(self, error: MMCoreError) -> None:
        print(f"error: {error}", file=sys.stderr, flush=True)
        if not self._is_typed:
            self._code = exit_code(error)

    def _say(self, text: str) -> None:
        """To a person, not into a pipe."""
        if self._is_typed:
            print(f"({text})", file=sys.stderr, flush=True)


def _typed_lines() -> Iterator[str]:
    """With history and editing, until Ctrl-D."""
    import contextlib

    with contextlib.suppress(ImportError):  # it edits what `input` reads, where the platform has it
        import readline  # noqa: F401
    while True:
        try:
            yield input(PROMPT)
        except EOFError:
            print()
            return


def _piped_lines() -> Iterator[str]:
    while line := sys.stdin.readline():
        yield line
