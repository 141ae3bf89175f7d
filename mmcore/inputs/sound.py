"""Sound, from files or arrays, to mono float32: the one normalising step."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from mmcore.config import MediaPolicy
from mmcore.errors import MediaFormatError, MediaLimitError
from mmcore.inputs.resample import resample, resample_read
from mmcore.inputs.wav import MAX_CHANNELS, check_rate, read_wav_header, wav_samples
from mmcore.request import DecodedMedia, MediaInfo, SourceSpec


def wav_info(data: bytes) -> tuple[MediaInfo, int]:
    """What a WAV's header says, and its channels. Raises `MediaFormatError`."""
    header = read_wav_header(data)
    return _info(header.samples, header.rate), header.channels


def array_sound_info(media: DecodedMedia) -> MediaInfo:
    return _info(len(media.data), media.sample_rate)


def cut_wav(data: bytes, spec: SourceSpec) -> DecodedMedia:
    """The window that the plan asks for, mono, at its rate: only the samples near it are read."""
    header = read_wav_header(data)

    def read(first: int, last: int) -> np.ndarray:
        return to_mono(wav_samples(data, header, first, last), first)

    rate = spec.sample_rate or header.rate
    cut = resample_read(read, header.samples, header.rate, rate, spec.start, spec.stop)
    return DecodedMedia("audio", cut, sample_rate=rate)


def array_sound(samples: Any, rate: Any) -> DecodedMedia:
    """A snapshot of [n], [n, channels] or [channels, n]: floats in [-1, 1], or integers of full range."""
    try:
        rate = operator.index(int(rate) if isinstance(rate, float) and rate.is_integer() else rate)
    except TypeError:
        raise MediaFormatError("sound is (samples, rate), the rate a whole number of Hz") from None
    check_rate(rate)
    array = as_array(samples)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim == 2 and array.shape[1] > MAX_CHANNELS:
        array = array.T
    if array.ndim != 2 or not 1 <= array.shape[1] <= MAX_CHANNELS:
        raise MediaFormatError(f"an array of shape {array.shape} is no sound; give [n] or [n, channels]")
    return DecodedMedia("audio", to_mono(scaled(array)), sample_rate=rate)


def to_mono(samples: np.ndarray, first: int = 0) -> np.ndarray:
    """float32 [n, channels] to float32 [n], their mean. Raises `MediaFormatError` where it is not finite.

    ``first`` is the place of the first one in the whole sound.
    """
    mono: np.ndarray = samples.reshape(-1)
    if samples.shape[1] > 1:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is told below
            mono = samples.mean(axis=1, dtype=np.float32)
    if not np.isfinite(mono).all():
        bad = first + int(np.flatnonzero(~np.isfinite(mono))[0])
        raise MediaFormatError(f"sample {bad} of the sound is not a finite number (NaN or infinite)")
    return mono


def cut_sound(media: DecodedMedia, spec: SourceSpec) -> DecodedMedia:
    """The window that the plan asks for, at its rate."""
    rate = spec.sample_rate or media.sample_rate
    cut = resample(media.data, media.sample_rate, rate, spec.start, spec.stop)
    return DecodedMedia("audio", cut, sample_rate=rate)


def check_samples(count: int, policy: MediaPolicy) -> None:
    """``count`` of all channels together. Raises `MediaLimitError`."""
    if count > policy.max_samples:
        raise MediaLimitError(f"{count} samples x channels are over max_samples {policy.max_samples}")


def _info(samples: int, rate: int) -> MediaInfo:
    return MediaInfo("audio", samples=samples, sample_rate=rate, seconds=samples / rate)


def as_array(samples: Any) -> np.ndarray:
    """Raises `MediaFormatError` for what numpy makes no array of."""
    try:
        return np.asarray(samples)
    except (TypeError, ValueError):
        raise MediaFormatError("the samples of the sound are no array; give [n] or [n, channels]") from None


def scaled(array: np.ndarray) -> np.ndarray:
    """float32 of the same shape, integers of full range to [-1, 1)."""
    if np.issubdtype(array.dtype, np.floating):
        with np.errstate(over="ignore"):  # becomes infinite, which `to_mono` refuses
            return array.astype(np.float32)
    if array.dtype == np.uint8:
        return (array.astype(np.float32) - 128.0) / 128.0
    if array.dtype in (np.int16, np.int32):
        return (array / -float(np.iinfo(array.dtype).min)).astype(np.float32)
    raise MediaFormatError(f"an array of {array.dtype} is no sound; give floats, int16, int32 or uint8")
