"""What one decoded window says: its segments, and where the next window starts.

Source: `_retrieve_segment` of transformers 5.24 (`transcribe` of openai/whisper does the same). Positions are
encoder rows, 0.02 s each, from the window's start; lengths are spectrogram frames, two a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FRAMES_A_ROW = 2


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens between two timestamps, these included."""

    start: int
    end: int
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DecodedWindow:
    """``advance``: frames from this window's start to the next one's."""

    segments: tuple[Segment, ...]
    advance: int


def decoded_window(ids: Sequence[int], frames: int, first_timestamp: int) -> DecodedWindow:
    """From the generated ids, without the end token; ``frames`` of the window are sound.

    Where two timestamps meet, a segment ends and the next begins. What comes after the last such place is
    cut off speech: it is dropped, and the next window starts there. Unless a lone timestamp ends the ids,
    which says that nothing more is spoken in this window.
    """
    times = [token - first_timestamp for token in ids]  # negative: text
    ends = [i for i in range(1, len(ids)) if times[i - 1] >= 0 and times[i] >= 0]
    if not ends:
        return DecodedWindow((_only_segment(tuple(ids), times, frames),), frames)
    complete = times[-1] >= 0 and times[-2] < 0
    if complete:
        ends.append(len(ids))
    segments = tuple(
        Segment(times[start], times[end - 1], tuple(ids[start:end]))
        for start, end in zip([0, *ends], ends, strict=False)
    )
    return DecodedWindow(segments, frames if complete else segments[-1].end * FRAMES_A_ROW)


def _only_segment(ids: tuple[int, ...], times: Sequence[int], frames: int) -> Segment:
    """From the window's start to the last timestamp, or to the end of the sound."""
    stated = [time for time in times if time >= 0]
    end = stated[-1] if stated and stated[-1] > 0 else frames // FRAMES_A_ROW
    return Segment(0, end, ids)
