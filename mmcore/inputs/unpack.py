"""Compressed sound to mono samples: decoded once, when its request is prepared.

Why then and whole: its length is known for sure only after decoding, and a decoder that starts in the middle
gives other samples than one that came from the start (bit reservoirs, overlapping transforms), so that the
windows of a long recording would differ from the recording. What is kept is mono at the rate that the
family takes, so an hour for a 16 kHz model is 230 MB, and of silence nothing: its pages are never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcore.config import MediaPolicy
from mmcore.errors import MediaFormatError
from mmcore.inputs.container import describe, format_name
from mmcore.inputs.pyav import ACCEPTED, DEMUXERS, open_container
from mmcore.inputs.resample import resample_stream
from mmcore.inputs.sound import check_samples, scaled, to_mono
from mmcore.inputs.wav import MAX_CHANNELS, check_rate
from mmcore.request import DecodedMedia

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.container import InputContainer

CODECS = ("flac", "vorbis", "opus", "mp3", "aac")
_SLACK = {"flac": 0.0, "mov,mp4,m4a,3gp,3g2,mj2": 0.25}
"""Demuxers whose durations are written by the encoder, not estimated from what is there, and the seconds by
which they may promise more: padding of the encoder."""
_AT_ONCE = 1 << 18
"""Samples that are mixed and resampled together."""


def unpack_sound(data: bytes, policy: MediaPolicy, rate: int = 0) -> DecodedMedia:
    """Mono at ``rate`` (0: its own), decoded until it ends or the budget does. Raises `MediaError`s."""
    if format_name(data) not in DEMUXERS:
        raise MediaFormatError(f"{describe(data)}; accepted sound formats: WAV, {ACCEPTED}")
    with open_container(data) as container:
        own_rate, channels = _check_stream(container, policy)
        frames = _Frames(container, own_rate, channels, policy)
        target = rate or own_rate
        samples = _joined([_thin(block) for block in resample_stream(frames.blocks(), own_rate, target)])
        _check_promise(container, frames.count / own_rate)
    return DecodedMedia("audio", samples, sample_rate=target)


class _Frames:
    """The first sound of a container, counted against the budget as it comes."""

    def __init__(self, container: InputContainer, rate: int, channels: int, policy: MediaPolicy) -> None:
        self._container = container
        self._rate = rate
        self._channels = channels
        self._policy = policy
        self.count = 0

    def blocks(self) -> Iterator[np.ndarray]:
        """float32 [n] each, mono."""
        gathered: list[np.ndarray] = []
        size = 0
        for frame in self._container.decode(audio=0):
            gathered.append(self._samples(frame))
            size += frame.samples
            self._take(frame.samples)
            if size >= _AT_ONCE:
                yield self._mixed(gathered, size)
                gathered, size = [], 0
        if gathered:
            yield self._mixed(gathered, size)

    def _take(self, samples: int) -> None:
        self.count += samples
        check_samples(self.count * self._channels, self._policy)

    def _samples(self, frame: AudioFrame) -> np.ndarray:
        """[samples, channels] as decoded."""
        channels = frame.layout.nb_channels
        if (frame.sample_rate, channels) != (self._rate, self._channels):
            raise MediaFormatError("the sound changes its sample rate or channels midway")
        array = frame.to_ndarray()
        return array.T if frame.format.is_planar else array.reshape(-1, channels)

    def _mixed(self, gathered: list[np.ndarray], size: int) -> np.ndarray:
        return to_mono(scaled(np.concatenate(gathered)), self.count - size)


def _check_stream(container: InputContainer, policy: MediaPolicy) -> tuple[int, int]:
    """Rate and channels of the first sound, whose header is within the budgets."""
    if not container.streams.audio:
        raise MediaFormatError("the file holds no sound")
    stream = container.streams.audio[0]
    context: Any = stream.codec_context
    if context is None or context.codec.canonical_name not in CODECS:
        raise MediaFormatError(f"the codec of the sound is not accepted; accepted: {', '.join(CODECS)}")
    rate, channels = context.sample_rate, context.channels
    check_rate(rate)
    if not 1 <= channels <= MAX_CHANNELS:
        raise MediaFormatError(f"the sound has {channels} channels; accepted: 1 to {MAX_CHANNELS}")
    check_samples(int(_promised(container) * rate) * channels, policy)
    return rate, channels


def _promised(container: InputContainer) -> float:
    """Seconds that the header promises; 0.0 where it says nothing that can be relied on."""
    stream = container.streams.audio[0]
    if container.format.name not in _SLACK or not stream.duration or not stream.time_base:
        return 0.0
    return float(stream.duration * stream.time_base)


def _check_promise(container: InputContainer, seconds: float) -> None:
    promised = _promised(container)
    if promised and seconds + _SLACK[container.format.name] < promised:
        raise MediaFormatError(
            f"the sound promises {promised:.2f} s and holds {seconds:.2f} s: it is truncated or damaged"
        )


def _thin(block: np.ndarray) -> np.ndarray:
    """The same samples; silence takes no memory."""
    return block if block.any() else np.broadcast_to(np.float32(0.0), block.shape)


def _joined(blocks: list[np.ndarray]) -> np.ndarray:
    """One array. Each block is let go as soon as it is copied, and where one is silent nothing is written."""
    out = np.zeros(sum(len(block) for block in blocks), np.float32)
    end = len(out)
    while blocks:
        block = blocks.pop()
        if block.any():
            out[end - len(block) : end] = block
        end -= len(block)
    return out
