"""The greedy choice: the largest logit of each row, on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from mmcore.errors import EngineError
from mmcore.kernels.dispatch import use_triton


def argmax_reference(logits: Tensor) -> Tensor:
    """Row by row."""
    tokens = []
    for row in logits.tolist():
        sound = [-float("inf") if value != value else value for value in row]
        tokens.append(sound.index(max(sound)))
    return torch.tensor(tokens, dtype=torch.int64, device=logits.device)


def argmax(logits: Tensor, out: Tensor | None = None) -> Tensor:
    """Column of the largest value in each row of ``logits`` [R, V]; int64 [R], into ``out`` when given.

    The first of equals, on every device. A row's NaNs never win. On a GPU two launches without a word to the
    host: capture them with ``out`` as the next step's token ids, in the caller's hands.
    Raises EngineError on logits without columns.
    """
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise EngineError(f"argmax: logits {tuple(logits.shape)} must be [rows, vocabulary]")
    if use_triton(logits):
        from mmcore.kernels.argmax_triton import argmax_triton

        return argmax_triton(logits, out)
    tokens = logits.nan_to_num(nan=-float("inf"), posinf=float("inf"), neginf=-float("inf")).argmax(-1)
    return tokens if out is None else out.copy_(tokens)
