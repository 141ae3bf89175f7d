"""Blocks of encoder towers, shared by families: packed sequences, bidirectional attention, pre-norm.

Parameter names of a block: ``attn_norm.*``, ``attn.qkv.{weight,bias}`` (shards q, k, v), ``attn.out.*``,
``mlp_norm.*``, ``mlp.up.*`` or ``mlp.gate_up.*`` (shards gate, up), ``mlp.down.*``; in some towers
``attn.{q,k}_norm.weight``, ``attn_scale``, ``mlp_scale``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmcore.decoder_config import Activation, Norm
from mmcore.kernels.rotary import rotary
from mmcore.kernels.varlen_attention import varlen_attention
from mmcore.model.layers import MLP, FusedLinear, Linear, RMSNorm, make_norm, split_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerConfig:
    """One tower block as data."""

    width: int
    heads: int
    intermediate: int
    activation: Activation
    norm: Norm = "layer"
    norm_eps: float = 1e-6
    gated: bool = False
    q_bias: bool = True
    k_bias: bool = True
    v_bias: bool = True
    out_bias: bool = True
    mlp_bias: bool = True
    qk_norm: bool = False
    """Queries and keys are RMS normed, each over all heads together."""
    layer_scale: bool = False
    """What a block adds is scaled, each channel by itself (Touvron et al. 2021)."""


@dataclass(frozen=True, eq=False, slots=True)
class Packing:
    """Which of the T packed vectors see each other: sequence i is [starts[i], starts[i + 1])."""

    starts: Tensor  # int32 [S + 1]
    max_len: int
    """Longest sequence, or any bound on it; the host takes it from a shape, never from the device."""


class TowerAttention(nn.Module):
    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        flags = {"q": config.q_bias, "k": config.k_bias, "v": config.v_bias}
        biased = [name for name, flag in flags.items() if flag]
        self.qkv = FusedLinear(config.width, dict.fromkeys("qkv", config.width), biased)
        self.q_norm, self.k_norm = (
            RMSNorm(config.width, config.norm_eps) if config.qk_norm else None for _ in range(2)
        )
        self.out = Linear(config.width, config.width, bias=config.out_bias)
        self._head_dim = config.width // config.heads

    def forward(self, x: Tensor, packing: Packing, turn: tuple[Tensor, Tensor] | None) -> Tensor:
        """``x`` [T, W]; ``turn`` holds rotary cosines and sines [T, D/2], None without rotary."""
        q, k, v = self.qkv.split(x)  # [T, W]
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (split_heads(part, self._head_dim) for part in (q, k, v))  # [T, heads, D]
        if turn is not None:
            q, k = rotary(q, k, *turn)
        attended = varlen_attention(q, k, v, packing.starts, packing.max_len, self._head_dim**-0.5)
        return self.out(attended.flatten(1))  # type: ignore[no-any-return]


class TowerBlock(nn.Module):
    """``x + attn(norm(x))``, then ``x + mlp(norm(x))``, each part scaled where there is a scale; [T, W] to
    [T, W]."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.attn_norm = make_norm(config.norm, config.width, config.norm_eps)
        self.attn = TowerAttention(config)
        self.mlp_norm = make_norm(config.norm, config.width, config.norm_eps)
        self.mlp = MLP(
            config.width, config.intermediate, config.activation, gated=config.gated, bias=config.mlp_bias
        )
        self.attn_scale, self.mlp_scale = (
            nn.Parameter(torch.empty(config.width)) if config.layer_scale else None for _ in range(2)
        )

    def forward(self, x: Tensor, packing: Packing, turn: tuple[Tensor, Tensor] | None = None) -> Tensor:
        seen = self.attn(self.attn_norm(x), packing, turn)
        normed, x = self.mlp_norm.add(x, seen if self.attn_scale is None else seen * self.attn_scale)
        added = self.mlp(normed)
        return x + (added if self.mlp_scale is None else added * self.mlp_scale)  # type: ignore[no-any-return]
