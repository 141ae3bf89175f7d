"""What penalties and bad words have to know of each slot's tokens, on the device and never on the host.

Only slots that ask for it have a place in the tables, which are made when the first one does. A step's tokens
are recorded where they are sampled, so the host need not know them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

EMPTY = -2
"""No token: equal to no id, and not what stands for any of them."""


class TokenHistory:
    """Tables of one place a slot: tokens of the prompt, counts of the answer, the last few tokens."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._places: dict[int, int] = {}
        self._free: list[int] = []
        self.in_prompt = torch.zeros((0, vocab_size), dtype=torch.bool, device=device)
        self.counts = torch.zeros((0, vocab_size), dtype=torch.int32, device=device)
        self.recent = torch.full((0, 0), EMPTY, dtype=torch.int64, device=device)

    def place(self, slot: int) -> int:
        return self._places[slot]

    def add(self, slot: int, prompt: Sequence[int], num_recent: int) -> None:
        """Begin a slot's history; ``num_recent`` last tokens are asked for."""
        if not self._free:
            self._grow()
        self._widen(num_recent)
        place = self._places[slot] = self._free.pop()
        inside = [token for token in set(prompt) if token < self._vocab_size]
        self.in_prompt[place] = False
        self.in_prompt[place, torch.tensor(inside, dtype=torch.int64).to(self._device, non_blocking=True)] = (
            True
        )
        self.counts[place] = 0
        self.recent[place] = EMPTY
        tail = torch.tensor(
            prompt[-self.recent.shape[1] :] if self.recent.shape[1] else (), dtype=torch.int64
        )
        if len(tail):
            self.recent[place, -len(tail) :] = tail.to(self._device, non_blocking=True)

    def remove(self, slot: int) -> None:
        """Forget a slot, if it has a history."""
        place = self._places.pop(slot, None)
        if place is not None:
            self._free.append(place)

    def record(self, slots: Sequence[int], token_ids: Tensor) -> None:
        """``token_ids`` int64 [S] were sampled in these slots; those without a history are passed over."""
        rows = [row for row, slot in enumerate(slots) if slot in self._places]
        if not rows:
            return
        columns = torch.tensor([rows, [self._places[slots[row]] for row in rows]]).to(
            self._device, non_blocking=True
        )
        places, ids = columns[1], token_ids[columns[0]]
        self.counts.index_put_((places, ids), self.counts.new_ones(len(rows)), accumulate=True)
        if self.recent.shape[1]:
            self.recent[places] = torch.cat((self.recent[places][:, 1:], ids.unsqueeze(1)), dim=1)

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """All at once: each target slot's history becomes what its source's was."""
        pairs = [(s, t) for s, t in zip(sources, targets, strict=True) if s != t and s in self._places]
        if not pairs:
            return
        columns = torch.tensor([[self._places[s], self._places[t]] for s, t in pairs]).to(
            self._device, non_blocking=True
        )
        for table in (self.in_prompt, self.counts, self.recent):
            table[columns[:, 1]] = table[columns[:, 0]]

    def _grow(self) -> None:
        """Twice as many places."""
        old = len(self.counts)
        new = max(4, 2 * old)
        self.in_prompt = _taller(self.in_prompt, new)
        self.counts = _taller(self.counts, new)
        self.recent = _taller(self.recent, new)
        self._free += range(new - 1, old - 1, -1)

    def _widen(self, num_recent: int) -> None:
        missing = num_recent - self.recent.shape[1]
        if missing > 0:
            blank = self.recent.new_full((len(self.recent), missing), EMPTY)
            self.recent = torch.cat((blank, self.recent), dim=1)


def _taller(table: Tensor, rows: int) -> Tensor:
    taller = table.new_zeros((rows, table.shape[1]))
    taller[: len(table)] = table
    return taller
