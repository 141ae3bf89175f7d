"""Sampling options by slot, and one step's tokens drawn with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mmcore.adapter import Decoding, LogitsEdit, LogitsRule
from mmcore.core.output import TokenLogprobs
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

    @property
    def finite(self) -> NDArray[np.bool_]:
        return np.isfinite(self.logprob)


@dataclass(frozen=True, slots=True)
class _Slot:
    options: SlotSampling
    stop_ids: tuple[int, ...]
    rules: tuple[LogitsRule, ...]
    scored: bool
    """The family's stop rule sees each token's scores."""


class SamplingTable:
    """What each slot's request asked of the sampler."""

    def __init__(self, decoding: Decoding, device: torch.device) -> None:
        self._decoding = decoding
        self._device = device
        self._slots: dict[int, _Slot] = {}

    def add(self, slot: int, sequence: int, request: PreparedRequest) -> None:
        defaults = self._decoding.defaults
        self._slots[slot] = _Slot(
            resolve_sampling(request.sampling, defaults, sequence),
            tuple(stop_ids_of(request.sampling, defaults)),
            self._decoding.logits_rules(request),
            self._decoding.stop_rule(request) is not None,
        )

    def remove(self, slot: int) -> None:
        del self._slots[slot]

    def sample(self, logits: Tensor, inputs: StepInputs, table: BatchTable) -> SampledTokens:
        """One token a row from ``logits`` float32 [S, V]: one copy to the host, the step's only wait."""
        ids = sample(logits, self._batch(inputs, table))
        chosen, logprob = token_scores(logits, ids)
        packed = torch.stack([ids.double(), chosen.double(), logprob.double()]).cpu().numpy()
        return SampledTokens(
            packed[0].astype(np.int64), packed[1].astype(np.float32), packed[2].astype(np.float32)
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

    def _batch(self, inputs: StepInputs, table: BatchTable) -> SamplingBatch:
        slots = inputs.sample_slots.tolist()
        positions = inputs.sample_positions.tolist()
        options = [self._slots[slot].options for slot in slots]
        return SamplingBatch.of(
            temperature=[option.temperature for option in options],
            top_k=[option.top_k for option in options],
            top_p=[option.top_p for option in options],
            seed=[option.seed for option in options],
            position=positions,
            device=self._device,
            edits=self._edits(slots, positions, table),
        )

    def _edits(self, slots: list[int], positions: list[int], table: BatchTable) -> list[RowEdit]:
        edits: list[RowEdit] = []
        for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
            state = self._slots[slot]
            banned = self._banned(state, position)
            if banned:
                edits.append(RowEdit(row, LogitsEdit(banned=banned)))
            if state.rules:
                generated = table.generated(slot).tolist()
                edits += [RowEdit(row, rule.edit(generated)) for rule in state.rules]
        return edits

    def _banned(self, state: _Slot, position: int) -> tuple[int, ...]:
        """Ids that are never sampled, not sampled first, or would end the sequence too early."""
        defaults = self._decoding.defaults
        banned = defaults.suppress_ids
        if position == 0:
            banned += defaults.first_suppress_ids
        if position < state.options.min_tokens:
            banned += state.stop_ids
        return banned
