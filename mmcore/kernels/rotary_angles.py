"""Cosines and sines of token positions, on one axis or on several (M-RoPE)."""

from __future__ import annotations

from torch import Tensor

from mmcore.kernels.dispatch import use_triton


def rotary_angles_reference(positions: Tensor, frequencies: Tensor, axis: Tensor) -> tuple[Tensor, Tensor]:
    """Column by column."""
    columns = [positions[a].float() * f for a, f in zip(axis.tolist(), frequencies, strict=True)]
    angles = positions.new_empty((positions.shape[1], len(columns)), dtype=frequencies.dtype)
    for index, column in enumerate(columns):
        angles[:, index] = column
    return angles.cos(), angles.sin()


def rotary_angles(positions: Tensor, frequencies: Tensor, axis: Tensor) -> tuple[Tensor, Tensor]:
    """``positions`` int64 [axes, T] to cosines and sines, float32 [T, R / 2] each.

    ``frequencies`` float32 [R / 2]; column i turns with the position on ``axis[i]`` (int64 [R / 2]): with
    sections 16, 24, 24 the first 16 columns take axis 0, and so on (Wang et al. 2024, arXiv 2409.12191).
    The angle is a float32 product, as in the reference implementations. On a GPU it is one launch.
    """
    if use_triton(positions):
        from mmcore.kernels.rotary_angles_triton import rotary_angles_triton

        return rotary_angles_triton(positions, frequencies, axis)
    by_column = positions[:1] if len(positions) == 1 else positions[axis]
    angles = by_column.t().float() * frequencies  # [T, R / 2]
    return angles.cos(), angles.sin()
