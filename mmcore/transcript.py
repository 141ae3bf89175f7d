"""What a recording says: the records that `LLM.transcribe` gives.

An adapter whose `Adapter.transcribes` is True is asked through the ``decoder_options`` of a prompt with one
recording: ``language`` (None: detect it), ``task``, ``timestamps="segment"`` and ``initial_prompt``. The
``fields`` of its `Result` hold ``language``, ``duration``, ``position`` (seconds of sound that are done) and
``segments``, a tuple of (start, end, text). A longer recording is a chain of links: `Decoding.follow_up`.
Each result holds what all links so far came to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmcore.errors import MMCoreError
from mmcore.request import RequestOutput


@dataclass(frozen=True, slots=True)
class TranscriptSegment:
    """What is said from ``start`` to ``end``, seconds from the recording's start."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """One recording's words, whole or so far."""

    text: str
    language: str | None
    """Its code, as named or heard."""
    duration: float
    """Of the recording, in seconds."""
    segments: tuple[TranscriptSegment, ...] = ()
    """In order of time; empty where no timestamps were asked for."""
    position: float = 0.0
    """Seconds of the recording that are transcribed: it grows to ``duration``."""
    error: MMCoreError | None = None
    """Why there is no text: of a recording in a list whose other recordings went on."""


def transcript_of(output: RequestOutput, *, segments: bool) -> Transcript:
    """From what a chain came to, or has come to so far; ``segments``: whether the caller wants them."""
    if output.error is not None:
        return Transcript("", None, 0.0, error=output.error)
    fields: Mapping[str, Any] = output[0].fields
    duration = fields.get("duration", 0.0)
    spoken = fields.get("segments", ()) if segments else ()
    return Transcript(
        text=output.text.strip(),
        language=fields.get("language"),
        duration=duration,
        segments=tuple(TranscriptSegment(*segment) for segment in spoken),
        position=min(fields.get("position", 0.0), duration),
    )
