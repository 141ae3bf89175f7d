"""A decode step as the device sees it: one token a row, from ids to the next ids, nothing asked of the host.

All that changes from step to step lies in one buffer (`DecodeColumns`), so that the same work can be captured
once and replayed. Rows up to the captured number are padding: they write no KV, see no context, and leave
their token in a slot that nobody owns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mmcore.kernels.argmax import argmax
from mmcore.model.attention import AttentionMetadata, KVCache
from mmcore.model.decoder import Decoder
from mmcore.runner.batch import StepInputs, TableShape
from mmcore.runner.transfer import ColumnLayout, host_buffer


class LastTokens:
    """The last sampled token of every slot, on the device; one more slot takes what padding gives."""

    def __init__(self, slots: int, device: torch.device) -> None:
        self._ids = torch.zeros(slots + 1, dtype=torch.int64, device=device)
        self.scratch = slots
        self.device = device

    def resolve(self, ids: Tensor) -> Tensor:
        """Token ids [T], where ``-1 - slot`` stands for that slot's last token."""
        return torch.where(ids < 0, self._ids[(-1 - ids).clamp_(min=0)], ids)

    def store(self, slots: Tensor, ids: Tensor) -> None:
        """The tokens that a step sampled, int64 [S] each."""
        self._ids.index_copy_(0, slots, ids)


@dataclass(frozen=True, eq=False, slots=True)
class Selected:
    """The likeliest token of each row, its logit, the logits it was chosen from, and the row's slot."""

    token_ids: Tensor  # int64 [R]
    chosen: Tensor  # float32 [R]
    logits: Tensor  # [R, V]
    slots: Tensor  # int64 [R]

    def rows(self, count: int) -> Selected:
        """Without the padding."""
        return Selected(self.token_ids[:count], self.chosen[:count], self.logits[:count], self.slots[:count])


class DecodeStep:
    """Called with a `DecodeColumns` buffer on the device; captures into a graph as it stands."""

    def __init__(self, decoder: Decoder, kv: KVCache, last: LastTokens, suppressed: Sequence[int]) -> None:
        device = kv.key.device
        inside = [i for i in suppressed if 0 <= i < decoder.config.vocab_size]
        self._decoder = decoder
        self._kv = kv
        self._last = last
        self._suppressed = torch.tensor(inside, dtype=torch.int64, device=device)
        self._starts: dict[int, Tensor] = {}

    def starts(self, rows: int) -> Tensor:
        """``query_starts`` of rows with one token each."""
        if rows not in self._starts:
            self._starts[rows] = torch.arange(rows + 1, dtype=torch.int32, device=self._kv.key.device)
        return self._starts[rows]

    def __call__(self, columns: Mapping[str, Tensor]) -> Selected:
        rows = len(columns["slots"])
        hidden = self._decoder.embed(self._last.resolve(columns["token_ids"]))
        cross = columns.get("cross_blocks")
        meta = AttentionMetadata(
            block_tables=columns["blocks"].t().contiguous(),
            query_starts=self.starts(rows),
            context_lens=columns["context_lens"],
            slot_mapping=columns["slot_mapping"],
            max_query_len=1,
            cross_block_tables=cross,
            cross_lens=None if cross is None else columns["cross_lens"],
        )
        logits = self._decoder.logits(self._decoder(hidden, columns["positions"], self._kv, meta))
        return self.select(logits, columns["slots"])

    def select(self, logits: Tensor, slots: Tensor) -> Selected:
        """The largest logit of each row that the family does not suppress; NaN where a row holds one."""
        if len(self._suppressed):  # the logits stay as they are, for those who want to edit them otherwise
            kept = logits.index_select(1, self._suppressed)
            logits.index_fill_(1, self._suppressed, -torch.inf)
            chosen, ids = argmax(logits)
            logits.index_copy_(1, self._suppressed, kept)
        else:
            chosen, ids = argmax(logits)
        self._last.store(slots, ids)
        return Selected(ids, chosen, logits, slots)


class DecodeColumns:
    """A step's inputs on the device, always in one place, for up to ``rows`` rows of ``width`` blocks."""

    def __init__(self, rows: int, width: int, cross_width: int, shape: TableShape, last: LastTokens) -> None:
        columns: dict[str, NDArray[Any]] = {
            "token_ids": np.empty(rows, np.int64),
            "slot_mapping": np.empty(rows, np.int64),
            "slots": np.empty(rows, np.int64),
            "positions": np.empty((shape.axes, rows), np.int64),
            "context_lens": np.empty(rows, np.int32),
        }
        if shape.cross:
            columns["cross_lens"] = np.empty(rows, np.int32)
            columns["cross_blocks"] = np.empty((rows, cross_width), np.int32)
        columns["blocks"] = np.empty((width, rows), np.int32)  # short contexts copy its beginning
        self._layout = ColumnLayout(columns)
        self._row_bytes = rows * columns["blocks"].itemsize
        self._scratch = last.scratch
        self._buffer = torch.zeros(self._layout.num_bytes, dtype=torch.uint8, device=last.device)
        self.on_device = self._layout.read(self._buffer)

    def fill(self, inputs: StepInputs | None) -> None:
        """Queue one copy of a step's inputs, padded; of padding alone where there are none."""
        host = host_buffer(self._layout.num_bytes, self._buffer.device)
        memory, start = host.numpy(), self._layout.start_of("blocks")
        arrays = self._layout.arrays(memory)
        blocks = arrays.pop("blocks")
        memory[:start] = 0
        arrays["slot_mapping"][...] = -1
        arrays["slots"][...] = self._scratch
        width = 0
        if inputs is not None:
            width = inputs.block_tables.shape[1]
            blocks[:width] = 0
            _write(arrays | {"blocks": blocks[:width]}, inputs)
        used = start + width * self._row_bytes
        self._buffer[:used].copy_(host[:used], non_blocking=True)


def _write(arrays: Mapping[str, NDArray[Any]], inputs: StepInputs) -> None:
    count = len(inputs.context_lens)
    arrays["token_ids"][:count] = inputs.token_ids
    arrays["slot_mapping"][:count] = inputs.slot_mapping
    arrays["slots"][:count] = inputs.sample_slots
    arrays["positions"][:, :count] = inputs.positions
    arrays["context_lens"][:count] = inputs.context_lens
    arrays["blocks"][:, :count] = inputs.block_tables.T
    if inputs.cross_block_tables is not None:
        arrays["cross_lens"][:count] = inputs.cross_lens
        arrays["cross_blocks"][:count, : inputs.cross_block_tables.shape[1]] = inputs.cross_block_tables
