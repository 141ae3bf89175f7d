"""Applies the edits of logits rules to a step's logits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmcore.adapter import LogitsEdit


@dataclass(frozen=True, slots=True)
class RowEdit:
    """One edit of one row. A row may have several; they are applied in order, kind by kind."""

    row: int
    edit: LogitsEdit


def edit_logits(logits: Tensor, edits: Sequence[RowEdit]) -> None:
    """Change float32 logits [R, V] in place: allowed, banned ids and spans, bias, then prefer.

    Ids outside [0, V), such as a stop id beyond the embedding, change nothing.
    """
    for item in edits:
        if item.edit.allowed is not None:
            _keep_only(logits[item.row], item.edit.allowed)
    _ban(logits, edits)
    _ban_spans(logits, edits)
    _add_bias(logits, edits)
    for (start, stop), rows in _rows_by_span((item.row, item.edit.prefer) for item in edits).items():
        _prefer(logits, rows, start, stop)


def _keep_only(row: Tensor, ids: Sequence[int]) -> None:
    index = torch.tensor([i for i in ids if 0 <= i < len(row)], dtype=torch.int64).to(
        row.device, non_blocking=True
    )
    kept = row[index]
    row.fill_(-math.inf)
    row[index] = kept


def _ban(logits: Tensor, edits: Sequence[RowEdit]) -> None:
    width = logits.shape[1]
    cells = [item.row * width + i for item in edits for i in item.edit.banned if 0 <= i < width]
    if cells:
        logits.view(-1)[torch.tensor(cells).to(logits.device, non_blocking=True)] = -math.inf


def _ban_spans(logits: Tensor, edits: Sequence[RowEdit]) -> None:
    """One launch for each span, however many rows have it."""
    spans = _rows_by_span((item.row, span) for item in edits for span in item.edit.banned_spans)
    for (start, stop), rows in spans.items():
        index = torch.tensor(rows).to(logits.device, non_blocking=True)
        logits[:, max(0, start) : max(0, stop)].index_fill_(0, index, -math.inf)


def _rows_by_span(pairs: Iterable[tuple[int, tuple[int, int] | None]]) -> dict[tuple[int, int], list[int]]:
    rows: dict[tuple[int, int], list[int]] = {}
    for row, span in pairs:
        if span is not None:
            rows.setdefault(span, []).append(row)
    return rows


def _add_bias(logits: Tensor, edits: Sequence[RowEdit]) -> None:
    width = logits.shape[1]
    biases = [(item.row * width + i, bias) for item in edits for i, bias in item.edit.bias if 0 <= i < width]
    if biases:
        cells = torch.tensor([cell for cell, _ in biases]).to(logits.device, non_blocking=True)
        values = torch.tensor([bias for _, bias in biases], dtype=logits.dtype).to(
            logits.device, non_blocking=True
        )
        logits.view(-1).index_put_((cells,), values, accumulate=True)


def _prefer(logits: Tensor, rows: Sequence[int], start: int, stop: int) -> None:
    """The range together against the best single id outside it, in each of the rows."""
    index = torch.tensor(rows).to(logits.device, non_blocking=True)
    picked = logits[index]  # [rows, V]
    together = picked[:, start:stop].logsumexp(dim=1, keepdim=True)
    inside = torch.full_like(picked, -math.inf)
    inside[:, start:stop] = picked[:, start:stop]
    picked[:, start:stop] = -math.inf
    wins = together > picked.amax(dim=1, keepdim=True)
    logits[index] = torch.where(wins, inside, logits[index])
