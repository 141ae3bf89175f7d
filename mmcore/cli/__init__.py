"""The command line: ``mmcore chat``, ``mmcore generate`` and others, and the commands that plugins add.

Exit codes: 0 done, 1 the model, a plugin or mmcore failed, 2 the caller's mistake, 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from mmcore.cli.exit_code import exit_code
from mmcore.cli.logs import log_level, logging_to_stderr
from mmcore.cli.parser import build_parser
from mmcore.errors import MMCoreError
from mmcore.plugins import load_plugins

DEBUG_VARIABLE = "MMCORE_DEBUG"
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code. ``MMCORE_DEBUG=1`` lets errors through with a traceback."""
    try:
        return _run(argv)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_is_gone()
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE, "0") != "0":
            raise
        return _tell(error)


def _run(argv: Sequence[str] | None) -> int:
    parser = build_parser(load_plugins())
    arguments = parser.parse_args(argv)
    if not hasattr(arguments, "run"):
        parser.print_help(sys.stderr)
        return 2
    with logging_to_stderr(log_level(getattr(arguments, "log_level", None))):
        code: int = arguments.run(arguments)
    sys.stdout.flush()
    return code


def _tell(error: Exception) -> int:
    """One line on stderr; what is no `MMCoreError`, nor a full disk, is a fault of mmcore or of a plugin."""
    if isinstance(error, MMCoreError):
        print(f"error: {error}", file=sys.stderr)
        return exit_code(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        print(f"error: {error.strerror}", file=sys.stderr)
        return 1
    print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
    print(f"This is a bug; {DEBUG_VARIABLE}=1 shows where it happened.", file=sys.stderr)
    return 1


def _reader_is_gone() -> int:
    """``mmcore ... | head``: nobody reads on, and Python's flush at exit must not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
