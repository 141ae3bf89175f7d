"""Tiny checkpoints with their adapter, mmcore model and reference model, made once a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from mmcore_whisper.adapter import WhisperAdapter
from mmcore_whisper.testing import write_tiny_checkpoint
from transformers import WhisperForConditionalGeneration

from mmcore import LLM, KvCacheConfig
from mmcore.adapter import Adapter
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.model.weights import Model, build_model, load_weights

LARGE = {"mels": 128, "rows": 100, "encoder_layers": 3, "decoder_layers": 1, "shards": 2}


@dataclass(frozen=True)
class Tiny:
    """One checkpoint, read three ways."""

    folder: Path
    checkpoint: Checkpoint
    adapter: Adapter
    model: Model
    reference: Any
    """``WhisperForConditionalGeneration`` of transformers."""


def read_tiny(folder: Path) -> Tiny:
    checkpoint = Checkpoint(folder)
    adapter = WhisperAdapter.from_config(checkpoint.config, checkpoint)
    model = build_model(adapter, torch.float32, torch.device("cpu"))
    load_weights(model, adapter, checkpoint.weight_files())
    reference: Any = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    reference.eval()
    return Tiny(folder, checkpoint, adapter, model, reference)


@pytest.fixture(scope="session")
def tiny_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tiny]:
    """By variant: "multilingual", "english", or "large" (128 mels, one decoder layer, two shards)."""
    made: dict[str, Tiny] = {}

    def tiny(variant: str) -> Tiny:
        if variant not in made:
            folder = tmp_path_factory.mktemp(variant)
            if variant == "large":
                write_tiny_checkpoint(folder, "multilingual", 3, **LARGE)
            else:
                write_tiny_checkpoint(folder, "english" if variant == "english" else "multilingual")
            made[variant] = read_tiny(folder)
        return made[variant]

    return tiny


@pytest.fixture(params=["multilingual", "english", "large"])
def tiny(request: pytest.FixtureRequest, tiny_of: Callable[[str], Tiny]) -> Tiny:
    return tiny_of(request.param)


@pytest.fixture(scope="module")
def llm_of(tiny_of: Callable[[str], Tiny]) -> Iterator[Callable[[str], LLM]]:
    """An engine over the checkpoint of a variant, on the CPU in float32."""
    made: dict[str, LLM] = {}

    def llm(variant: str) -> LLM:
        if variant not in made:
            made[variant] = LLM(
                tiny_of(variant).folder,
                dtype="float32",
                device="cpu",
                kv_cache_config=KvCacheConfig(max_tokens=8192, tokens_per_block=8),
                max_batch_size=16,
                preprocess_workers=1,
            )
        return made[variant]

    yield llm
    for engine in made.values():
        engine.shutdown()
