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
from PIL import Image

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

    def pixels(self, inputs: list[EncoderInput], plans: list[ItemPlan]) -> np.ndarray:
        """Patches as the published processors give them: cut as the tower cuts them, and normalised."""
        processor: Any = self.adapter.inputs
        columns = [self._columns(inputs, plans)[name] for name in ("pixels", "corners", "strides")]
        tower: Any = self.model.encoder
        levels = tower.cut.levels(*columns).cpu().numpy()
        colours = levels.reshape(len(levels), 3, -1) / 255.0
        mean, std = (np.array(values)[:, None] for values in (processor.mean, processor.std))
        normal: np.ndarray = ((colours - mean) / std).reshape(levels.shape).astype(np.float32)
        return normal

    def _columns(self, inputs: list[EncoderInput], plans: list[ItemPlan]) -> dict[str, torch.Tensor]:
        arrays = self.adapter.encoder.collate(inputs, plans)
        return {name: torch.from_numpy(array).to(self.device) for name, array in arrays.items()}

    @torch.inference_mode()
    def encode(self, inputs: list[EncoderInput], plans: list[ItemPlan]) -> torch.Tensor:
        rows: torch.Tensor = self.model.encoder(**self._columns(inputs, plans))
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


class VideoReference:
    """What transformers lacks without torchvision, and what it counts otherwise: see `test_video_parity`."""

    def weave(self, processor: Any, frames: list[np.ndarray]) -> tuple[np.ndarray, tuple[int, int, int]]:
        """``pixel_values_videos`` and the grid, from the picture processor alone."""
        if len(frames) % 2:
            frames = [*frames, frames[-1]]
        arrays = processor([Image.fromarray(frame) for frame in frames], return_tensors="np")
        _, height, width = (int(side) for side in arrays["image_grid_thw"][0])
        each = arrays["pixel_values"].reshape(len(frames), height * width, 3, 2, 14 * 14)
        woven = np.stack([each[0::2, :, :, 0], each[1::2, :, :, 1]], axis=3)
        return woven.reshape(-1, 3 * 2 * 14 * 14), (len(frames) // 2, height, width)

    def positions(self, tokens: list[int | tuple[int, int, int, float]], variant: Variant) -> torch.Tensor:
        """Qwen's own counting, [3, tokens]. An entry is a text token, or a merged grid and its time step."""
        columns: list[tuple[int, int, int]] = []
        start = 0
        for entry in tokens:
            if isinstance(entry, int):
                columns.append((start,) * 3)
            else:
                time, height, width, step = entry
                moments = torch.arange(time)
                if variant == "2.5":
                    moments = (moments * step * 2).long()
                columns += [
                    (start + int(moments[t]), start + y, start + x)
                    for t in range(time)
                    for y in range(height)
                    for x in range(width)
                ]
            start = 1 + max(max(column) for column in columns)
        return torch.tensor(columns).T


@pytest.fixture(scope="session")
def reference() -> VideoReference:
    return VideoReference()
