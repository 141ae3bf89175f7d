"""Rotary tables: angles of token positions on one axis or on several (M-RoPE)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mmcore.decoder_config import Rope
from mmcore.errors import CheckpointError, UnsupportedOptionError
from mmcore.kernels.rotary_angles import rotary_angles


def inverse_frequencies(theta: float, width: int) -> Tensor:
    """float32 [width / 2] on the CPU: ``theta ** (-2 i / width)`` (Su et al. 2021)."""
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device="cpu") / width
    return 1.0 / theta**exponents


class RotaryTable(nn.Module):
    """``positions`` int64 [axes, T] to cosines and sines, float32 [T, head_dim / 2] each.

    With sections, frequency i turns with the axis whose section holds i (Wang et al. 2024).
    """

    frequencies: Tensor
    axis: Tensor

    def __init__(self, rope: Rope, head_dim: int) -> None:
        super().__init__()
        sections = rope.sections or (head_dim // 2,)
        if sum(sections) != head_dim // 2:
            raise CheckpointError(
                f"rotary sections {sections} add up to {sum(sections)}, not to half the head size "
                f"{head_dim}; check `mrope_section` in config.json"
            )
        device = torch.get_default_device()
        frequencies = _scaled(inverse_frequencies(rope.theta, head_dim), dict(rope.scaling))
        axis = torch.tensor([n for n, size in enumerate(sections) for _ in range(size)], device=device)
        self.register_buffer("frequencies", frequencies.to(device), persistent=False)
        self.register_buffer("axis", axis, persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_angles(positions, self.frequencies, self.axis)


def _scaled(frequencies: Tensor, scaling: dict[str, float | str]) -> Tensor:
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind in ("default", "mrope"):
        return frequencies
    if kind == "linear":
        return frequencies / float(scaling["factor"])
    if kind == "llama3":
        return _llama3(frequencies, {k: float(v) for k, v in scaling.items() if not isinstance(v, str)})
    raise UnsupportedOptionError(
        f"rotary scaling {kind!r} of config.json is not built yet; built are default, linear and llama3"
    )


def _llama3(frequencies: Tensor, scaling: dict[str, float]) -> Tensor:
    """Llama 3.1's rule: long waves are stretched, short ones kept, those between are mixed."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return kept * frequencies + (1 - kept) * frequencies / scaling["factor"]
