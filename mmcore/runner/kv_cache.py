"""The paged KV cache, and the scales of one that holds float8.

e4m3 has four significant bits between 2^-6 and 448, fewer below, and nothing above (Micikevicius et al. 2022,
arXiv 2209.05433). Where a head's values lie is a property of the weights: some models have keys of several
hundred, all in one direction. So each layer is asked once, at start, with tokens that never change; answers
depend on the checkpoint alone, never on who came first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmcore.decoder_config import DecoderConfig
from mmcore.kernels.store_kv import FP8_MAX
from mmcore.model.attention import AttentionMetadata, KVCache
from mmcore.model.decoder import Decoder

TOKENS = 256
"""Of the one pass that finds the scales."""
HEADROOM = 4.0
"""How much larger than in that pass a value may be before it is cut."""
STRIDE = 2_654_435_761
"""Spreads token ids over a vocabulary (Knuth, TAOCP vol. 3, 6.4)."""


def make_kv_cache(decoder: Decoder, blocks: int, block_size: int, dtype: torch.dtype) -> KVCache:
    """Room for ``blocks`` blocks on the decoder's device, uninitialised: nothing unwritten is read."""
    key, value = _empty(decoder, blocks, block_size, dtype)
    if dtype != torch.float8_e4m3fn:
        return KVCache(key, value)
    scales = find_scales(decoder, block_size)
    return KVCache(key, value, scales, torch.ones_like(scales))


@torch.inference_mode()
def find_scales(decoder: Decoder, block_size: int) -> Tensor:
    """By what a float8 key or value is multiplied, float32 [layers, 2, KV heads]; 1 where none is finite.

    Cross states are not asked for: normed encoder rows through one product stay far from 448.
    """
    config, device = decoder.config, decoder.embedding.weight.device
    count = min(TOKENS, config.max_length)
    blocks = -(-count // block_size)
    kv = KVCache(*_empty(decoder, blocks, block_size, decoder.embedding.weight.dtype))
    index = torch.arange(count, device=device)
    hidden = decoder.embed(index * STRIDE % config.vocab_size)
    axes = getattr(config.positions, "axes", 1)
    decoder(hidden, index.expand(axes, -1).contiguous(), kv, _one_row(config, index, blocks))
    sides = [cache.flatten(1, 2)[:, :count] for cache in (kv.key, kv.value)]
    largest = torch.stack([side.abs().amax((1, 3)).float() for side in sides], dim=1)
    usable = largest.isfinite() & (largest > 0)
    return torch.where(usable, largest * (HEADROOM / FP8_MAX), 1.0)


def _empty(decoder: Decoder, blocks: int, block_size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    config, weight = decoder.config, decoder.embedding.weight
    size = (config.num_layers, blocks, block_size, config.num_kv_heads, config.head_dim)
    return weight.new_empty(size, dtype=dtype), weight.new_empty(size, dtype=dtype)


def _one_row(config: DecoderConfig, index: Tensor, blocks: int) -> AttentionMetadata:
    """A sequence of its own, which sees no cross states."""
    nothing = torch.zeros(1, 1, dtype=torch.int32, device=index.device)
    return AttentionMetadata(
        block_tables=torch.arange(blocks, dtype=torch.int32, device=index.device)[None],
        query_starts=torch.tensor([0, len(index)], dtype=torch.int32, device=index.device),
        context_lens=torch.tensor([len(index)], dtype=torch.int32, device=index.device),
        slot_mapping=index,
        max_query_len=len(index),
        cross_block_tables=nothing if config.cross_attention else None,
        cross_lens=nothing[0] if config.cross_attention else None,
    )
