"""Spectrogram and encoder rows against transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmcore_whisper.adapter import WhisperInputs
from transformers import WhisperFeatureExtractor

from mmcore.inputs.ops import NumpyOps
from mmcore.inputs.sound import cut_sound
from mmcore.request import DecodedMedia, EncoderInput, MediaInfo, SourceSpec

RATE = 16_000


def sound(samples: int, seed: int, loudness: float) -> np.ndarray:
    """Noise with a tone in it, float32 [samples]."""
    rng = np.random.default_rng(seed)
    tone = np.sin(np.arange(samples) * rng.uniform(0.01, 1.5))
    noisy: np.ndarray = loudness * (0.5 * rng.standard_normal(samples) + tone)
    return noisy.astype(np.float32)


def features_of(inputs: WhisperInputs, samples: np.ndarray) -> np.ndarray:
    (plan,) = inputs.measure([MediaInfo("audio", sample_rate=RATE, samples=len(samples))], [inputs])
    media = DecodedMedia("audio", samples, RATE)
    return inputs.preprocess(media, plan, NumpyOps()).arrays["features"]


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 2 * RATE),
    st.integers(0, 1 << 16),
    st.sampled_from([0.0, 1e-4, 0.01, 0.3, 1.0]),
    st.sampled_from([80, 128]),
)
def test_spectrogram_equals_the_reference_computed_in_float64(
    samples: int, seed: int, loudness: float, mels: int
) -> None:
    """The reference runs in float32 through torch and in float64 through numpy; ours is the latter."""
    inputs = WhisperInputs(mels=mels, rows=100, width=8)
    waveform = sound(samples, seed, loudness)
    reference: Any = WhisperFeatureExtractor(feature_size=mels, chunk_length=2)  # type: ignore[no-untyped-call]
    padded = np.pad(waveform, (0, inputs.window - samples))
    ours = features_of(inputs, waveform)
    exact = reference._np_extract_fbank_features(padded[None], "cpu")[0]
    fast = reference(waveform, sampling_rate=RATE, return_tensors="np").input_features[0]
    assert ours.shape == (mels, 200)
    assert ours.dtype == np.float32
    assert np.abs(ours - exact).max() <= 1e-6
    assert np.abs(ours - fast).max() <= 2e-4
    assert np.abs(ours - fast).mean() <= 1e-6


@settings(max_examples=20, deadline=None)
@given(st.integers(2 * RATE + 160, 7 * RATE), st.integers(0, 700), st.integers(0, 1 << 16), st.booleans())
def test_a_window_is_cut_from_the_spectrogram_of_the_whole_recording(
    samples: int, start: int, seed: int, loud_end: bool
) -> None:
    """Nothing of the cut is seen: neither at its edges, nor where another part is the loudest."""
    inputs = WhisperInputs(mels=80, rows=100, width=8)
    waveform = sound(samples, seed, 0.01)
    waveform[-4000 if loud_end else 0 :] *= 50
    start = min(start, samples // 160 - 1)
    reference: Any = WhisperFeatureExtractor()  # type: ignore[no-untyped-call]
    whole = reference._np_extract_fbank_features(waveform[None], "cpu")[0]
    expected = np.zeros((80, 200), np.float32)
    expected[:, : whole[:, start : start + 200].shape[1]] = whole[:, start : start + 200]
    info = MediaInfo("audio", sample_rate=RATE, samples=samples)

    def read(spec: SourceSpec) -> DecodedMedia:
        return cut_sound(DecodedMedia("audio", waveform, RATE), spec)

    window = inputs.with_options({**inputs.survey(info, read, NumpyOps()), "start": start})
    (plan,) = inputs.measure([info], [window])
    ours = window.preprocess(read(plan.source), plan, NumpyOps()).arrays["features"]
    assert np.abs(ours - expected).max() <= 1e-6


def test_a_short_recording_is_not_looked_through() -> None:
    inputs = WhisperInputs(mels=80, rows=100, width=8)
    info = MediaInfo("audio", sample_rate=RATE, samples=2 * RATE)

    def read(spec: SourceSpec) -> DecodedMedia:
        pytest.fail(f"{spec} was decoded")

    assert inputs.survey(info, read, NumpyOps()) == {}


def test_the_published_window_is_30_seconds_of_1500_rows() -> None:
    inputs = WhisperInputs(mels=80, rows=1500, width=512)
    features = features_of(inputs, sound(RATE, 0, 0.1))
    assert (inputs.window, features.shape) == (480_000, (80, 3000))


def test_rows_equal_the_reference(tiny: Any) -> None:
    inputs = tiny.adapter.inputs
    waveforms = [sound(n, n, 0.3) for n in (1, 4000, inputs.window)]
    items = [EncoderInput({"features": features_of(inputs, waveform)}) for waveform in waveforms]
    arrays = tiny.adapter.encoder.collate(items, [])
    features = torch.from_numpy(arrays["features"])
    with torch.no_grad():
        rows = tiny.model.encoder(features)
        expected = tiny.reference.model.encoder(features).last_hidden_state
    assert rows.shape == (3 * inputs.rows, inputs.width)
    error = (rows - expected.flatten(0, 1)).abs().max() / expected.abs().max()
    assert error <= 1e-5


def test_rows_do_not_depend_on_the_batch(tiny: Any) -> None:
    items = [features_of(tiny.adapter.inputs, sound(5000 * n, n, 0.2)) for n in (1, 2, 3)]
    with torch.no_grad():
        together = tiny.model.encoder(torch.from_numpy(np.stack(items))).unflatten(0, (3, -1))
        alone = torch.stack([tiny.model.encoder(torch.from_numpy(item[None])) for item in items])
    assert (together - alone).abs().max() <= 1e-5 * alone.abs().max()


def test_work_grows_with_the_tower(tiny_of: Any) -> None:
    work = [
        adapter.encoder.cost(
            adapter.inputs.measure([MediaInfo("audio", sample_rate=1, samples=1)], [adapter.inputs])[0]
        ).work
        for adapter in (tiny_of("multilingual").adapter, tiny_of("large").adapter)
    ]
    assert 0 < work[0] < work[1]


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000])
def test_sound_of_exactly_the_window_is_taken_at_any_rate(rate: int) -> None:
    inputs = WhisperInputs(mels=80, rows=1500, width=512)
    (plan,) = inputs.measure([MediaInfo("audio", sample_rate=rate, samples=30 * rate)], [inputs])
    assert (plan.rows, plan.width, plan.pieces) == (1500, 512, ())
    assert plan.source.sample_rate == RATE
