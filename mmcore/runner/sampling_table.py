"""Sampling options by slot, and one step's tokens drawn with them."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
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
from mmcore.model.sampler import SamplingBatch, sample, top_tokens
from mmcore.request import PreparedRequest
from mmcore.runner.batch import BatchTable, StepInputs
from mmcore.runner.row_options import RowOptions
from mmcore.runner.sampling import SlotSampling, num_candidates, resolve_sampling, stop_ids_of

NOBODY = -1
"""No slot."""


@dataclass(frozen=True, eq=False, slots=True)
class TokenScores:
    """Of the rows that somebody asked about, on the device; [A] each, and [A, K] of the likeliest."""

    rows: tuple[int, ...]
    num_top: tuple[int, ...]
    """So many of the likeliest are given back."""
    logprob: Tensor
    rank: Tensor
    top_ids: Tensor
    top_logprobs: Tensor

    def tensors(self) -> Mapping[str, Tensor]:
        names = ("logprob", "rank", "top_ids", "top_logprobs")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False, slots=True)
class SampledTokens:
    """One token for each sampling row, on the device: the host does not know them yet."""

    token_ids: Tensor  # int64 [S]
    logits: Tensor  # float32 [S], of the token; not finite where any of the row is NaN
    scores: TokenScores | None = None
    """Where somebody asked for them."""
    undecided: tuple[int, ...] = ()
    """Rows of beams: the scheduler chooses among the likeliest."""
    errors: Mapping[int, MMCoreError] = field(default_factory=dict)
    """By slot: a family's rule failed."""

    def decided(self, column: NDArray[np.int64]) -> NDArray[np.int64]:
        """One of the sampling rows' columns [S] without those of beams."""
        return np.delete(column, self.undecided) if self.undecided else column

    def tensors(self) -> Mapping[str, Tensor]:
        """What the host is to know."""
        given = {"token_ids": self.token_ids, "logits": self.logits}
        return given if self.scores is None else {**given, **self.scores.tensors()}


def host_scores(
    inputs: StepInputs,
    tokens: SampledTokens,
    arrays: Mapping[str, NDArray[Any]],
    errors: Container[int] = (),
) -> dict[int, tuple[TokenLogprobs, ...]]:
    """By batch row, where somebody asked for them and the slot has no error, from the arrays of
    `SampledTokens.tensors`."""
    if tokens.scores is None:
        return {}
    logprob, rank = arrays["logprob"].tolist(), arrays["rank"].tolist()
    logits = arrays["logits"].tolist()
    found: dict[int, tuple[TokenLogprobs, ...]] = {}
    for place, (row, count) in enumerate(zip(tokens.scores.rows, tokens.scores.num_top, strict=True)):
        if int(inputs.sample_slots[row]) in errors:
            continue
        ids, values = arrays["top_ids"][place, :count], arrays["top_logprobs"][place, :count]
        top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        score = TokenLogprobs(logprob[place], logits[row], top, rank[place])
        found[int(inputs.sample_rows[row])] = (score,)
    return found


@dataclass(frozen=True, slots=True)
class _Slot:
    options: SlotSampling
    stop_ids: tuple[int, ...]
    rules: tuple[LogitsRule, ...] = ()
    num_top: int | None = None
    """Likeliest tokens to give back beside the chosen one's scores; None: nobody wants scores."""


