"""Small video files, made with PyAV: each frame is of one grey level that tells its number."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
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
    front: bool = False,
) -> bytes:
    """The file. ``times``: of each frame, in units of 1 / (100 * fps) s; else evenly at ``fps``. ``front``:
    an MP4's header stands before its frames."""
    pictures = [grey(n) for n in range(frames)] if isinstance(frames, int) else list(frames)
    target = io.BytesIO()
    with _writer(target, form[0], front) as container:
        stream: Any = container.add_stream(form[1], rate=fps, options=options or {})
        height, width = pictures[0].shape[:2] if pictures else (48, 64)
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = width, height, "yuv420p", gop
        stream.codec_context.time_base = Fraction(1, 100 * fps)
        if turned:
            stream.set_display_rotation(turned)
        container.start_encoding()
        for number, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = (times or range(0, 10**9, 100))[number], Fraction(1, 100 * fps)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return target.getvalue()


@contextmanager
def _writer(target: io.BytesIO, form: str, front: bool) -> Iterator[Any]:
    if not front:
        with av.open(target, "w", format=form) as container:
            yield container
        return
    with tempfile.NamedTemporaryFile(suffix=f".{form}") as file:  # the muxer reads it again to move things
        with av.open(file.name, "w", format=form, options={"movflags": "faststart"}) as container:
            yield container
        target.write(Path(file.name).read_bytes())


def patched(data: bytes, box: bytes, offset: int, value: bytes) -> bytes:
    """An MP4 with ``value`` at ``offset`` bytes after the name of its first such box."""
    start = data.index(box) + len(box) + offset
    return data[:start] + value + data[start + len(value) :]


def moving(count: int, width: int = 64, height: int = 48) -> list[np.ndarray]:
    """Noise on the move: frames that lean on each other."""
    still = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    return [np.roll(still, 3 * n, axis=1) for n in range(count)]


def all_frames(data: bytes) -> list[np.ndarray]:
    """Every frame, decoded from the start by plain PyAV."""
    with av.open(io.BytesIO(data), "r") as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
