"""A tiny checkpoint of each generation, flat and nested, and its adapter and model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from mmcore_qwen2vl.adapter import Qwen2VLAdapter
from mmcore_qwen2vl.testing import TOKEN_IDS, Variant, write_tiny_checkpoint

from mmcore.adapter import Adapter
from mmcore.inputs.checkpoint import Checkpoint
from mmcore.inputs.ops import NumpyOps
from mmcore.model.attention import AttentionMetadata, KVCache
from mmcore.model.weights import Model, build_model, load_weights
from mmcore.request import DecodedMedia, EncoderInput, ItemPlan, MediaInfo

BLOCK = 16
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

    @property
    def device(self) -> torch.device:
        return self.model.decoder.embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.decoder.embedding.weight.dtype

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
        tensors = {name: torch.from_numpy(array).to(self.device) for name, array in arrays.items()}
        tensors["patches"] = tensors["patches"].to(self.dtype)
        rows: torch.Tensor = self.model.encoder(**tensors)
        return rows

    @torch.inference_mode()
    def logits(
        self, ids: list[int], rows: torch.Tensor, positions: torch.Tensor, cuts: list[int]
    ) -> torch.Tensor:
        """Logits [T, V] of one sequence, chunk by chunk, over a cache whose blocks run backwards."""
        decoder, device = self.model.decoder, self.device
        config = decoder.config
        count = -(-len(ids) // BLOCK)
        shape = (config.num_layers, count, BLOCK, config.num_kv_heads, config.head_dim)
        kv = KVCache(*(torch.zeros(shape, dtype=self.dtype, device=device) for _ in range(2)))
        table = torch.arange(count - 1, -1, -1, dtype=torch.int32, device=device)[None]
        tokens = torch.tensor(ids, device=device)
        mask = (tokens == TOKEN_IDS["<|image_pad|>"]) | (tokens == TOKEN_IDS["<|video_pad|>"])
        hidden = decoder.embed(tokens.masked_fill(mask, 0))
        hidden[mask] = rows
        parts = []
        for start, stop in zip((0, *cuts), (*cuts, len(ids)), strict=True):
            index = torch.arange(start, stop, device=device)
            meta = AttentionMetadata(
                block_tables=table,
                query_starts=torch.tensor([0, stop - start], dtype=torch.int32, device=device),
                context_lens=torch.tensor([stop], dtype=torch.int32, device=device),
                slot_mapping=table[0, index // BLOCK].long() * BLOCK + index % BLOCK,
                max_query_len=stop - start,
            )
            chunk = decoder(hidden[start:stop], positions[:, start:stop].to(device), kv, meta)
            parts.append(decoder.logits(chunk))
        return torch.cat(parts)


def open_tiny(folder: Path, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tiny:
    checkpoint = Checkpoint(folder)
    adapter = Qwen2VLAdapter.from_config(checkpoint.config, checkpoint)
    model = build_model(adapter, dtype, torch.device(device))
    load_weights(model, adapter, checkpoint.weight_files())
    return Tiny(folder, adapter, model)


@pytest.fixture(scope="session")
def tiny_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tiny]:
    """Opens a tiny checkpoint by generation and overrides, once each."""
    opened: dict[object, Tiny] = {}

    def get(variant: Variant, **overrides: Any) -> Tiny:
        key = (variant, *sorted(overrides.items()))
        if key not in opened:
            folder = tmp_path_factory.mktemp("qwen2vl")
            opened[key] = open_tiny(write_tiny_checkpoint(folder, variant, **overrides))
        return opened[key]

    return get


@pytest.fixture
def opener() -> Callable[..., Tiny]:
    return open_tiny


@pytest.fixture(scope="session", params=["2", "2.5"])
def tiny(request: pytest.FixtureRequest, tiny_of: Callable[..., Tiny]) -> Tiny:
    return tiny_of(request.param)
