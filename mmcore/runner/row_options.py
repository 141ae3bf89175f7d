"""Bias, penalties and bad words of the slots that ask for them, laid out as columns of one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmcore.model.penalties import BadWords, Bias, Penalties, add_bias, ban_words, penalise
from mmcore.request import PreparedRequest
from mmcore.runner.token_history import TokenHistory


@dataclass(frozen=True, eq=False, slots=True)
class _Asked:
    """One slot's options; None where it asks for none of the kind."""

    bias: tuple[Tensor, Tensor] | None
    """Ids int64 and values float32, [n] each."""
    penalties: tuple[float, float, float] | None
    """Repetition, frequency, presence."""
    words: tuple[Tensor, Tensor] | None
    """Prefixes int64 [n, k] and last ids int64 [n], as in `BadWords`."""

    @property
    def needs_history(self) -> bool:
        return self.penalties is not None or self.words is not None


class RowOptions:
    """A slot that asks for nothing costs nothing."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._asked: dict[int, _Asked] = {}
        self._history = TokenHistory(vocab_size, device)

    def add(self, slot: int, request: PreparedRequest) -> bool:
        """Whether the slot asks for anything."""
        asked = _Asked(self._bias(request), _penalties(request), self._words(request))
        if asked.bias is None and not asked.needs_history:
            return False
        self._asked[slot] = asked
        if asked.needs_history:
            num_recent = 0 if asked.words is None else asked.words[0].shape[1]
            self._history.add(slot, request.token_ids, num_recent)
        return True

    def remove(self, slot: int) -> None:
        self._asked.pop(slot, None)
        self._history.remove(slot)

    def apply(self, logits: Tensor, slots: Sequence[int]) -> None:
        """In place on float32 logits [S, V] of these slots."""
        asked = [(row, slot, self._asked[slot]) for row, slot in enumerate(slots) if slot in self._asked]
        biased = [(row, one.bias) for row, _, one in asked if one.bias is not None]
        if biased:
            add_bias(logits, self._bias_column(biased))
        penalised = [(row, slot, one.penalties) for row, slot, one in asked if one.penalties is not None]
        if penalised:
            columns = self._penalty_columns(penalised)
            penalise(logits, columns, self._history.in_prompt, self._history.counts)
        banned = [(row, slot, one.words) for row, slot, one in asked if one.words is not None]
        if banned:
            ban_words(logits, self._word_columns(banned), self._history.recent)

    def record(self, slots: Sequence[int], token_ids: Tensor) -> None:
        """``token_ids`` int64 [S] were chosen."""
        if self._asked:
            self._history.record(slots, token_ids)

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """The targets' tokens become what the sources' were."""
        self._history.copy(sources, targets)

    # ------------------------------------------------------------------ one slot

    def _bias(self, request: PreparedRequest) -> tuple[Tensor, Tensor] | None:
        inside = {i: v for i, v in (request.sampling.logit_bias or {}).items() if i < self._vocab_size}
        if not inside:
            return None
        ids, values = torch.tensor(list(inside)), torch.tensor(list(inside.values()), dtype=torch.float32)
        return ids.to(self._device, non_blocking=True), values.to(self._device, non_blocking=True)

    def _words(self, request: PreparedRequest) -> tuple[Tensor, Tensor] | None:
        words = [word for word in request.bad_words if word[-1] < self._vocab_size]
        if not words:
            return None
        longest = max(map(len, words)) - 1
        prefixes = torch.tensor([[-1] * (longest + 1 - len(word)) + list(word[:-1]) for word in words])
        last = torch.tensor([word[-1] for word in words])
        return prefixes.view(len(words), longest).to(self._device, torch.int64), last.to(
            self._device, non_blocking=True
        )

    # ------------------------------------------------------------------ columns

    def _bias_column(self, biased: Sequence[tuple[int, tuple[Tensor, Tensor]]]) -> Bias:
        rows = [row for row, (ids, _) in biased for _ in range(len(ids))]
        return Bias(
            torch.tensor(rows).to(self._device, non_blocking=True),
            torch.cat([ids for _, (ids, _) in biased]),
            torch.cat([values for _, (_, values) in biased]),
        )

    def _penalty_columns(self, rows: Sequence[tuple[int, int, tuple[float, float, float]]]) -> Penalties:
        places = [[row for row, _, _ in rows], [self._history.place(slot) for _, slot, _ in rows]]
        where = torch.tensor(places).to(self._device, non_blocking=True)
        values = torch.tensor([list(p) for _, _, p in rows], dtype=torch.float32).to(
            self._device, non_blocking=True
        )
        return Penalties(
            rows=where[0],
            places=where[1],
            repetition=values[:, 0],
            frequency=values[:, 1],
            presence=values[:, 2],
        )

    def _word_columns(self, banned: Sequence[tuple[int, int, tuple[Tensor, Tensor]]]) -> BadWords:
        width = max(prefix.shape[1] for _, _, (prefix, _) in banned)
        where = torch.tensor(
            [
                [row for row, _, (_, last) in banned for _ in range(len(last))],
                [self._history.place(slot) for _, slot, (_, last) in banned for _ in range(len(last))],
            ]
        ).to(self._device, non_blocking=True)
        prefixes = [pad(prefix, (width - prefix.shape[1], 0), value=-1) for _, _, (prefix, _) in banned]
        return BadWords(
            rows=where[0],
            places=where[1],
            prefix=torch.cat(prefixes),
            last=torch.cat([last for _, _, (_, last) in banned]),
        )


def _penalties(request: PreparedRequest) -> tuple[float, float, float] | None:
    params = request.sampling
    repetition = params.repetition_penalty or 1.0
    frequency, presence = params.frequency_penalty or 0.0, params.presence_penalty or 0.0
    neutral = (repetition, frequency, presence) == (1.0, 0.0, 0.0)
    return None if neutral else (repetition, frequency, presence)
