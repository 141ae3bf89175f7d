"""What goes to a terminal: answers as they grow, and a word while something takes long."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from mmcore import RequestOutput

CONTROLS = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Characters that would steer a terminal, and what stands for them there."""


def for_screen(text: str, stream: TextIO) -> str:
    """A model's text as it may go to ``stream``: a file or pipe gets all of it, a terminal no escapes."""
    return text.translate(CONTROLS) if stream.isatty() else text


def print_growing(outputs: Iterable[RequestOutput]) -> Iterator[RequestOutput]:
    """Print what each output adds to the one before, and give it on."""
    shown = 0
    for output in outputs:
        sys.stdout.write(for_screen(output.text[shown:], sys.stdout))
        sys.stdout.flush()
        shown = len(output.text)
        yield output


def is_dumb(stream: TextIO) -> bool:
    """Whether ``stream`` is no terminal, or one that knows no escapes."""
    return not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb"


def has_colours(stream: TextIO) -> bool:
    return not is_dumb(stream) and not os.environ.get("NO_COLOR")


@contextmanager
def notice(text: str) -> Iterator[None]:
    """Stands on standard error while the block runs; only a terminal sees it, and no trace stays there."""
    if is_dumb(sys.stderr):
        yield
        return
    width = columns()
    print(text if len(text) < width else f"{text[: width - 4]}...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def columns() -> int:
    """Of the terminal, 80 where there is none."""
    import shutil

    return max(shutil.get_terminal_size().columns, 8)
