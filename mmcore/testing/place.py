"""Where in an adapter's own package an error arose: the line that its author has to look at."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from mmcore.manifest import AdapterInfo


def place_of(error: BaseException, info: AdapterInfo) -> str:
    """``"adapter.py:45, in preprocess"``: the innermost line there; empty where none of its lines ran.

    Of an error that was raised on as another, the first one counts.
    """
    package = re.split("[.:]", info.target)[0]
    own = [(frame, line) for frame, line in _frames(error) if _package(frame) == package]
    if not own:
        return ""
    frame, line = own[-1]
    return f"{Path(frame.f_code.co_filename).name}:{line}, in {frame.f_code.co_name}"


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Outermost first, those of what caused it last."""
    yield from traceback.walk_tb(error.__traceback__)
    if error.__cause__ is not None:
        yield from _frames(error.__cause__)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
