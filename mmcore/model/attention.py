"""Attention of the decoder over the paged KV cache, and the records that describe a step to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mmcore.decoder_config import DecoderConfig
from mmcore.kernels.paged_attention import paged_attention
from mmcore.kernels.rotary_store_kv import rotary_store_kv
from mmcore.kernels.skinny_linear import RowNorm
from mmcore.kernels.store_kv import store_kv
from mmcore.model.layers import FusedLinear, Linear, split_heads


class LayerKV(NamedTuple):
    """One layer's blocks, and by what a float8 value is multiplied: float32 [2, KV heads] (keys, values)."""

    key: Tensor
    value: Tensor
    scales: Tensor | None


@dataclass(frozen=True, eq=False, slots=True)
class KVCache:
    """All layers' blocks, each [layers, blocks, block size, KV heads, head size].

    A block holds either tokens of a sequence or cross-attention states: the pool tells them apart.
    Blocks of float8 have scales of either kind, float32 [layers, 2, KV heads].
    """

    key: Tensor
    value: Tensor
    scales: Tensor | None = None
    cross_scales: Tensor | None = None

    def layer(self, index: int) -> LayerKV:
        """As self-attention reads and writes it."""
        scales = None if self.scales is None else self.scales[index]
        return LayerKV(self.key[index], self.value[index], scales)

    def cross_layer(self, index: int) -> LayerKV:
        scales = None if self.cross_scales is None else self.cross_scales[index]
        return LayerKV(self.key[index], self.value[index], scales)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class AttentionMetadata:
    """A step's R rows of T tokens in all, as attention sees them."""

    block_tables: Tensor  # int32 [R, M]
    query_starts: Tensor  # int32 [R + 1]
    context_lens: Tensor  # int32 [R], this step's tokens included
    slot_mapping: Tensor  # int64 [T], block * block size + offset
    max_query_len: int
    cross_block_tables: Tensor | None = None  # int32 [R, Mc]
    cross_lens: Tensor | None = None  # int32 [R]


@dataclass(frozen=True, eq=False, slots=True)
class Tail:
    """The last tokens of some rows: all that a step wants to know of the last layer, whose other tokens give
    their keys and values and nothing else."""

    tokens: Tensor  # int64 [S], of the step's T
    meta: AttentionMetadata  # of S rows with one token each

    @classmethod
    def of(cls, meta: AttentionMetadata, rows: Tensor, tokens: Tensor) -> Tail:
        """``rows`` int64 [S] of ``meta``, and the index of each one's last token."""
        cross = meta.cross_block_tables
        starts = torch.arange(len(rows) + 1, dtype=torch.int32, device=rows.device)
        last = AttentionMetadata(
            block_tables=meta.block_tables.index_select(0, rows),
            query_starts=starts,
            context_lens=meta.context_lens.index_select(0, rows),
            slot_mapping=meta.slot_mapping.index_select(0, tokens),
            max_query_len=1,
            cross_block_tables=None if cross is None else cross.index_select(0, rows),
            cross_lens=None if meta.cross_lens is None else meta.cross_lens.index_select(0, rows),
        )
        return cls(tokens, last)


class SelfAttention(nn.Module):
    """Causal grouped-query attention; writes this step's keys and values, then attends."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        kv_width = config.num_kv_heads * config.head_dim
        q_width = config.num_heads * config.head_dim
        biased = [n for n in ("q", "k", "v") if getattr(config, f"{n}_bias")]
        sizes = {"q": q_width, "k": kv_width, "v": kv_width}
        self.qkv = FusedLinear(config.hidden_size, sizes, biased)
        self.out = Linear(q_width, config.hidden_size, bias=config.out_bias)
        self._head_dim = config.head_dim
        self._scale = config.scale
        self._layer = layer

    def forward(
        self,
        x: Tensor,
        kv: KVCache,
        meta: AttentionMetadata,
        turn: tuple[Tensor, Tensor] | None,
        bias: Tensor | None = None,
        tail: Tail | None = None,
        *,
        residual: Tensor | None = None,
        norm: RowNorm | None = None,
    ) -> Tensor:
        """``x`` [T, H] to [T, H], or to the rows of ``tail``, while all keys and values are written.

        ``turn`` holds the rotary cosines and sines [T, D/2], None without rotary. ``bias`` float32
        [heads, W] is added to the scores by distance, ``residual`` to the result; ``norm`` is taken of ``x``
        first.
        """
        q, k, v = (split_heads(part, self._head_dim) for part in self.qkv.split(x, norm))  # [T, heads, D]
        cache = kv.layer(self._layer)
        if turn is None:
            store_kv(k, v, cache.key, cache.value, meta.slot_mapping, cache.scales)
        else:
            q = rotary_store_kv(q, k, v, *turn, cache.key, cache.value, meta.slot_mapping, cache.scales)
        if tail is not None:
            q, meta = q[tail.tokens], tail.meta
        attended = paged_attention(
            q,
            cache.key,
            cache.value,
            meta.block_tables,
            meta.query_starts,
            meta.context_lens,
            self._scale,
            causal=True,
            max_query_len=meta.max_query_len,
            bias=bias,
            scales=cache.scales,
        )
        return self.out(attended.flatten(1), residual)  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """Every token sees all cross-attention states of its row."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        kv_width = config.num_kv_heads * config.head_dim
        q_width = config.num_heads * config.head_dim
        biased = [n for n in ("k", "v") if getattr(config, f"{n}_bias")]
        self.q = Linear(config.hidden_size, q_width, bias=config.q_bias)
        self.kv = FusedLinear(config.cross_width, {"k": kv_width, "v": kv_width}, biased)
        self.out = Linear(q_width, config.hidden_size, bias=config.out_bias)
        self._head_dim = config.head_dim
        self._scale = config.scale
        self._layer = layer

    def write(self, states: Tensor, kv: KVCache, slot_mapping: Tensor) -> None:
        """Project cross states [N, C] into their cache slots [N]."""
        k, v = (split_heads(part, self._head_dim) for part in self.kv.split(states))
        cache = kv.cross_layer(self._layer)
        store_kv(k, v, cache.key, cache.value, slot_mapping, cache.scales)

    def forward(
        self,
        x: Tensor,
        kv: KVCache,
        meta: AttentionMetadata,
        *,
        residual: Tensor | None = None,
        norm: RowNorm | None = None,
    ) -> Tensor:
        """``x`` [T, H]; ``residual`` is added to the result, ``norm`` is taken of ``x`` first."""
        assert meta.cross_block_tables is not None
        assert meta.cross_lens is not None
        cache = kv.cross_layer(self._layer)
        attended = paged_attention(
            split_heads(self.q(x, norm=norm), self._head_dim),
            cache.key,
            cache.value,
            meta.cross_block_tables,
            meta.query_starts,
            meta.cross_lens,
            self._scale,
            causal=False,
            max_query_len=meta.max_query_len,
            scales=cache.scales,
        )
        return self.out(attended.flatten(1), residual)  # type: ignore[no-any-return]
