"""One line of a conversation, as it was typed: a command, or a message with files in front."""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from mmcore.errors import InputError, MediaFileError

MODALITIES = ("image", "audio", "video")
HELP = """\
/image FILE   adds a picture to the next message; so do /audio and /video
/reset        forgets the conversation
/help         shows this
/exit         leaves, as Ctrl-D does
Files named at the start of a message are added to it.
An empty line sends files alone.
Ctrl-C stops an answer, a second one leaves."""


@dataclass(frozen=True, slots=True)
class Medium:
    """A file, or a URL that the media policy will see."""

    modality: str
    path: str


@dataclass(frozen=True, slots=True)
class ChatLine:
    """``command`` is empty for a message. Its media belong to the message that they stand before."""

    command: str = ""
    text: str = ""
    media: tuple[Medium, ...] = ()


def parse_line(line: str) -> ChatLine:
    """Raises `InputError` for an unknown command or one that lacks its file, `MediaFileError` for no file."""
    line = line.strip()
    media, text = _leading_files(line)
    first, _, argument = line.partition(" ")
    if media or not first.startswith("/"):
        return ChatLine(text=text, media=media)
    command = first[1:]
    if "/" in command and _modality_of(command):
        raise MediaFileError(f"there is no such file: {first!r}")
    if "/" in command:
        return ChatLine(text=text)
    if command in MODALITIES:
        return ChatLine(media=tuple(_named(command, argument)))
    if command not in ("reset", "help", "exit", "quit"):
        raise InputError(f"there is no command /{command}; /help lists them")
    return ChatLine(command="exit" if command == "quit" else command)


def _named(modality: str, argument: str) -> Iterator[Medium]:
    words = [word for word, _ in _words(argument)]
    if not words:
        raise InputError(f"/{modality} needs a file: /{modality} FILE")
    for word in [argument.strip()] if os.path.isfile(_expanded(argument.strip())) else words:
        if ":" not in word and not os.path.isfile(_expanded(word)):
            raise MediaFileError(f"there is no such file: {word!r}")
        yield Medium(modality, _expanded(word))


def _leading_files(line: str) -> tuple[tuple[Medium, ...], str]:
    """Files at the start of the line whose names say what they are, and the rest."""
    media: list[Medium] = []
    end = 0
    for word, stop in _words(line):
        modality = _modality_of(word)
        if modality is None or not os.path.isfile(_expanded(word)):
            break
        media.append(Medium(modality, _expanded(word)))
        end = stop
    return tuple(media), line[end:].strip()


def _words(line: str) -> Iterator[tuple[str, int]]:
    """Words as a shell would read them, and where each ends; an open quote ends the list."""
    stream = io.StringIO(line)
    lexer = shlex.shlex(stream, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        for word in lexer:
            yield word, stream.tell()
    except ValueError:
        return


def _modality_of(name: str) -> str | None:
    import mimetypes

    kind = (mimetypes.guess_type(name)[0] or "").partition("/")[0]
    return kind if kind in MODALITIES else None


def _expanded(name: str) -> str:
    return os.path.expanduser(name)
