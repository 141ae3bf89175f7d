"""A text encoder with relative position bias (Raffel et al. 2020), over rows followed by text."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from mmcore.decoder_config import DecoderConfig, RelativeBias
from mmcore.model.layers import MLP, Embedding, FusedLinear, Linear, RMSNorm, split_heads
from mmcore.model.relative_bias import buckets_by_distance


class BidirectionalBias(Embedding):
    """Half of the buckets are for what lies before, half for what lies behind."""

    buckets: Tensor

    def __init__(self, config: RelativeBias, heads: int) -> None:
        super().__init__(config.buckets, heads)
        half = RelativeBias(config.buckets // 2, config.max_distance)
        buckets = buckets_by_distance(half).to(torch.get_default_device())
        self.register_buffer("buckets", buckets, persistent=False)
        self._config = half

    def between(self, length: int) -> Tensor:
        """[heads, queries, keys]."""
        place = torch.arange(length, device=self.weight.device)
        distance = place - place[:, None]
        bucket = self.buckets[distance.abs().clamp(max=self._config.max_distance)]
        found: Tensor = self(bucket + (distance > 0) * self._config.buckets)
        return found.permute(2, 0, 1).contiguous()


class BiasedAttention(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        inner = config.num_heads * config.head_dim
        self.qkv = FusedLinear(config.hidden_size, dict.fromkeys("qkv", inner))
        self.out = Linear(inner, config.hidden_size, bias=False)
        self._head_dim = config.head_dim

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """``x`` [n, W], ``bias`` [heads, n, n]. The scores are not scaled."""
        q, k, v = (split_heads(part, self._head_dim).transpose(0, 1)[None] for part in self.qkv.split(x))
        attended = scaled_dot_product_attention(q, k, v, attn_mask=bias[None], scale=1.0)
        return self.out(attended[0].transpose(0, 1).flatten(1))  # type: ignore[no-any-return]


class BiasedBlock(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.attn = BiasedAttention(config)
        self.mlp_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = MLP(config.hidden_size, config.intermediate_size, config.activation, gated=True)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        normed, x = self.mlp_norm.add(x, self.attn(self.attn_norm(x), bias))
        return x + self.mlp(normed)  # type: ignore[no-any-return]


class BiasedEncoder(nn.Module):
    """Sizes are those of the decoder that reads it: ``sizes.positions`` is a `RelativeBias`."""

    def __init__(self, sizes: DecoderConfig, layers: int) -> None:
        super().__init__()
        assert isinstance(sizes.positions, RelativeBias)
        self.embedding = Embedding(sizes.vocab_size, sizes.hidden_size)
        self.bias = BidirectionalBias(sizes.positions, sizes.num_heads)
        self.blocks = nn.ModuleList(BiasedBlock(sizes) for _ in range(layers))
        self.norm = RMSNorm(sizes.hidden_size, sizes.norm_eps)

    def forward(self, rows: Tensor, text_ids: Tensor) -> Tensor:
        """``rows`` [n, W] before the text; gives [n + len(text_ids), W]."""
        x = torch.cat([rows, self.embedding(text_ids)])
        bias = self.bias.between(len(x))
        for block in self.blocks:
            x = block(x, bias)
        return self.norm(x)  # type: ignore[no-any-return]
