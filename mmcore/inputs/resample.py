"""Changing a sample rate: a low-pass of windowed sinc, evaluated at the output's instants only.

Method: Smith, "Digital Audio Resampling" (bandlimited interpolation), with a Kaiser window.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

_ZERO_CROSSINGS = 24
"""Of the sinc on each side: how steep the low-pass is."""
_ROLLOFF = 0.945
"""Where it cuts, as a part of the lower Nyquist frequency."""
_KAISER_BETA = 10.0
"""About 100 dB of attenuation."""
_MAX_PHASES = 1024
"""Rates whose ratio needs more phases are rounded to one that does not: off by less than 1e-6."""


def resampled_length(samples: int, rate: int, target: int) -> int:
    return -(-samples * target // rate)


def resample(
    samples: np.ndarray, rate: int, target: int, start: int = 0, stop: int | None = None
) -> np.ndarray:
    """float32 [n] at ``rate`` to float32 at ``target``: output samples [start, stop), all of them by default.

    A window equals the same cut of the whole; only the input near it is read.
    """
    length = resampled_length(len(samples), rate, target)
    stop = length if stop is None else min(stop, length)
    start = min(start, stop)
    if rate == target:
        return samples[start:stop].astype(np.float32)
    ratio = Fraction(rate, target).limit_denominator(_MAX_PHASES)
    step, phases = ratio.numerator, ratio.denominator
    kernel = _kernel(step, phases)  # [phases, taps]
    half = kernel.shape[1] // 2
    first, last = start * step // phases, max(start, stop - 1) * step // phases
    near = _padded(samples, first - half + 1, last + half + 1)
    out = np.empty(stop - start, np.float32)
    for lane in range(min(phases, len(out))):
        position = (start + lane) * step
        windows = np.lib.stride_tricks.sliding_window_view(near[position // phases - first :], 2 * half)
        own = out[lane::phases]
        own[:] = windows[::step][: len(own)] @ kernel[position % phases]
    return out


@lru_cache(maxsize=16)
def _kernel(step: int, phases: int) -> np.ndarray:
    """float32 [phases, taps]: weights of the inputs around an instant ``phase / phases`` past one of them."""
    cutoff = _ROLLOFF * min(1.0, phases / step)
    half = int(np.ceil(_ZERO_CROSSINGS / cutoff))
    taps = np.arange(1 - half, half + 1)
    distance = taps - np.arange(phases)[:, None] / phases  # [phases, taps], in input samples
    window = np.i0(_KAISER_BETA * np.sqrt(np.maximum(0.0, 1.0 - (distance / half) ** 2)))
    weights = cutoff * np.sinc(cutoff * distance) * window / np.i0(_KAISER_BETA)
    normalised: np.ndarray = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return normalised


def _padded(samples: np.ndarray, start: int, stop: int) -> np.ndarray:
    """samples[start:stop], silence where there are none."""
    inner = samples[max(0, start) : max(0, stop)].astype(np.float32)
    return np.pad(inner, (max(0, -start), max(0, stop - max(0, start) - len(inner))))
