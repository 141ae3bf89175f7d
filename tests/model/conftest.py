"""A text-only adapter around a decoder, and a one-sequence run of it in chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mmcore.adapter import Adapter, IgnoredWeight, MediaOps, WeightRule
from mmcore.decoder_config import DecoderConfig
from mmcore.inputs.decoding import PlainDecoding
from mmcore.inputs.template import PlainTemplate
from mmcore.model.attention import AttentionMetadata, KVCache
from mmcore.model.decoder import Decoder
from mmcore.model.weights import Model, build_model, load_weights
from mmcore.request import DecodedMedia, EncodeCost, EncoderInput, ItemPlan, MediaInfo
from mmcore.testing.tiny import save_checkpoint

BLOCK = 4


@dataclass(frozen=True)
class NoMedia:
    """Input processor and encoder of a family without media."""

    modalities: tuple[str, ...] = ()

    @property
    def limits(self) -> Mapping[str, Any]:
        return {}

    def measure(self, infos: Sequence[MediaInfo], options: Sequence[Any]) -> tuple[ItemPlan, ...]:
        return ()

    def preprocess(self, media: DecodedMedia, plan: ItemPlan, ops: MediaOps) -> EncoderInput:
        return EncoderInput({})

    def with_options(self, options: Mapping[str, Any]) -> NoMedia:
        return self

    def build(self) -> nn.Module:
        return nn.Identity()

    def collate(self, inputs: Sequence[EncoderInput], plans: Sequence[ItemPlan]) -> dict[str, np.ndarray]:
        return {}

    def cost(self, plan: ItemPlan) -> EncodeCost:
        return EncodeCost(0)


def text_adapter(
    config: DecoderConfig, rules: Sequence[WeightRule], ignored: Sequence[IgnoredWeight] = ()
) -> Adapter:
    return Adapter(
        name="text",
        prompt=PlainTemplate(),
        inputs=NoMedia(),
        encoder=NoMedia(),
        decoding=PlainDecoding(),
        decoder=config,
        placeholders=(),
        weights=tuple(rules),
        ignored=tuple(ignored),
    )


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Model]:
    """Writes tensors as a checkpoint and loads it into a float32 model on the CPU."""

    def write_and_load(
        config: DecoderConfig,
        tensors: Mapping[str, Tensor],
        rules: Sequence[WeightRule],
        ignored: Sequence[IgnoredWeight] = (),
        *,
        shards: int = 1,
        dtype: torch.dtype = torch.float32,
    ) -> Model:
        adapter = text_adapter(config, rules, ignored)
        save_checkpoint(tmp_path, tensors, {}, shards=shards)
        model = build_model(adapter, dtype, torch.device("cpu"))
        load_weights(model, adapter, sorted(tmp_path.glob("*.safetensors")))
        return model

    return write_and_load


def empty_cache(config: DecoderConfig, blocks: int) -> KVCache:
    shape = (config.num_layers, blocks, BLOCK, config.num_kv_heads, config.head_dim)
    return KVCache(torch.full(shape, torch.nan), torch.full(shape, torch.nan))


@torch.inference_mode()
def run_in_chunks(
    decoder: Decoder, ids: Sequence[int], cuts: Sequence[int], cross: Tensor | None = None
) -> Tensor:
    """Logits [T, V] of one sequence, computed chunk by chunk over blocks in scrambled order."""
    config = decoder.config
    needed = -(-len(ids) // BLOCK)
    cross_blocks = 0 if cross is None else -(-len(cross) // BLOCK)
    kv = empty_cache(config, needed + cross_blocks)
    blocks = torch.randperm(needed + cross_blocks, generator=torch.Generator().manual_seed(3)).int()
    table, cross_table = blocks[None, :needed], blocks[None, needed:]
    if cross is not None:
        decoder.write_cross_kv(cross, kv, _slots(cross_table, 0, len(cross)))
    parts = []
    for start, stop in zip((0, *cuts), (*cuts, len(ids)), strict=True):
        meta = AttentionMetadata(
            block_tables=table,
            query_starts=torch.tensor([0, stop - start], dtype=torch.int32),
            context_lens=torch.tensor([stop], dtype=torch.int32),
            slot_mapping=_slots(table, start, stop),
            max_query_len=stop - start,
            cross_block_tables=None if cross is None else cross_table,
            cross_lens=None if cross is None else torch.tensor([len(cross)], dtype=torch.int32),
        )
        hidden = decoder.embed(torch.tensor(ids[start:stop]))
        parts.append(decoder.logits(decoder(hidden, torch.arange(start, stop)[None], kv, meta)))
    return torch.cat(parts)


def _slots(table: Tensor, start: int, stop: int) -> Tensor:
    index = torch.arange(start, stop)
    return table[0, index // BLOCK].long() * BLOCK + index % BLOCK


@pytest.fixture
def chunked() -> Callable[..., Tensor]:
    return run_in_chunks


@pytest.fixture
def adapter_for() -> Callable[..., Adapter]:
    return text_adapter
