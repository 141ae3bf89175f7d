"""The one decoder: a `DecoderConfig` says which of its parts a family has.

Parameter names (targets of weight rules; N counts layers)::

    embedding.weight  embed_norm.*  positions.weight  relative_bias.weight  norm.*  head.weight  head.bias
    layers.N.attn_norm.*   layers.N.attn.qkv.{weight,bias} (shards q, k, v)   layers.N.attn.out.*
    layers.N.cross_norm.*  layers.N.cross.q.*  layers.N.cross.kv.* (shards k, v)  layers.N.cross.out.*
    layers.N.mlp_norm.*    layers.N.mlp.gate_up.* (shards gate, up) or layers.N.mlp.up.*  layers.N.mlp.down.*
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from mmcore.decoder_config import DecoderConfig, LearnedPositions, RelativeBias, Rope
from mmcore.errors import UnsupportedOptionError
from mmcore.kernels.dispatch import use_triton
from mmcore.kernels.skinny_linear import is_skinny, skinny_linear
from mmcore.model.attention import AttentionMetadata, CrossAttention, KVCache, SelfAttention, Tail
from mmcore.model.layers import MLP, Embedding, LayerNorm, Linear, RMSNorm, make_norm
from mmcore.model.relative_bias import RelativeBiasTable
from mmcore.model.rope import RotaryTable


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention where configured, MLP; each with its norm before or after."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.norm_eps
        self.attn_norm = make_norm(config.norm, width, eps)
        self.attn = SelfAttention(config, layer)
        if config.cross_attention:
            self.cross_norm = make_norm(config.norm, width, eps)
            self.cross = CrossAttention(config, layer)
        self.mlp_norm = make_norm(config.norm, width, eps)
        self.mlp = MLP(
            width, config.intermediate_size, config.activation, gated=config.gated, bias=config.mlp_bias
        )
        self._has_cross = config.cross_attention
        self._post_norm = config.post_norm
        self._deepest = max(width, config.intermediate_size)

    def forward(
        self,
        x: Tensor,
        part: Tensor | None,
        kv: KVCache,
        meta: AttentionMetadata,
        turn: tuple[Tensor, Tensor] | None,
        bias: Tensor | None,
        tail: Tail | None,
    ) -> tuple[Tensor, Tensor | None]:
        """``x + part`` comes in and goes out: the sum is left to the next norm, which reads both anyway.

        Of a few rows a sublayer's first product takes the norm, its last adds ``x``. With ``tail`` only its
        tokens go out.
        """
        x, part = self._residual(
            x, part, self.attn_norm, lambda h, **few: self.attn(h, kv, meta, turn, bias, tail, **few), tail
        )
        if self._has_cross:
            rows = meta if tail is None else tail.meta
            x, part = self._residual(
                x, part, self.cross_norm, lambda h, **few: self.cross(h, kv, rows, **few)
            )
        return self._residual(x, part, self.mlp_norm, self.mlp)

    def _residual(
        self,
        x: Tensor,
        part: Tensor | None,
        norm: RMSNorm | LayerNorm,
        call: Callable[..., Tensor],
        tail: Tail | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """``call`` may give the tokens of ``tail`` alone."""
        if self._post_norm:
            return norm.add(_kept(x, tail), call(x))[0], None
        if part is None and tail is None and use_triton(x) and is_skinny(len(x), self._deepest):
            return call(x, residual=x, norm=norm.of_rows()), None
        normed, x = (norm(x), x) if part is None else norm.add(x, part)
        return _kept(x, tail), call(normed)


def _kept(x: Tensor, tail: Tail | None) -> Tensor:
    return x if tail is None else x[tail.tokens]


class Decoder(nn.Module):
    """Token embeddings to logits over paged KV. H is the hidden size, V the vocabulary."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        _refuse_unbuilt(config)
        self.config = config
        width = config.hidden_size
        self.embedding = Embedding(config.vocab_size, width)
        if isinstance(config.positions, LearnedPositions):
            self.positions = Embedding(config.positions.count, width)
        if isinstance(config.positions, Rope):
            self.rotary = RotaryTable(config.positions, config.head_dim)
        if isinstance(config.positions, RelativeBias):
            self.relative_bias = RelativeBiasTable(config.positions, config.num_heads)
        if config.embed_norm:
            self.embed_norm = make_norm(config.norm, width, config.norm_eps)
        self.layers = nn.ModuleList(DecoderLayer(config, n) for n in range(config.num_layers))
        if config.final_norm:
            self.norm = make_norm(config.norm, width, config.norm_eps)
        if not config.tied_head:
            self.head = Linear(width, config.vocab_size, bias=config.head_bias)

    def forward(
        self,
        hidden: Tensor,
        positions: Tensor,
        kv: KVCache,
        meta: AttentionMetadata,
        tail: Tail | None = None,
    ) -> Tensor:
        """``hidden`` [T, H] from `embed`, encoder rows merged in; ``positions`` int64 [axes, T].

        Gives the hidden states before the head, [T, H], or [S, H] of the S tokens of ``tail``. Never waits
        for the device.
        """
        config = self.config
        turn, bias = None, None
        if isinstance(config.positions, Rope):
            turn = self.rotary(positions)
        elif isinstance(config.positions, RelativeBias):
            bias = self.relative_bias.by_distance()
        elif isinstance(config.positions, LearnedPositions):
            hidden = hidden + self.positions(positions[0] + config.positions.offset)
        if config.embed_norm:
            hidden = self.embed_norm(hidden)
        part: Tensor | None = None
        last = len(self.layers) - 1
        for n, layer in enumerate(self.layers):
            hidden, part = layer(hidden, part, kv, meta, turn, bias, tail if n == last else None)
        if part is None:
            return self.norm(hidden) if config.final_norm else hidden
        return self.norm.add(hidden, part)[0] if config.final_norm else hidden + part

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids int64 [T] to [T, H], scaled as the family does."""
        hidden: Tensor = self.embedding(ids)
        return hidden if self.config.embed_scale == 1.0 else hidden * self.config.embed_scale

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [S, H] to [S, V], as the head rounds them; float32 where they are scaled."""
        tied = self.config.tied_head
        scores: Tensor = skinny_linear(hidden, self.embedding.weight) if tied else self.head(hidden)
        return scores if self.config.head_scale == 1.0 else scores.float() * self.config.head_scale

    def write_cross_kv(self, states: Tensor, kv: KVCache, slot_mapping: Tensor) -> None:
        """Project cross states [N, C] into the cache slots int64 [N] of every layer."""
        for layer in self.layers:
            assert isinstance(layer, DecoderLayer)
            layer.cross.write(states, kv, slot_mapping)


def _refuse_unbuilt(config: DecoderConfig) -> None:
    if config.feature_levels:
        raise UnsupportedOptionError("DecoderConfig.feature_levels is not built yet; leave it 0")
    if config.tied_head and config.head_bias:
        raise UnsupportedOptionError("DecoderConfig.head_bias with a tied head is not built yet")
