"""A tiny checkpoint of each layout, opened here and by the composition of transformers' models."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from mmcore_nvila.adapter import NvilaAdapter
from mmcore_nvila.composition import Composition
from mmcore_nvila.testing import VARIANTS, write_tiny_checkpoint

from mmcore import LLM, KvCacheConfig
from mmcore.adapter import Adapter
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.weights import Model, build_model, load_weights

pytest.importorskip("transformers")

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

# The same profiles as the repository's own tests: a plugin's tests also run alone.
settings.register_profile("ci", max_examples=60, deadline=None, suppress_health_check=_SLOW, derandomize=True)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@dataclass(frozen=True, repr=False)
class Subject:
    """One tiny checkpoint, opened on both sides."""

    variant: str
    folder: Path
    adapter: Adapter
    llm: LLM
    reference: Composition
    model: Model

    def __repr__(self) -> str:
        return self.variant


@contextmanager
def opened(folder: Path, variant: str) -> Iterator[Subject]:
    checkpoint = Checkpoint(write_tiny_checkpoint(folder, variant))
    adapter = NvilaAdapter.from_config(checkpoint.config, checkpoint)
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    load_weights(model, adapter, checkpoint.weight_files())
    cache = KvCacheConfig(max_tokens=8192)
    reference = Composition(folder)
    with LLM(folder, dtype="float32", device="cpu", max_num_tokens=96, kv_cache_config=cache) as llm:
        yield Subject(variant, folder, adapter, llm, reference, model)


@pytest.fixture(scope="session", params=VARIANTS)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with opened(tmp_path_factory.mktemp("nvila"), request.param) as found:
        yield found
