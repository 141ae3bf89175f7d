"""Sampling options by slot, and one step's tokens drawn with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mmcore.adapter import Adapter, LogitsEdit, LogitsRule
from mmcore.core.output import TokenLogprobs
from mmcore.errors import MMCoreError, plugin_code
from mmcore.model.logits_edit import RowEdit
from mmcore.model.sampler import SamplingBatch, sample, token_scores
from mmcore.request import PreparedRequest
from mmcore.runner.batch import BatchTable, StepInputs
from mmcore.runner.sampling import SlotSampling, resolve_sampling, stop_ids_of


@dataclass(frozen=True, eq=False, slots=True)
class SampledTokens:
    """One token for each sampling row, on the device: the host does not know them yet."""

    token_ids: Tensor  # int64 [S]
    logits: Tensor  # float32 [S], of the token; not finite where any of the row is NaN
    logprob: Tensor | None = None  # float32 [S], where somebody asked for scores
    scored: tuple[int, ...] = ()
    """Rows whose scores are given back."""
    errors: Mapping[int, MMCoreError] = field(default_factory=dict)
    """By slot: a family's rule failed."""

    def tensors(self) -> Mapping[str, Tensor]:
        """What the host is to know."""
        given = {"token_ids": self.token_ids, "logits": self.logits}
        return given if self.logprob is None else {**given, "logprob": self.logprob}


def host_scores(
    inputs: StepInputs, tokens: SampledTokens, arrays: Mapping[str, NDArray[Any]]
) -> dict[int, tuple[TokenLogprobs, ...]]:
    """By batch row, where somebody asked for them, from the arrays of `SampledTokens.tensors`."""
    return {
        int(inputs.sample_rows[index]): (
            TokenLogprobs(float(arrays["logprob"][index]), float(arrays["logits"][index])),
        )
        for index in tokens.scored
    }


@dataclass(frozen=True, slots=True)
class _Slot:
    options: SlotSampling
    stop_ids: tuple[int, ...]
    rules: tuple[LogitsRule, ...] = ()
    scored: bool = False
    """The family's stop rule sees each token's scores."""


class SamplingTable:
    """What each slot's request asked of the sampler."""

    def __init__(self, adapter: Adapter, device: torch.device) -> None:
        self._adapter = adapter.name
        self._decoding = adapter.decoding
        self._device = device
        self._suppressed = self._inside(adapter.decoding.defaults.suppress_ids, adapter)
        self._suppressed_first = self._inside(adapter.decoding.defaults.first_suppress_ids, adapter)
        self._slots: dict[int, _Slot] = {}
        self._special: set[int] = set()
        """Slots that ask for more than the likeliest token that the family does not suppress."""

    def _inside(self, ids: Sequence[int], adapter: Adapter) -> Tensor:
        """Those that the model can choose, int64 on the device."""
        inside = [i for i in ids if 0 <= i < adapter.decoder.vocab_size]
        return torch.tensor(inside, dtype=torch.int64).to(self._device)

    def add(self, slot: int, sequence: int, request: PreparedRequest) -> None:
        """Raises `RequestError` where the family's code fails; the slot is filled all the same."""
        defaults = self._decoding.defaults
        plain = _Slot(
            resolve_sampling(request.sampling, defaults, sequence),
            tuple(stop_ids_of(request.sampling, defaults)),
        )
        self._slots[slot] = plain
        with plugin_code(self._adapter, "making its decoding rules"):
            rules = tuple(self._decoding.logits_rules(request))
            scored = self._decoding.stop_rule(request) is not None
        self._slots[slot] = replace(plain, rules=rules, scored=scored)
        if rules or scored or plain.options.temperature or plain.options.min_tokens:
            self._special.add(slot)

    def remove(self, slot: int) -> None:
        del self._slots[slot]
        self._special.discard(slot)

    def is_plain(self, inputs: StepInputs) -> bool:
        """Every row takes the largest logit among those that the family never suppresses."""
        if self._decoding.defaults.first_suppress_ids and not inputs.sample_positions.all():
            return False
        return self._special.isdisjoint(inputs.sample_slots.tolist())

    def sample(self, logits: Tensor, inputs: StepInputs, table: BatchTable) -> SampledTokens:
        """One token a row from ``logits`` float32 [S, V], which are changed in place. Never waits."""
        errors: dict[int, MMCoreError] = {}
        self._suppress(logits, inputs)
        ids = sample(logits, self._batch(inputs, self._edits(inputs, table, errors)))
        slots = enumerate(inputs.sample_slots.tolist())
        scored = tuple(index for index, slot in slots if self._slots[slot].scored)
        if scored:
            return SampledTokens(ids, *token_scores(logits, ids), scored, errors)
        return SampledTokens(ids, logits.gather(1, ids.unsqueeze(1)).squeeze(1), errors=errors)

    def _suppress(self, logits: Tensor, inputs: StepInputs) -> None:
        """What the family bans always, and at first: the same for all requests, laid out once."""
        logits.index_fill_(1, self._suppressed, -math.inf)
        first = np.flatnonzero(inputs.sample_positions == 0)
        if len(first) and len(self._suppressed_first):
            rows = torch.from_numpy(first).to(logits.device)
            logits[rows.unsqueeze(1), self._suppressed_first] = -math.inf

    def _batch(self, inputs: StepInputs, edits: list[RowEdit]) -> SamplingBatch:
        options = [self._slots[slot].options for slot in inputs.sample_slots.tolist()]
        return SamplingBatch.of(
            temperature=[option.temperature for option in options],
            top_k=[option.top_k for option in options],
            top_p=[option.top_p for option in options],
            seed=[option.seed for option in options],
            position=inputs.sample_positions.tolist(),
            device=self._device,
            edits=edits,
        )

    def _edits(self, inputs: StepInputs, table: BatchTable, errors: dict[int, MMCoreError]) -> list[RowEdit]:
        """What bans and rules do to each row; a slot whose rule fails goes into ``errors``."""
        edits: list[RowEdit] = []
        columns = zip(inputs.sample_slots.tolist(), inputs.sample_positions.tolist(), strict=True)
        for row, (slot, position) in enumerate(columns):
            state = self._slots[slot]
            if position < state.options.min_tokens:
                edits.append(RowEdit(row, LogitsEdit(banned=state.stop_ids)))
            if state.rules:
                try:
                    edits += self._ruled(row, state.rules, table.generated(slot).tolist())
                except MMCoreError as error:
                    errors[slot] = error
        return edits

    def _ruled(self, row: int, rules: tuple[LogitsRule, ...], generated: list[int]) -> list[RowEdit]:
        with plugin_code(self._adapter, "ruling the next token"):
            edits = [rule.edit(generated) for rule in rules]
            if not all(isinstance(edit, LogitsEdit) for edit in edits):
                raise TypeError("a rule gives a LogitsEdit")
        return [RowEdit(row, edit) for edit in edits]
