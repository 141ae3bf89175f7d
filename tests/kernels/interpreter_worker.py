"""Runs launchers in a process of its own, where triton was imported with its interpreter switched on.

Reads pickled ``(module, function, args, kwargs)`` from stdin, answers ``(result, args)`` or the exception.
An own process, because ``TRITON_INTERPRET`` is read once, when triton is first imported.
"""

from __future__ import annotations

import os
import pickle
import sys
from importlib import import_module
from typing import Any, BinaryIO


def answer(module: str, function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return getattr(import_module(module), function)(*args, **kwargs), args
    except Exception as error:
        return error


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    while True:
        try:
            request = pickle.load(source)
        except EOFError:
            return
        pickle.dump(answer(*request), sink)
        sink.flush()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.buffer, answers)
