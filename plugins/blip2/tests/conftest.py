"""Tiny checkpoints of both language models, opened here and by transformers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from mmcore_blip2.adapter import Blip2Adapter
from mmcore_blip2.conformance import TransformersBlip2
from mmcore_blip2.testing import write_tiny_checkpoint

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

VARIANTS: dict[str, dict[str, Any]] = {
    "opt": {},
    "opt-old": {"variant": "opt", "old": True, "shards": 2},
    "t5": {},
    "t5-tied": {"variant": "t5", "tied": True},
}


@dataclass(frozen=True, repr=False)
class Subject:
    """One tiny checkpoint, opened on both sides."""

    variant: str
    adapter: Adapter
    llm: LLM
    reference: TransformersBlip2
    model: Model

    def __repr__(self) -> str:
        return self.variant


@pytest.fixture(scope="session", params=VARIANTS)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    folder = tmp_path_factory.mktemp("blip2")
    options = {"variant": request.param, **VARIANTS[request.param]}
    checkpoint = Checkpoint(write_tiny_checkpoint(folder, **options))
    adapter = Blip2Adapter.from_config(checkpoint.config, checkpoint)
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    load_weights(model, adapter, checkpoint.weight_files())
    cache = KvCacheConfig(max_tokens=4096, tokens_per_block=8)
    with LLM(folder, dtype="float32", device="cpu", max_num_tokens=7, kv_cache_config=cache) as llm:
        yield Subject(request.param, adapter, llm, TransformersBlip2(folder), model)
