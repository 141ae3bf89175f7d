"""The greedy choice: the largest logit of each row, on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from mmcore.errors import EngineError
from mmcore.kernels.dispatch import use_triton


def argmax_reference(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Row by row."""
    values, tokens = [], []
    for row in logits.tolist():
        sound = [-float("inf") if value != value else value for value in row]
        values.append(max(sound) if sound == row else float("nan"))
        tokens.append(sound.index(max(sound)))
    device = logits.device
    return (
        torch.tensor(values, dtype=torch.float32, device=device),
        torch.tensor(tokens, dtype=torch.int64, device=device),
    )


def argmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest value of each row of ``logits`` [R, V], float32 [R], and its column, int64 [R].

    The first of equals, on every device. Where a row holds a NaN so is its value; its column is that of the
    largest of the others. On a GPU two launches, any float dtype, without a word to the host.
    Raises EngineError on logits without columns.
    """
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise EngineError(f"argmax: logits {tuple(logits.shape)} must be [rows, vocabulary]")
    if use_triton(logits):
        from mmcore.kernels.argmax_triton import argmax_triton

        return argmax_triton(logits)
    values = logits.amax(-1).float()
    if values.isnan().any():
        logits = logits.nan_to_num(nan=-float("inf"), posinf=float("inf"), neginf=-float("inf"))
    return values, logits.argmax(-1)
