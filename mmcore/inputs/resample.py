"""Changing a sample rate: a low-pass of windowed sinc, evaluated at the output's instants only.

Method: Smith, "Digital Audio Resampling" (bandlimited interpolation), with a Kaiser window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np

Reader = Callable[[int, int], np.ndarray]
"""The samples [first, last) of a sound, within its length."""
_ZERO_CROSSINGS = 64
"""Of the sinc on each side: how steep the low-pass is."""
_ROLLOFF = 0.95
"""Where it cuts, as a part of the lower Nyquist frequency."""
_KAISER_BETA = 10.0
"""About 100 dB of attenuation."""
_MAX_PHASES = 1024
"""Where the ratio of the rates needs more, instants are rounded to this part of an input sample."""
_AT_ONCE = 4096


def resampled_length(samples: int, rate: int, target: int) -> int:
    return -(-samples * target // rate)


def resample(
    samples: np.ndarray, rate: int, target: int, start: int = 0, stop: int | None = None
) -> np.ndarray:
    """float32 [n] at ``rate`` to float32 at ``target``: output samples [start, stop), all of them by default.

    A window equals the same cut of the whole; only the input near it is read.
    """
    return resample_read(lambda first, last: samples[first:last], len(samples), rate, target, start, stop)


def resample_read(
    read: Reader, length: int, rate: int, target: int, start: int = 0, stop: int | None = None
) -> np.ndarray:
    """`resample` of ``length`` samples that ``read`` gives, asked once for those near the window."""
    whole = resampled_length(length, rate, target)
    stop = whole if stop is None else min(stop, whole)
    start = min(start, stop)
    if rate == target:
        return read(start, stop).astype(np.float32)
    ratio = Fraction(rate, target)
    step, phases = ratio.numerator, ratio.denominator
    kernel = _kernel(ratio, min(phases, _MAX_PHASES))  # [phases, taps]
    half = kernel.shape[1] // 2
    first, last = start * step // phases, max(start, stop - 1) * step // phases
    near = _padded(read, length, first - half + 1, last + half + 2)
    windows = np.lib.stride_tricks.sliding_window_view(near, 2 * half)  # of input first, first + 1, ...
    if phases <= _MAX_PHASES:
        return _by_lane(windows, kernel, ratio, range(start, stop), first)
    return _by_instant(windows, kernel, ratio, range(start, stop), first)


def resample_stream(blocks: Iterable[np.ndarray], rate: int, target: int) -> Iterator[np.ndarray]:
    """`resample` of all blocks joined, as they come; holds one block and what the low-pass still needs."""
    ratio = Fraction(rate, target)
    reach = 0 if rate == target else _half(ratio) + 2
    held, offset, done = np.empty(0, np.float32), 0, 0  # ``held`` begins at input sample ``offset``

    def read(first: int, last: int) -> np.ndarray:
        return held[first - offset : last - offset]

    for block in blocks:
        held = np.concatenate([held, block])
        ready = (offset + len(held) - reach) * ratio.denominator // ratio.numerator
        if ready > done:
            yield resample_read(read, offset + len(held), rate, target, done, ready)
            done = ready
            keep = max(offset, done * ratio.numerator // ratio.denominator - reach)
            held, offset = held[keep - offset :], keep
    yield resample_read(read, offset + len(held), rate, target, done)


def _by_lane(
    windows: np.ndarray, kernel: np.ndarray, ratio: Fraction, instants: range, first: int
) -> np.ndarray:
    """Outputs that have the same weights, as matrix products: every ``phases``-th, or a multiple of that.

    The multiple keeps the rows of a product from overlapping, which BLAS does not take.
    """
    step, phases = ratio.numerator, ratio.denominator
    apart = -(-kernel.shape[1] // step)
    out = np.empty(len(instants), np.float32)
    for lane, instant in enumerate(instants[: phases * apart]):
        own = out[lane :: phases * apart]
        place = instant * step // phases - first
        own[:] = windows[place :: step * apart][: len(own)] @ kernel[instant * step % phases]
    return out


def _by_instant(
    windows: np.ndarray, kernel: np.ndarray, ratio: Fraction, instants: range, first: int
) -> np.ndarray:
    """Each output by itself, its instant rounded to a phase of the kernel."""
    out = np.empty(len(instants), np.float32)
    for begin in range(0, len(instants), _AT_ONCE):
        part = np.asarray(instants[begin : begin + _AT_ONCE], np.int64) * ratio.numerator
        rest = part % ratio.denominator * len(kernel) + ratio.denominator // 2
        phase = rest // ratio.denominator  # len(kernel): the next input sample
        place = part // ratio.denominator - first + phase // len(kernel)
        out[begin : begin + len(part)] = np.einsum("nt,nt->n", windows[place], kernel[phase % len(kernel)])
    return out


@lru_cache(maxsize=16)
def _kernel(ratio: Fraction, phases: int) -> np.ndarray:
    """float32 [phases, taps]: weights of the inputs around an instant ``phase / phases`` past one of them."""
    places = np.arange(phases) / phases
    return np.concatenate([_weights(ratio, part) for part in np.array_split(places, -(-phases // 64))])


def _weights(ratio: Fraction, places: np.ndarray) -> np.ndarray:
    """float32 [len(places), taps]."""
    cutoff, half = _cutoff(ratio), _half(ratio)
    distance = np.arange(1 - half, half + 1) - places[:, None]  # in input samples
    window = np.i0(_KAISER_BETA * np.sqrt(np.maximum(0.0, 1.0 - (distance / half) ** 2)))
    weights = cutoff * np.sinc(cutoff * distance) * window / np.i0(_KAISER_BETA)
    normalised: np.ndarray = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return normalised


def _cutoff(ratio: Fraction) -> float:
    """As a part of the input's Nyquist frequency."""
    return _ROLLOFF * min(1.0, float(1 / ratio))


def _half(ratio: Fraction) -> int:
    """Input samples on each side that an output is made of."""
    return int(np.ceil(_ZERO_CROSSINGS / _cutoff(ratio)))


def _padded(read: Reader, length: int, start: int, stop: int) -> np.ndarray:
    """Samples [start, stop), silence where there are none."""
    inner_start, inner_stop = max(0, start), max(0, min(stop, length))
    inner = read(inner_start, inner_stop).astype(np.float32)
    return np.pad(inner, (inner_start - start, stop - inner_start - len(inner)))
