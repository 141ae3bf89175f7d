"""Sampling options by slot, and one step's tokens drawn with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
    """One token for each sampling row: ids, logits and log-probabilities, [S] each."""

    token_ids: NDArray[np.int64]
    logits: NDArray[np.float32]
    logprob: NDArray[np.float32]
    errors: Mapping[int, MMCoreError] = field(default_factory=dict)
    """By slot: a family's rule failed."""

    @property
    def finite(self) -> NDArray[np.bool_]:
        return np.isfinite(self.logprob)


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
        self._slots: dict[int, _Slot] = {}

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

    def remove(self, slot: int) -> None:
        del self._slots[slot]

    def sample(self, logits: Tensor, inputs: StepInputs, table: BatchTable) -> SampledTokens:
        """One token a row from ``logits`` float32 [S, V]: one copy to the host, the step's only wait."""
        errors: dict[int, MMCoreError] = {}
        ids = sample(logits, self._batch(inputs, self._edits(inputs, table, errors)))
        chosen, logprob = token_scores(logits, ids)
        packed = torch.stack([ids.double(), chosen.double(), logprob.double()]).cpu().numpy()
        return SampledTokens(
            packed[0].astype(np.int64), packed[1].astype(np.float32), packed[2].astype(np.float32), errors
        )

    def scores(self, inputs: StepInputs, sampled: SampledTokens) -> dict[int, tuple[TokenLogprobs, ...]]:
        """By batch row, where somebody asked for them."""
        return {
            int(inputs.sample_rows[index]): (
                TokenLogprobs(float(sampled.logprob[index]), float(sampled.logits[index])),
            )
            for index, slot in enumerate(inputs.sample_slots.tolist())
            if self._slots[slot].scored
        }

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
            banned = self._banned(state, position)
            if banned:
                edits.append(RowEdit(row, LogitsEdit(banned=banned)))
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

    def _banned(self, state: _Slot, position: int) -> tuple[int, ...]:
        """Ids that are never sampled, not sampled first, or would end the sequence too early."""
        defaults = self._decoding.defaults
        banned = defaults.suppress_ids
        if position == 0:
            banned += defaults.first_suppress_ids
        if position < state.options.min_tokens:
            banned += state.stop_ids
        return banned
