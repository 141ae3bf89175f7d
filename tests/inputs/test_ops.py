"""The core's media operations, against Pillow and transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inputs.media_files import picture, tone
from PIL import Image

from mmcore.errors import PluginError
from mmcore.inputs import resize
from mmcore.inputs.ops import NumpyOps
from mmcore.runner.device_resizer import DeviceResizer

OPS = NumpyOps()
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
FILTERS = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
}
by_device = DeviceResizer(torch.device("cpu"))
DEVICE = resize.Resizer(device=by_device)


@pytest.mark.parametrize("name", FILTERS)
@given(size=st.tuples(*[st.integers(1, 70)] * 4))
def test_resize_equals_pillow(name: str, size: tuple[int, int, int, int]) -> None:
    image = picture(size[0], size[1])
    expected = np.asarray(image.resize((size[3], size[2]), FILTERS[name]))
    assert np.array_equal(OPS.resize(np.asarray(image), size[2], size[3], resample=name), expected)


@pytest.mark.parametrize("name", FILTERS)
@given(size=st.tuples(*[st.integers(8, 70)] * 4), threads=st.integers(2, 5))
def test_resize_in_strips_equals_pillow(name: str, size: tuple[int, int, int, int], threads: int) -> None:
    image = picture(size[0], size[1])
    expected = np.asarray(image.resize((size[3], size[2]), FILTERS[name]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resize, "LEAST_PIXELS", 0)
        found = resize.Resizer(threads)(np.asarray(image), size[2], size[3], FILTERS[name])
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", FILTERS)
@given(size=st.tuples(*[st.integers(1, 90)] * 4))
def test_resize_by_a_device_equals_pillow(name: str, size: tuple[int, int, int, int]) -> None:
    image = picture(size[0], size[1])
    expected = np.asarray(image.resize((size[3], size[2]), FILTERS[name]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resize, "LEAST_PIXELS", 0)
        patch.setattr(resize, "resized", None)
        found = DEVICE(np.asarray(image), size[2], size[3], FILTERS[name])
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("fault", [MemoryError("no room"), None])
def test_a_device_that_fails_or_errs_is_not_used(
    fault: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(image: np.ndarray, passes: Any) -> np.ndarray:
        if fault is not None:
            raise fault
        return by_device(image, passes) + np.uint8(1)

    image = picture(800, 700)
    found = resize.Resizer(2, broken)(np.asarray(image), 600, 710, FILTERS["bicubic"])
    assert np.array_equal(found, np.asarray(image.resize((710, 600), FILTERS["bicubic"])))
    assert "resized on the host" in caplog.text


@given(size=st.tuples(st.integers(1, 300), st.integers(1, 300), st.integers(1, 9), st.integers(1, 9)))
def test_resize_with_a_reducing_gap_equals_pillow(size: tuple[int, int, int, int]) -> None:
    image = picture(size[0], size[1])
    expected = np.asarray(image.resize((size[3], size[2]), FILTERS["bicubic"], reducing_gap=2.0))
    found = OPS.resize(np.asarray(image)[None], size[2], size[3], reducing_gap=2.0)
    assert np.array_equal(found[0], expected)


def test_grey_equals_pillow() -> None:
    frames = np.stack([np.asarray(picture(9, 14)), np.asarray(picture(9, 14))[::-1]])
    found = OPS.grey(frames)
    for frame, grey in zip(frames, found, strict=True):
        assert np.array_equal(grey, np.asarray(Image.fromarray(frame.copy()).convert("L")))


def test_resize_takes_frames_and_single_channels() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (3, 20, 30, 3), dtype=np.uint8)
    resized = OPS.resize(frames, 10, 12)
    assert resized.shape == (3, 10, 12, 3)
    assert np.array_equal(resized[1], OPS.resize(frames[1], 10, 12))
    single = frames[0, ..., :1]
    expected = np.asarray(Image.fromarray(single[..., 0]).resize((12, 10), FILTERS["bicubic"]))
    assert np.array_equal(OPS.resize(single, 10, 12), expected[..., None])


def test_unknown_filters_are_the_plugins_fault() -> None:
    with pytest.raises(PluginError, match="'cubic' is none of bicubic"):
        OPS.resize(np.zeros((4, 4, 3), np.uint8), 2, 2, resample="cubic")


def test_crop_and_pad() -> None:
    image = np.arange(5 * 6 * 3, dtype=np.uint8).reshape(5, 6, 3)
    assert np.array_equal(OPS.crop(image, 1, 2, 3, 4), image[1:4, 2:6])
    padded = OPS.pad(image, 8, 9, top=2, left=1, value=7)
    assert np.array_equal(padded[2:7, 1:7], image)
    assert padded.sum() == image.sum() + 7 * (padded.size - image.size)
    for top, left in ((3, 0), (-1, 0), (0, 3)):
        with pytest.raises(PluginError, match="leaves"):
            OPS.crop(image, top, left, 4, 4)
    with pytest.raises(PluginError, match="leaves"):
        OPS.pad(image, 5, 6, top=1, left=0, value=0)


def test_normalize_is_exact_to_a_rounding() -> None:
    image = np.asarray(picture(33, 21))
    expected = (image / 255.0 - np.asarray(MEAN)) / np.asarray(STD)
    normalized = OPS.normalize(image, MEAN, STD)
    assert normalized.dtype == np.float32
    assert np.abs(normalized - expected).max() < 3e-7


@given(grid=st.tuples(st.integers(1, 3), st.integers(1, 3)), frames=st.integers(1, 5))
def test_patchify_orders_windows_then_channel_time_y_x(grid: tuple[int, int], frames: int) -> None:
    patch, temporal, merge = 3, 2, 2
    height, width = grid[0] * patch * merge, grid[1] * patch * merge
    video = np.random.default_rng(frames).random((frames, height, width, 3), dtype=np.float32)
    patches = OPS.patchify(video, patch=patch, temporal=temporal, merge=merge)
    filled = np.concatenate([video, video[-1:]]) if frames % 2 else video
    expected = [
        filled[t : t + 2, y : y + patch, x : x + patch].transpose(3, 0, 1, 2).ravel()
        for t in range(0, len(filled), 2)
        for window_y in range(0, height, patch * merge)
        for window_x in range(0, width, patch * merge)
        for y in (window_y, window_y + patch)
        for x in (window_x, window_x + patch)
    ]
    assert np.array_equal(patches, expected)


def test_patchify_refuses_what_does_not_divide() -> None:
    with pytest.raises(PluginError, match="no multiple of patches"):
        OPS.patchify(np.zeros((1, 28, 30, 3), np.float32), patch=14, merge=2)


@pytest.mark.parametrize("size", [(224, 224), (56, 448), (1000, 700)])
def test_the_patch_pipeline_equals_transformers_image_processor(size: tuple[int, int]) -> None:
    """Pillow backend of transformers: equal within 1e-6."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    image = picture(*size)
    reference = Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=28 * 28 * 1280)
    expected = reference(images=[image], return_tensors="np")
    _, rows, columns = (int(n) for n in expected["image_grid_thw"][0])
    resized = OPS.resize(np.asarray(image), rows * 14, columns * 14)
    pixels = OPS.normalize(resized, MEAN, STD)
    patches = OPS.patchify(pixels[None], patch=14, temporal=2, merge=2)
    assert np.abs(patches - expected["pixel_values"]).max() < 1e-6


