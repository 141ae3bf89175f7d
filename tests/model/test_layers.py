"""Tower blocks, gated layers and rotary tables against formulas written out."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmcore.decoder_config import Activation, Rope
from mmcore.model.layers import MLP, activation
from mmcore.model.rope import RotaryTable
from mmcore.model.vit import Packing, TowerBlock, TowerConfig

M = TypeVar("M", bound=nn.Module)
FORMULAS = {
    "silu": lambda x: x / (1 + (-x).exp()),
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x / (1 + (-1.702 * x).exp()),
    "relu": lambda x: x * (x > 0),
}


def filled(module: M, seed: int = 0) -> M:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5)
    return module.requires_grad_(False)


@pytest.mark.parametrize("name", FORMULAS)
def test_activations(name: Activation) -> None:
    x = torch.linspace(-6, 6, 101)
    torch.testing.assert_close(activation(name)(x), FORMULAS[name](x), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", FORMULAS)
def test_gated_mlp(name: Activation) -> None:
    mlp = filled(MLP(6, 10, name, gated=True, bias=True))
    x = torch.randn(4, 6)
    gate, up = F.linear(x, mlp.gate_up.weight, mlp.gate_up.bias).chunk(2, dim=1)
    expected = F.linear(FORMULAS[name](gate) * up, mlp.down.weight, mlp.down.bias)
    torch.testing.assert_close(mlp(x), expected, atol=1e-5, rtol=1e-5)


def test_rotary_sections_turn_with_their_axis() -> None:
    table = RotaryTable(Rope(theta=100.0, sections=(1, 2, 1)), head_dim=8)
    cos, sin = table(torch.tensor([[3, 0], [5, 0], [7, 1]]))
    angles = torch.tensor([3 * 1.0, 5 * 100**-0.25, 5 * 100**-0.5, 7 * 100**-0.75])
    torch.testing.assert_close(cos[0], angles.cos())
    torch.testing.assert_close(sin[0], angles.sin())
    assert sin[1].tolist()[:3] == [0.0, 0.0, 0.0]


def block_by_hand(block: TowerBlock, x: Tensor, heads: int) -> Tensor:
    """One sequence, layer norm, plain MLP, no rotary."""
    attn_norm, mlp_norm = cast(Any, block.attn_norm), cast(Any, block.mlp_norm)
    normed = F.layer_norm(x, x.shape[1:], attn_norm.weight, attn_norm.bias, 1e-6)
    q, k, v = (part.unflatten(1, (heads, -1)).transpose(0, 1) for part in block.attn.qkv(normed).chunk(3, 1))
    weights = (q @ k.transpose(1, 2) / q.shape[2] ** 0.5).softmax(-1)
    x = x + block.attn.out((weights @ v).transpose(0, 1).flatten(1))
    normed = F.layer_norm(x, x.shape[1:], mlp_norm.weight, mlp_norm.bias, 1e-6)
    mlp = cast(Any, block.mlp)
    return x + cast(Tensor, mlp.down(F.gelu(mlp.up(normed))))


def test_tower_block_keeps_sequences_apart() -> None:
    config = TowerConfig(width=12, heads=3, intermediate=20, activation="gelu", k_bias=False)
    block = filled(TowerBlock(config))
    lengths = [5, 1, 7]
    x = torch.randn(sum(lengths), 12, generator=torch.Generator().manual_seed(1))
    starts = torch.tensor([0, 5, 6, 13], dtype=torch.int32)
    together = block(x, Packing(starts, 7))
    expected = torch.cat([block_by_hand(block, part, 3) for part in torch.split(x, lengths)])
    torch.testing.assert_close(together, expected, atol=1e-5, rtol=1e-5)
