"""The last layer of a prompt computes what is sampled from, and stores what all its tokens leave behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mmcore.decoder_config import DecoderConfig, LearnedPositions, RelativeBias, Rope
from mmcore.model.attention import AttentionMetadata, KVCache, Tail
from mmcore.model.decoder import Decoder

BASE = DecoderConfig(
    vocab_size=48,
    hidden_size=32,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=40,
    positions=Rope(),
    max_length=64,
)
ROWS = {
    "rotary": BASE,
    "post norm": replace(
        BASE, positions=LearnedPositions(count=66, offset=2), norm="layer", post_norm=True, num_kv_heads=4
    ),
    "relative bias": replace(
        BASE, positions=RelativeBias(buckets=8, max_distance=20), num_kv_heads=4, attention_scale=1.0
    ),
    "cross": replace(BASE, cross_attention=True, cross_width=16, num_kv_heads=4),
}
BLOCK = 4
COUNTS = (6, 1, 9)
"""Tokens of the step's three rows; all but the second continue a context of four."""
STARTS = (4, 0, 4)


def make(config: DecoderConfig) -> tuple[Decoder, KVCache, AttentionMetadata, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    decoder = Decoder(config)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    size = (config.num_layers, 16, BLOCK, config.num_kv_heads, config.head_dim)
    kv = KVCache(torch.randn(size), torch.randn(size))
    tables = torch.randperm(12).view(3, 4).int()
    places = [
        (row, start + n)
        for row, (start, count) in enumerate(zip(STARTS, COUNTS, strict=True))
        for n in range(count)
    ]
    slots = torch.tensor([int(tables[row, n // BLOCK]) * BLOCK + n % BLOCK for row, n in places])
    meta = AttentionMetadata(
        block_tables=tables,
        query_starts=torch.tensor([0, 6, 7, 16], dtype=torch.int32),
        context_lens=torch.tensor([10, 1, 13], dtype=torch.int32),
        slot_mapping=slots,
        max_query_len=9,
        cross_block_tables=torch.tensor([[12, 13], [14, 0], [15, 12]], dtype=torch.int32),
        cross_lens=torch.tensor([7, 3, 8], dtype=torch.int32),
    )
    positions = torch.tensor([[n for _, n in places]])
    return decoder, kv, meta, decoder.embed(torch.randint(0, 48, (16,))), positions


@pytest.mark.parametrize("rows", [[0, 1, 2], [0, 2], [1]])
@pytest.mark.parametrize("name", ROWS)
@torch.inference_mode()
def test_its_tokens_and_all_keys_are_those_of_the_whole_step(name: str, rows: list[int]) -> None:
    decoder, kv, meta, hidden, positions = make(ROWS[name])
    whole_kv = KVCache(kv.key.clone(), kv.value.clone())
    whole = decoder(hidden, positions, whole_kv, meta)
    last = torch.tensor([5, 6, 15])[rows]
    found = decoder(hidden, positions, kv, meta, Tail.of(meta, torch.tensor(rows), last))
    torch.testing.assert_close(found, whole[last], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kv.key, whole_kv.key)
    torch.testing.assert_close(kv.value, whole_kv.value)