# ------------------------------------------------------------------ log-mel


def sounds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "noise": rng.standard_normal(48_000).astype(np.float32) * 0.1,
        "tone": (0.5 * tone(440, 16_000)).astype(np.float32),
        "silence": np.zeros(16_000, np.float32),
        "quiet end": np.concatenate([0.3 * tone(900, 16_000), np.zeros(16_000)]).astype(np.float32),
    }


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("kind", sounds())
def test_log_mel_equals_whispers_feature_extractor(kind: str, mels: int) -> None:
    """Within 1e-6 of its numpy path and 5e-5 of its float32 torch path; those two differ by as much."""
    from transformers import WhisperFeatureExtractor

    reference: Any = WhisperFeatureExtractor(feature_size=mels)  # type: ignore[no-untyped-call]
    samples = np.zeros(reference.n_samples, np.float32)
    samples[: len(sounds()[kind])] = sounds()[kind]
    mel = OPS.log_mel(samples, mels=mels, fft=400, hop=160, sample_rate=16_000)
    assert mel.shape == (mels, 3_000)
    assert mel.dtype == np.float32
    by_numpy = reference._np_extract_fbank_features(samples[None], device="cpu")[0]
    by_torch = reference._torch_extract_fbank_features(samples[None], device="cpu")[0]
    assert np.abs(mel - by_numpy).max() < 1e-6
    assert np.abs(mel - by_torch).max() < 5e-5


def test_log_mel_of_next_to_nothing() -> None:
    options: dict[str, Any] = {"mels": 80, "fft": 400, "hop": 160, "sample_rate": 16_000}
    assert OPS.log_mel(np.zeros(0, np.float32), **options).shape == (80, 0)
    assert OPS.log_mel(np.ones(160, np.float32), **options).shape == (80, 1)
    assert np.isfinite(OPS.log_mel(np.ones(161, np.float32), **options)).all()
