"""A resize's passes: launcher against reference, on the host, interpreted, and on a GPU against Pillow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mmcore.errors import EngineError
from mmcore.inputs.resize import Resizer
from mmcore.inputs.resize_taps import Taps
from mmcore.kernels.resample import resample, resample_reference
from mmcore.runner.device_resizer import DeviceResizer

BICUBIC = int(Image.Resampling.BICUBIC)
sides = st.integers(1, 40)
seeds = st.integers(0, 2**31)


def arguments(lines: int, old: int, inner: int, new: int, seed: int) -> tuple[torch.Tensor, ...]:
    source = torch.randint(0, 256, (lines, old, inner), generator=torch.Generator().manual_seed(seed))
    taps = Taps.of(1, old, new, BICUBIC)
    return source.to(torch.uint8), torch.from_numpy(taps.first), torch.from_numpy(taps.weights)


@given(st.integers(0, 4), sides, st.integers(1, 4), sides, seeds)
def test_the_sums_are_exact(lines: int, old: int, inner: int, new: int, seed: int) -> None:
    given_ = arguments(lines, old, inner, new, seed)
    assert torch.equal(resample(*given_), resample_reference(*given_))


@given(st.integers(0, 2), sides, st.integers(1, 3), sides, seeds)
@settings(max_examples=10)
def test_in_interpreter(interpreter: Any, lines: int, old: int, inner: int, new: int, seed: int) -> None:
    given_ = arguments(lines, old, inner, new, seed)
    found, _ = interpreter.call("mmcore.kernels.resample", "resample", *given_)
    assert torch.equal(found, resample_reference(*given_))


def test_shapes_that_do_not_fit_are_refused() -> None:
    source, first, weights = arguments(2, 9, 3, 5, 0)
    with pytest.raises(EngineError, match="a row for each"):
        resample(source, first[:-1], weights)
    with pytest.raises(EngineError, match=r"\[A, N, B\]"):
        resample(source[0], first, weights)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ((768, 1024), (756, 1036)),
        ((3000, 4000), (756, 1008)),
        ((900, 700), (1344, 896)),
        ((2000, 800), (90, 790)),
    ],
)
def test_pictures_on_a_gpu_are_those_of_pillow(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    device = Resizer(device=DeviceResizer(torch.device("cuda")))
    assert device._device is not None
    expected = np.asarray(Image.fromarray(image).resize(wanted[::-1], BICUBIC))
    assert np.array_equal(device(image, *wanted, BICUBIC), expected)
