"""Which frames of a video are seen, against the arithmetic of transformers' `sample_frames`."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcore.errors import MediaLimitError
from mmcore.parts.area import Area
from mmcore.parts.frames import FrameSampling
from mmcore.request import MediaInfo


def reference(total: int, rate: Fraction, fps: Fraction, least: int, most: int) -> list[int]:
    """``sample_frames`` of transformers 5.24 with ``fps``, in exact numbers."""
    most = min(most, total) // 2 * 2
    count = math.floor(min(max(total / rate * fps, Fraction(least)), Fraction(most)) / 2) * 2
    return [math.floor(n * Fraction(total, count)) for n in range(count)]


@settings(max_examples=200)
@given(
    total=st.integers(2, 3000),
    rate=st.fractions(1, 60, max_denominator=1001),
    fps=st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(2), Fraction(7, 2)]),
    least=st.integers(2, 8),
    most=st.integers(8, 800),
)
def test_frames_of_a_rate(total: int, rate: Fraction, fps: Fraction, least: int, most: int) -> None:
    sampling = FrameSampling(fps=float(fps), min_frames=least, max_frames=most)
    info = MediaInfo("video", width=9, height=9, frames=total, seconds=float(total / rate))
    chosen, step = sampling.choose(info)
    assert list(chosen) == reference(total, rate, fps, least, most)
    assert step == pytest.approx(float(total / rate) / len(chosen))
    assert least // 2 * 2 <= len(chosen) <= most or total < least


def test_short_and_odd_videos() -> None:
    """One frame is one; of three two are taken, as the counts are even; a choice without rate stays whole."""
    sampling = FrameSampling()

    def chosen(frames: int, seconds: float) -> tuple[int, ...]:
        return sampling.choose(MediaInfo("video", frames=frames, seconds=seconds))[0]

    assert chosen(1, 0.1) == chosen(1, 0.0) == (0,)
    assert chosen(3, 0.1) == (0, 1)
    assert chosen(3, 0.0) == (0, 1, 2)
    assert len(chosen(1001, 0.0)) == 768


def test_chosen_frames_and_their_step() -> None:
    info = MediaInfo("video", frames=100, seconds=10.0)
    chosen, step = FrameSampling(frames=(0, 30, 90)).choose(info)
    assert chosen == (0, 30, 90)
    assert step == pytest.approx(4.5)
    with pytest.raises(MediaLimitError, match="frame 100 is chosen, and the video has 100 frames"):
        FrameSampling(frames=(0, 100)).choose(info)
    with pytest.raises(MediaLimitError, match="3 chosen frames are over max_frames 2"):
        FrameSampling(frames=(0, 1, 2), max_frames=2).choose(info)


@pytest.mark.parametrize(("frames", "largest"), [(10, 602112), (300, 602112), (600, 301056), (10**6, 105369)])
def test_frames_share_a_total(frames: int, largest: int) -> None:
    """128,000 tokens of 28 x 28 pixels, nine tenths of them: the numbers of transformers' video processor."""
    area = Area.from_settings({"cap_pixels_per_frame": True}, 100352, 602112, 28)
    assert area.total == 90316800
    assert area.of_frames(frames, 2) == Area(100352, largest, area.total)
    assert Area(1, 2).of_frames(frames) == Area(1, 2)
