"""Subtitle files: what is written is read back, whatever the words are."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from mmcore.subtitles import srt, vtt
from mmcore.transcript import TranscriptSegment

SEGMENTS = (
    TranscriptSegment(0.0, 2.5, "Ever tried,\n\never failed."),
    TranscriptSegment(3599.9996, 3661.04, "a < b & c --> d"),
    TranscriptSegment(4000.0, 3999.0, " \n "),
    TranscriptSegment(360_000.0, 359_000.0, "late"),
)


def test_srt() -> None:
    assert "".join(srt(SEGMENTS)) == (
        "1\n00:00:00,000 --> 00:00:02,500\nEver tried,\never failed.\n\n"
        "2\n01:00:00,000 --> 01:01:01,040\na < b & c -> d\n\n"
        "3\n100:00:00,000 --> 100:00:00,000\nlate\n\n"
    )


def test_vtt() -> None:
    assert "".join(vtt(SEGMENTS)) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:02.500\nEver tried,\never failed.\n\n"
        "01:00:00.000 --> 01:01:01.040\na &lt; b &amp; c --&gt; d\n\n"
        "100:00:00.000 --> 100:00:00.000\nlate\n\n"
    )


TIME = st.floats(0, 400_000, allow_nan=False)
TEXT = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Z", "Cc"]))


@given(st.lists(st.builds(TranscriptSegment, TIME, TIME, TEXT)))
def test_every_cue_is_read_back(segments: list[TranscriptSegment]) -> None:
    """A WebVTT reader splits at empty lines, and takes a line with an arrow for times."""
    _, *cues = "".join(vtt(segments)).removesuffix("\n\n").split("\n\n")
    spoken = [segment for segment in segments if segment.text.strip()]
    assert len(cues) == len(spoken)
    for cue, segment in zip(cues, spoken, strict=True):
        times, *lines = cue.split("\n")
        start, end = (seconds(time) for time in times.split(" --> "))
        assert abs(start - segment.start) <= 0.0005001
        assert end >= start
        assert not any("-->" in line or not line.strip() for line in lines)
        assert (
            html.unescape("".join(lines)).split()
            == "".join(map(str.strip, segment.text.splitlines())).split()
        )


def seconds(written: str) -> float:
    match = re.fullmatch(r"(\d\d+):([0-5]\d):([0-5]\d)\.(\d{3})", written)
    assert match
    hours, minutes, whole, thousandths = map(int, match.groups())
    return hours * 3600 + minutes * 60 + whole + thousandths / 1000
