"""WAV files: headers and samples. Linear PCM of 8, 16, 24, 32 bits and 32- or 64-bit floats."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mmcore.errors import MediaFormatError
from mmcore.inputs.container import describe

MIN_RATE, MAX_RATE = 4_000, 384_000
"""Plausible samples a second; a forged rate would stretch a small file to hours."""
MAX_CHANNELS = 32
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_UNKNOWN_SIZES = (b"\0\0\0\0", b"\xff\xff\xff\xff")
"""The file's own size as a recorder writes it that streams and never comes back to fill it in."""


@dataclass(frozen=True, slots=True)
class WavHeader:
    """``start`` and ``size`` say where the samples lie, in bytes."""

    rate: int
    channels: int
    bits: int
    is_float: bool
    start: int
    size: int

    @property
    def samples(self) -> int:
        """A channel."""
        return self.size // (self.channels * self.bits // 8)


def read_wav_header(data: bytes) -> WavHeader:
    """Raises `MediaFormatError` naming what is wrong."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise MediaFormatError(f"{describe(data)}, not WAV")
    form: tuple[int, int, int, int] | None = None
    for name, start, size in _chunks(data):
        if name == b"fmt ":
            form = _read_format(data[start : start + size])
        elif name == b"data":
            if form is None:
                raise MediaFormatError("the WAV has samples before its format ('fmt ' chunk)")
            held = len(data) - start
            return _header(form, start, held if data[4:8] in _UNKNOWN_SIZES else size, held)
    raise MediaFormatError("the WAV has no samples ('data' chunk): it is truncated")


def wav_samples(data: bytes, header: WavHeader, first: int = 0, last: int | None = None) -> np.ndarray:
    """float32 [last - first, channels] of the samples [first, last), integers scaled to [-1, 1)."""
    last = header.samples if last is None else last
    count = (last - first) * header.channels
    start = header.start + first * header.channels * header.bits // 8
    if header.is_float:
        with np.errstate(over="ignore"):  # becomes infinite, which is refused later
            values = np.frombuffer(data, f"<f{header.bits // 8}", count, start).astype(np.float32)
    elif header.bits == 8:
        raw = np.frombuffer(data, np.uint8, count, start)
        values = (raw.astype(np.float32) - 128.0) / 128.0
    elif header.bits == 24:
        raw = np.frombuffer(data, np.uint8, 3 * count, start).reshape(-1, 3)
        wide = np.zeros((count, 4), np.uint8)
        wide[:, 1:] = raw
        values = (wide.view("<i4")[:, 0] / 2.0**31).astype(np.float32)
    else:
        raw = np.frombuffer(data, f"<i{header.bits // 8}", count, start)
        values = (raw / 2.0 ** (header.bits - 1)).astype(np.float32)
    return values.reshape(-1, header.channels)


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(name, start, size) of each chunk; sizes are as written."""
    position = 12
    while position + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, position)
        yield name, position + 8, size
        position += 8 + size + size % 2


def _read_format(chunk: bytes) -> tuple[int, int, int, int]:
    """(code, channels, rate, bits)."""
    if len(chunk) < 16:
        raise MediaFormatError("the WAV's format ('fmt ' chunk) is cut short")
    code, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
    if code == _EXTENSIBLE and len(chunk) >= 26:
        (code,) = struct.unpack_from("<H", chunk, 24)
    return code, channels, rate, bits


def _header(form: tuple[int, int, int, int], start: int, size: int, held: int) -> WavHeader:
    code, channels, rate, bits = form
    if (code, bits) not in {(_PCM, 8), (_PCM, 16), (_PCM, 24), (_PCM, 32), (_FLOAT, 32), (_FLOAT, 64)}:
        raise MediaFormatError(
            f"the WAV holds samples of kind {code} with {bits} bits; accepted: 8 to 32 bits PCM, floats"
        )
    if not 1 <= channels <= MAX_CHANNELS:
        raise MediaFormatError(f"the WAV says it has {channels} channels; accepted: 1 to {MAX_CHANNELS}")
    check_rate(rate)
    if size > held:
        raise MediaFormatError(f"the WAV promises {size} bytes of samples and holds {held}: it is truncated")
    return WavHeader(rate, channels, bits, code == _FLOAT, start, size)


def check_rate(rate: int) -> None:
    if not MIN_RATE <= rate <= MAX_RATE:
        raise MediaFormatError(f"a sample rate of {rate} Hz is not plausible ({MIN_RATE} to {MAX_RATE})")
