"""Sound and video containers opened by PyAV (the extra ``media``), from bytes in memory alone.

The format is told by its first bytes, here, and only that demuxer runs: FFmpeg knows playlists and
scripts that open other files and addresses, and none of them is ever asked.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mmcore.errors import MediaFormatError, MediaLimitError, MissingExtraError
from mmcore.inputs.claims import checked
from mmcore.inputs.container import describe, format_name

if TYPE_CHECKING:
    from av.container import InputContainer

DEMUXERS = {"FLAC": "flac", "Ogg": "ogg", "MP3": "mp3", "MP4 or M4A": "mov", "WebM or Matroska": "matroska"}
ACCEPTED = "FLAC, Ogg, MP3, MP4, M4A, WebM, Matroska"


@contextmanager
def open_container(data: bytes) -> Iterator[InputContainer]:
    """An ``av`` input container over ``data``, closed at the end.

    What av raises inside becomes a `MediaFormatError`, or a `MediaLimitError` where memory ends. Raises
    `MissingExtraError` without PyAV.
    """
    name = format_name(data)
    if name not in DEMUXERS:
        raise MediaFormatError(f"{describe(data)}; accepted: {ACCEPTED}")
    av = _import_av()
    file = io.BytesIO(checked(name, data))
    try:
        with av.open(file, format=DEMUXERS[name], metadata_errors="ignore", io_open=_refuse) as container:
            yield container
    except MemoryError:
        raise MediaLimitError(f"the {name} does not fit into memory") from None
    except av.FFmpegError:
        raise MediaFormatError(f"the {name} cannot be decoded: it is truncated or damaged") from None


def _import_av() -> Any:
    try:
        import av
    except ImportError:
        raise MissingExtraError(
            "compressed sound and video need PyAV: pip install 'mmcore-runtime[media]'"
        ) from None
    return av


def _refuse(url: str, flags: int, options: dict[str, str]) -> Any:
    """Whatever else a container would open."""
    raise MediaFormatError("the container refers to another file")
