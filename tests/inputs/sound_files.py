"""Compressed sound files of each accepted format, made by av on the spot."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import av
import numpy as np

FORMATS = {
    "FLAC": ("flac", "flac"),
    "Ogg Opus": ("ogg", "libopus"),
    "Ogg Vorbis": ("ogg", "vorbis"),
    "MP3": ("mp3", "libmp3lame"),
    "M4A": ("ipod", "aac"),
    "MP4": ("mp4", "aac"),
    "WebM": ("webm", "libopus"),
    "Matroska": ("matroska", "aac"),
}
"""By name, the muxer and the encoder."""


def compressed(samples: np.ndarray, kind: str, rate: int = 48_000) -> bytes:
    """float [channels, n] in a file of a kind of `FORMATS`."""
    muxer, codec = FORMATS[kind]
    buffer = io.BytesIO()
    layout = "mono" if len(samples) == 1 else "stereo"
    with av.open(buffer, "w", format=muxer) as container:
        stream: Any = container.add_stream(codec, rate=rate, options={"strict": "experimental"})
        stream.layout = layout
        container.mux(stream.encode(_frame(samples, layout, rate)))
        container.mux(stream.encode(None))
    return buffer.getvalue()


@cache
def sample_file(kind: str, seconds: float = 0.3) -> bytes:
    """Noise on both channels, a little different on each."""
    noise = np.random.default_rng(7).uniform(-0.5, 0.5, (2, int(48_000 * seconds)))
    return compressed(noise, kind)


def _frame(samples: np.ndarray, layout: str, rate: int) -> av.AudioFrame:
    frame = av.AudioFrame.from_ndarray(
        np.ascontiguousarray(samples, np.float32), format="fltp", layout=layout
    )
    frame.sample_rate = rate
    return frame
