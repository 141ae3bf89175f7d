"""Rows out of a table of features, on the device (`mmcore.parts.blends` lays them out)."""

from __future__ import annotations

import torch
from torch import Tensor


def blend(table: Tensor, entries: Tensor, weights: Tensor) -> Tensor:
    """``table`` [entries, W], ``entries`` int64 and ``weights`` [rows, taps]; gives [rows, W]."""
    if entries.shape[1] == 1:
        return table[entries[:, 0]]
    return torch.einsum("rtw,rt->rw", table[entries], weights.to(table.dtype))
