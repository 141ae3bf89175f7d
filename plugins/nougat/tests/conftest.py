"""Tiny checkpoints, opened by mmcore and by transformers, made once a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from mmcore_nougat.adapter import NougatAdapter
from mmcore_nougat.conformance import TransformersNougat
from mmcore_nougat.testing import VARIANTS, Variant, write_tiny_checkpoint

from mmcore import LLM, KvCacheConfig
from mmcore.adapter import Adapter
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.weights import Model, build_model, load_weights

transformers = pytest.importorskip("transformers")

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

# The same profiles as the repository's own tests: a plugin's tests also run alone.
settings.register_profile("ci", max_examples=60, deadline=None, suppress_health_check=_SLOW, derandomize=True)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@dataclass(frozen=True, repr=False)
class Subject:
    """One tiny checkpoint, opened on both sides."""

    variant: Variant
    folder: Path
    adapter: Adapter
    llm: LLM
    reference: TransformersNougat
    tokenizer: Any
    model: Model

    def __repr__(self) -> str:
        return self.variant

    def normal(self, page: np.ndarray) -> np.ndarray:
        """Levels [height, width, 3] as the encoder normalises them."""
        encoder: Any = self.adapter.encoder
        normal: np.ndarray = (page / 255 - np.array(encoder.mean)) / np.array(encoder.std)
        return normal


def opened(folder: Path, variant: Variant) -> Subject:
    checkpoint = Checkpoint(write_tiny_checkpoint(folder, variant))
    adapter = NougatAdapter.from_config(checkpoint.config, checkpoint)
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    load_weights(model, adapter, checkpoint.weight_files())
    cache = KvCacheConfig(max_tokens=8192, tokens_per_block=8)
    llm = LLM(folder, dtype="float32", device="cpu", max_num_tokens=24, kv_cache_config=cache)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return Subject(variant, folder, adapter, llm, TransformersNougat(folder), tokenizer, model)


@pytest.fixture(scope="session", params=VARIANTS)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    found = opened(tmp_path_factory.mktemp(request.param), request.param)
    with found.llm:
        yield found


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    found = opened(tmp_path_factory.mktemp("papers"), "nougat")
    with found.llm:
        yield found


@pytest.fixture(scope="session")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    found = opened(tmp_path_factory.mktemp("forms"), "donut")
    with found.llm:
        yield found
