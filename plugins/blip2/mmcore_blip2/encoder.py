"""Tower, Q-Former and projection (arXiv 2301.12597)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from mmcore.model.layers import MLP, FusedLinear, LayerNorm, Linear
from mmcore.model.vision_transformer import VisionTransformer
from mmcore_blip2.vision import Blip2Encoder, QFormerConfig


class QFormerAttention(nn.Module):
    """The queries [N, Q, W] attend to states [N, S, C]; the norm comes after the sum."""

    def __init__(self, config: QFormerConfig, states: int) -> None:
        super().__init__()
        width = config.width
        self.q = Linear(width, width)
        self.kv = FusedLinear(states, {"k": width, "v": width}, ("k", "v"))
        self.out = Linear(width, width)
        self.norm = LayerNorm(width, config.norm_eps)
        self._heads = config.heads

    def forward(self, x: Tensor, states: Tensor) -> Tensor:
        parts = (self.q(x), *self.kv.split(states))
        q, k, v = (part.unflatten(-1, (self._heads, -1)).transpose(1, 2) for part in parts)
        attended = scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.norm(self.out(attended) + x)  # type: ignore[no-any-return]


class QFormerLayer(nn.Module):
    def __init__(self, config: QFormerConfig, states: int) -> None:
        """``states`` is the width of what it looks at; 0 for a layer that does not."""
        super().__init__()
        self.attn = QFormerAttention(config, config.width)
        self.cross = QFormerAttention(config, states) if states else None
        self.mlp = MLP(config.width, config.intermediate, config.activation, bias=True)
        self.norm = LayerNorm(config.width, config.norm_eps)

    def forward(self, x: Tensor, states: Tensor) -> Tensor:
        x = self.attn(x, x)
        if self.cross is not None:
            x = self.cross(x, states)
        return self.norm(self.mlp(x) + x)  # type: ignore[no-any-return]


class Blip2Tower(nn.Module):
    """Pictures to their rows. See `Blip2Encoder.collate` for the input."""

    def __init__(self, config: Blip2Encoder) -> None:
        super().__init__()
        former = config.qformer
        self.tower = VisionTransformer(config.vit)
        self.queries = nn.Parameter(torch.empty(former.queries, former.width))
        self.norm = LayerNorm(former.width, former.norm_eps)
        self.layers = nn.ModuleList(
            QFormerLayer(former, 0 if n % former.cross_every else config.vit.width)
            for n in range(former.layers)
        )
        self.projection = Linear(former.width, config.width)

    def forward(self, patches: Tensor) -> Tensor:
        states = self.tower(patches)  # [N, tokens, C]
        x = self.norm(self.queries).expand(len(states), -1, -1)  # [N, Q, W]
        for layer in self.layers:
            x = layer(x, states)
        return self.projection(x.flatten(0, 1))  # type: ignore[no-any-return]
