"""Rows out of a table of features, on the device (`mmcore.parts.blends` lays them out)."""

from __future__ import annotations

import torch
from torch import Tensor


def blend(table: Tensor, entries: Tensor, weights: Tensor) -> Tensor:
    """``table`` [entries, W], ``entries`` int64 and ``weights`` float32 [rows, taps]; gives [rows, W].

    Sums in float32, tap by tap: all taps of all rows at once would be many times the table.
    """
    if entries.shape[1] == 1:
        return table[entries[:, 0]]
    total = torch.zeros(len(entries), table.shape[1], dtype=torch.float32, device=table.device)
    for tap in range(entries.shape[1]):
        total.addcmul_(table[entries[:, tap]], weights[:, tap, None])
    return total.to(table.dtype)
