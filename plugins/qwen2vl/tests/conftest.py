"""A tiny checkpoint of each generation, flat and nested, and its adapter and model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from mmcore_qwen2vl.adapter import Qwen2VLAdapter
from mmcore_qwen2vl.testing import Variant, write_tiny_checkpoint

from mmcore.adapter import Adapter
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.inputs.ops import NumpyOps
from mmcore.model.weights import Model, build_model, load_weights
from mmcore.request import DecodedMedia, EncoderInput, ItemPlan, MediaInfo

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

# The same profiles as the repository's own tests: a plugin's tests also run alone.
settings.register_profile("ci", max_examples=60, deadline=None, suppress_health_check=_SLOW, derandomize=True)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@dataclass(frozen=True)
class Tiny:
    """One tiny checkpoint, opened."""

    folder: Path
    adapter: Adapter
    model: Model

    def items(self, *sizes: tuple[int, int], seed: int = 0) -> tuple[list[EncoderInput], list[ItemPlan]]:
        """Random pictures of these (width, height), measured and preprocessed."""
        generator = np.random.default_rng(seed)
        infos = [MediaInfo("image", width=width, height=height) for width, height in sizes]
        plans = self.adapter.inputs.measure(infos, [self.adapter.inputs] * len(infos))
        inputs = []
        for info, plan in zip(infos, plans, strict=True):
            pixels = generator.integers(0, 256, (info.height, info.width, 3), np.uint8)
            inputs.append(self.adapter.inputs.preprocess(DecodedMedia("image", pixels), plan, NumpyOps()))
        return inputs, list(plans)

    @torch.inference_mode()
    def encode(self, inputs: list[EncoderInput], plans: list[ItemPlan]) -> torch.Tensor:
        arrays = self.adapter.encoder.collate(inputs, plans)
        return self.model.encoder(**{name: torch.from_numpy(array) for name, array in arrays.items()})


def open_tiny(folder: Path) -> Tiny:
    checkpoint = Checkpoint(folder)
    adapter = Qwen2VLAdapter.from_config(checkpoint.config, checkpoint)
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    load_weights(model, adapter, checkpoint.weight_files())
    return Tiny(folder, adapter, model)


@pytest.fixture(scope="session")
def tiny_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tiny]:
    """Opens a tiny checkpoint by generation and overrides, once each."""
    opened: dict[object, Tiny] = {}

    def get(variant: Variant, **overrides: object) -> Tiny:
        key = (variant, *sorted(overrides.items()))
        if key not in opened:
            folder = tmp_path_factory.mktemp("qwen2vl")
            opened[key] = open_tiny(write_tiny_checkpoint(folder, variant, **overrides))
        return opened[key]

    return get


@pytest.fixture
def opener() -> Callable[[Path], Tiny]:
    return open_tiny


@pytest.fixture(scope="session", params=["2", "2.5"])
def tiny(request: pytest.FixtureRequest, tiny_of: Callable[..., Tiny]) -> Tiny:
    return tiny_of(request.param)
