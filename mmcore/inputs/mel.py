"""The log-mel spectrogram of Radford et al. 2022 in numpy.

Checked against the feature extractor of transformers 5.24: periodic Hann window, reflected edges, power
spectrum, Slaney mel filters, log10 floored at 1e-10, 8 decades of range.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

_LINEAR_HZ = 200.0 / 3.0
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _LINEAR_HZ
_LOG_STEP = np.log(6.4) / 27.0
_FRAMES_AT_ONCE = 1024


def log_mel(samples: np.ndarray, *, mels: int, fft: int, hop: int, sample_rate: int) -> np.ndarray:
    """float32 [samples] to float32 [mels, samples // hop]."""
    frames = len(samples) // hop
    if frames == 0:
        return np.zeros((mels, 0), np.float32)
    padded = _reflect(samples.astype(np.float64), fft // 2)
    windows = np.lib.stride_tricks.sliding_window_view(padded, fft)[::hop][:frames]  # [frames, fft]
    bands, window = _bands(mels, fft, sample_rate), _hann(fft)
    energies = np.empty((mels, frames))
    for start in range(0, frames, _FRAMES_AT_ONCE):
        spectrum = np.fft.rfft(windows[start : start + _FRAMES_AT_ONCE] * window)
        power = spectrum.real**2 + spectrum.imag**2  # [frames, bins]
        energies[:, start : start + _FRAMES_AT_ONCE] = bands.energies(power.T)
    logs = np.log10(np.maximum(energies, 1e-10))
    logs = np.maximum(logs, logs.max() - 8.0)
    scaled: np.ndarray = ((logs + 4.0) / 4.0).astype(np.float32)
    return scaled


@dataclass(frozen=True, eq=False, slots=True)
class _Bands:
    """The filters without their zeros, which are nearly all. A matrix product would be split over all cores
    by each of the threads that make spectrograms."""

    bins: np.ndarray  # [N], filter after filter
    weights: np.ndarray  # [N, 1]
    starts: np.ndarray  # [mels]

    def energies(self, power: np.ndarray) -> np.ndarray:
        """[bins, frames] to [mels, frames]."""
        found: np.ndarray = np.add.reduceat(power[self.bins] * self.weights, self.starts, axis=0)
        return found


@lru_cache(maxsize=8)
def _bands(mels: int, fft: int, sample_rate: int) -> _Bands:
    filters = mel_filters(mels, fft, sample_rate)
    used = filters > 0.0
    used[:, 0] |= ~used.any(axis=1)  # a filter between two bins has a weight of zero
    rows, bins = np.nonzero(used)
    return _Bands(bins, filters[rows, bins][:, None], np.searchsorted(rows, np.arange(mels)))


@lru_cache(maxsize=8)
def mel_filters(mels: int, fft: int, sample_rate: int) -> np.ndarray:
    """Triangles of unit area, evenly spaced on Slaney's scale from 0 Hz to half the rate: [mels, bins]."""
    bins = np.linspace(0.0, sample_rate / 2.0, fft // 2 + 1)
    edges = _hertz(np.linspace(_mel(0.0), _mel(sample_rate / 2.0), mels + 2))
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    area = 2.0 / (edges[2:] - edges[:-2])
    filters: np.ndarray = np.maximum(0.0, np.minimum(rising, falling)) * area[:, None]
    return filters


@lru_cache(maxsize=8)
def _hann(length: int) -> np.ndarray:
    window: np.ndarray = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(length) / length)
    return window


def _reflect(samples: np.ndarray, margin: int) -> np.ndarray:
    """Mirrored at both ends; sound shorter than the margin is mirrored several times."""
    return np.pad(samples, margin, mode="reflect" if len(samples) > 1 else "edge")


def _mel(hertz: float) -> float:
    if hertz < _BREAK_HZ:
        return hertz / _LINEAR_HZ
    return float(_BREAK_MEL + np.log(hertz / _BREAK_HZ) / _LOG_STEP)


def _hertz(mel: np.ndarray) -> np.ndarray:
    return np.where(mel < _BREAK_MEL, mel * _LINEAR_HZ, _BREAK_HZ * np.exp(_LOG_STEP * (mel - _BREAK_MEL)))
