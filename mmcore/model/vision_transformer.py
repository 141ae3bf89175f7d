"""A vision transformer over pictures of one size, built from a `VitConfig`.

Parameter names: ``patch_embed.*``, ``class_token``, ``positions``, ``pre_norm.*``, ``blocks.N.*``
(`mmcore.model.vit`), ``post_norm.*``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmcore.model.layers import LayerNorm, Linear
from mmcore.model.vit import Packing, TowerBlock, TowerConfig
from mmcore.parts.vit import VitConfig


class VisionTransformer(nn.Module):
    """Patches of N pictures to their rows (Dosovitskiy et al. 2021)."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        width, eps = config.width, config.norm_eps
        block = TowerConfig(
            width=width,
            heads=config.heads,
            intermediate=config.intermediate,
            activation=config.activation,
            norm=config.norm,
            norm_eps=eps,
            q_bias=config.qkv_bias,
            k_bias=config.qkv_bias,
            v_bias=config.qkv_bias,
            qk_norm=config.qk_norm,
            layer_scale=config.layer_scale,
        )
        self.patch_embed = Linear(config.patch_values, width, bias=config.patch_bias)
        self.class_token = nn.Parameter(torch.empty(width)) if config.class_token else None
        self.positions = nn.Parameter(torch.empty(config.tokens, width))
        self.pre_norm = LayerNorm(width, eps) if config.pre_norm else None
        self.blocks = nn.ModuleList(TowerBlock(block) for _ in range(config.layers))
        self.post_norm = LayerNorm(width, eps) if config.post_norm else None
        self._config = config

    def forward(self, patches: Tensor) -> Tensor:
        """``patches`` [N * patches, values] in the order of `MediaOps.patchify`; gives [N, tokens, width]."""
        config = self._config
        x = self.patch_embed(patches).view(-1, config.patches, config.width)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(len(x), 1, -1), x], dim=1)
        x = x + self.positions
        if self.pre_norm is not None:
            x = self.pre_norm(x)
        rows = self._blocks(x.flatten(0, 1)).view(x.shape)
        return rows if self.post_norm is None else self.post_norm(rows)

    def _blocks(self, x: Tensor) -> Tensor:  # [N * tokens, W]
        tokens = self._config.tokens
        starts = torch.arange(0, len(x) + 1, tokens, dtype=torch.int32, device=x.device)
        packing = Packing(starts, tokens)
        for block in self.blocks:
            x = block(x, packing)
        return x
