"""Whisper's encoder: two convolutions over the log-mel spectrogram, then a pre-norm transformer.

Source: Radford et al. 2022 and the reference implementation in transformers (`WhisperEncoder`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmcore.model.layers import LayerNorm
from mmcore.model.vit import Packing, TowerBlock, TowerConfig


class Convolution(nn.Conv1d):
    """``nn.Conv1d`` of width 3 without the random fill."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, kernel_size=3, stride=stride, padding=1)

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""

    def forward(self, x: Tensor) -> Tensor:
        """In float32 without the shortcut of ten bits that is a GPU's default."""
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return super().forward(x)


class WhisperTower(nn.Module):
    """``forward(features [items, mels, 2 * rows]) -> [items * rows, width]``, rows in item order."""

    def __init__(self, block: TowerConfig, layers: int, mels: int, rows: int) -> None:
        super().__init__()
        self.conv1 = Convolution(mels, block.width, stride=1)
        self.conv2 = Convolution(block.width, block.width, stride=2)
        self.positions = nn.Parameter(torch.empty(rows, block.width))
        self.layers = nn.ModuleList(TowerBlock(block) for _ in range(layers))
        self.norm = LayerNorm(block.width, block.norm_eps)

    def forward(self, features: Tensor) -> Tensor:
        x = F.gelu(self.conv1(features.to(self.positions.dtype)))
        x = F.gelu(self.conv2(x)).transpose(1, 2)  # [items, rows, width]
        x = (x + self.positions).flatten(0, 1)
        packing = self._packing(len(features), x.device)
        for layer in self.layers:
            x = layer(x, packing)
        return self.norm(x)  # type: ignore[no-any-return]

    def _packing(self, items: int, device: torch.device) -> Packing:
        rows = len(self.positions)
        return Packing(torch.arange(items + 1, dtype=torch.int32, device=device) * rows, rows)
