"""Transcripts as subtitle files: SubRip (SRT) and WebVTT (https://www.w3.org/TR/webvtt1/)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mmcore.transcript import TranscriptSegment

_ARROW = "-->"


def srt(segments: Iterable[TranscriptSegment]) -> Iterator[str]:
    """Numbered cues in order of time, each ended by an empty line.

    SubRip has no escapes: an arrow in a text, which readers take for a time line, loses a dash.
    """
    for number, (segment, lines) in enumerate(_cues(segments), start=1):
        words = "\n".join(lines).replace(_ARROW, "->")
        yield f"{number}\n{_times(segment, _srt_time)}\n{words}\n\n"


def vtt(segments: Iterable[TranscriptSegment]) -> Iterator[str]:
    """The header, then cues in order of time, each ended by an empty line; ``&``, ``<``, ``>`` escaped."""
    yield "WEBVTT\n\n"
    for segment, lines in _cues(segments):
        words = "\n".join(lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        yield f"{_times(segment, _vtt_time)}\n{words}\n\n"


def _cues(segments: Iterable[TranscriptSegment]) -> Iterator[tuple[TranscriptSegment, list[str]]]:
    """Segments with words and their lines. An empty line would end a cue in its middle."""
    for segment in segments:
        lines = [line for line in map(str.strip, segment.text.splitlines()) if line]
        if lines:
            yield segment, lines


def _times(segment: TranscriptSegment, written: Callable[[float], str]) -> str:
    """A cue ends no earlier than it starts."""
    return f"{written(segment.start)} {_ARROW} {written(max(segment.start, segment.end))}"


def _srt_time(seconds: float) -> str:
    """``01:02:03,450``."""
    return _vtt_time(seconds).replace(".", ",")


def _vtt_time(seconds: float) -> str:
    """``01:02:03.450``; hours may have more digits."""
    whole, milliseconds = divmod(round(max(0.0, seconds) * 1000), 1000)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours:02}:{minute:02}:{second:02}.{milliseconds:03}"