class SamplingTable:
    """What each slot's request asked of the sampler."""

    def __init__(self, adapter: Adapter, device: torch.device) -> None:
        self._adapter = adapter.name
        self._decoding = adapter.decoding
        self._device = device
        self._suppressed = self._inside(adapter.decoding.defaults.suppress_ids, adapter)
        self._suppressed_first = self._inside(adapter.decoding.defaults.first_suppress_ids, adapter)
        self._slots: dict[int, _Slot] = {}
        self._options = RowOptions(adapter.decoder.vocab_size, device)
        self._beams: set[int] = set()
        self._special: set[int] = set()
        """Slots that ask for more than the likeliest token that the family does not suppress."""

    def _inside(self, ids: Sequence[int], adapter: Adapter) -> Tensor:
        """Those that the model can choose, int64 on the device."""
        inside = [i for i in ids if 0 <= i < adapter.decoder.vocab_size]
        return torch.tensor(inside, dtype=torch.int64).to(self._device, non_blocking=True)

    def add(self, slot: int, sequence: int, request: PreparedRequest) -> None:
        """Raises `RequestError` where the family's code fails; the slot is filled all the same."""
        params, defaults = request.sampling, self._decoding.defaults
        plain = _Slot(resolve_sampling(params, sequence), tuple(stop_ids_of(params, defaults)))
        self._slots[slot] = plain
        if self._options.add(slot, request):
            self._special.add(slot)
        if params.use_beam_search:
            self._beams.add(slot)
        with plugin_code(self._adapter, "making its decoding rules"):
            rules = tuple(self._decoding.logits_rules(request))
            observed = self._decoding.stop_rule(request) is not None
        num_top = num_candidates(params, plain.stop_ids, observed)
        self._slots[slot] = replace(plain, rules=rules, num_top=num_top)
        if rules or num_top is not None or plain.options.temperature or plain.options.min_tokens:
            self._special.add(slot)

    def remove(self, slot: int) -> None:
        del self._slots[slot]
        self._options.remove(slot)
        self._special.discard(slot)
        self._beams.discard(slot)

    def advance(self, slots: Sequence[int], sources: Sequence[int], token_ids: Sequence[int]) -> None:
        """The slots' tokens become those of their sources and one more each, all at once."""
        self._options.copy(sources, slots)
        self._options.record(slots, torch.tensor(token_ids).to(self._device, non_blocking=True))

    def is_plain(self, inputs: StepInputs) -> bool:
        """Every row takes the largest logit among those that the family never suppresses."""
        if self._decoding.defaults.first_suppress_ids and not inputs.sample_positions.all():
            return False
        return self._special.isdisjoint(inputs.sample_slots.tolist())

    def sample(self, logits: Tensor, inputs: StepInputs, table: BatchTable) -> SampledTokens:
        """One token a row from ``logits`` float32 [S, V], which are changed in place. Never waits."""
        errors: dict[int, MMCoreError] = {}
        slots = inputs.sample_slots.tolist()
        undecided = tuple(row for row, slot in enumerate(slots) if slot in self._beams)
        if undecided:  # as transformers: beams edit logprobs, and what is edited is not normalised again
            index = torch.tensor(undecided).to(self._device, non_blocking=True)
            logits[index] = logits[index].log_softmax(dim=-1)
        self._options.apply(logits, slots)
        self._suppress(logits, inputs)
        ids = sample(logits, self._batch(inputs, self._edits(inputs, table, errors)))
        decided = [slot if slot not in self._beams else NOBODY for slot in slots]
        self._options.record(decided, ids)
        chosen = logits.gather(1, ids.unsqueeze(1)).squeeze(1)
        return SampledTokens(ids, chosen, self._scores(logits, chosen, slots), undecided, errors)

    def _scores(self, logits: Tensor, chosen: Tensor, slots: Sequence[int]) -> TokenScores | None:
        asked = [(row, slot, self._slots[slot].num_top) for row, slot in enumerate(slots)]
        wanted = [(row, slot, count) for row, slot, count in asked if count is not None]
        if not wanted:
            return None
        index = torch.tensor([row for row, _, _ in wanted]).to(self._device, non_blocking=True)
        logits, chosen = logits[index], chosen[index]
        scale = logits.logsumexp(dim=-1)
        beams = torch.tensor([slot in self._beams for _, slot, _ in wanted]).to(
            self._device, non_blocking=True
        )
        scale = scale.masked_fill(beams, 0.0)
        counts = tuple(count for _, _, count in wanted)
        values, ids = top_tokens(logits, max(counts))
        return TokenScores(
            rows=tuple(row for row, _, _ in wanted),
            num_top=counts,
            logprob=chosen - scale,
            rank=(logits > chosen.unsqueeze(1)).sum(dim=-1) + 1,
            top_ids=ids,
            top_logprobs=values - scale.unsqueeze(1),
        )

    def _suppress(self, logits: Tensor, inputs: StepInputs) -> None:
        """What the family bans always, and at first: the same for all requests, laid out once."""
        logits.index_fill_(1, self._suppressed, -math.inf)
        first = np.flatnonzero(inputs.sample_positions == 0)
        if len(first) and len(self._suppressed_first):
            rows = torch.from_numpy(first).to(logits.device, non_blocking=True)
            logits[rows.unsqueeze(1), self._suppressed_first] = -math.inf

    def _batch(self, inputs: StepInputs, edits: list[RowEdit]) -> SamplingBatch:
        options = [self._slots[slot].options for slot in inputs.sample_slots.tolist()]
        return SamplingBatch.of(
            temperature=[option.temperature for option in options],
            top_k=[option.top_k for option in options],
            top_p=[option.top_p for option in options],
            min_p=[option.min_p for option in options],
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
