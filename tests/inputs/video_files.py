"""Small video files, made with PyAV: each frame is of one grey level that tells its number."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np

STEP = 9
"""Grey levels between two frames: more than a codec loses."""
FORMS = [("mp4", "libx264"), ("mp4", "mpeg4"), ("webm", "libvpx"), ("webm", "libvpx-vp9")]


def level(number: int) -> int:
    return 16 + number * STEP % 224


def grey(number: int, width: int = 64, height: int = 48) -> np.ndarray:
    """uint8 [height, width, 3]: the frame's level, and a darker band at the top."""
    frame = np.full((height, width, 3), level(number), np.uint8)
    frame[: height // 4] //= 2
    return frame


def video_file(
    frames: Sequence[np.ndarray] | int = 10,
    *,
    form: tuple[str, str] = ("mp4", "libx264"),
    fps: int = 10,
    gop: int = 5,
    times: Sequence[int] | None = None,
    turned: int = 0,
    options: dict[str, str] | None = None,
    container_options: dict[str, str] | None = None,
) -> bytes:
    """The file. ``times``: of each frame, in units of 1 / (100 * fps) s; else evenly at ``fps``."""
    pictures = [grey(n) for n in range(frames)] if isinstance(frames, int) else list(frames)
    target = io.BytesIO()
    with av.open(target, "w", format=form[0], options=container_options or {}) as container:
        stream: Any = container.add_stream(form[1], rate=fps, options=options or {})
        height, width = pictures[0].shape[:2] if pictures else (48, 64)
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = width, height, "yuv420p", gop
        stream.codec_context.time_base = Fraction(1, 100 * fps)
        if turned:
            stream.set_display_rotation(turned)
        for number, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = (times or range(0, 10**9, 100))[number], Fraction(1, 100 * fps)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return target.getvalue()
